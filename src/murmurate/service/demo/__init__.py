"""The demo: a simulated town, a server of its own, and the process that deletes both."""
