"""A simulated town for the demo."""
