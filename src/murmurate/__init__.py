"""Real-time electricity rates that do not tell who is home."""

__version__ = "0.1.0"
