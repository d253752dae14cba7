"""The demo: a simulated town, its own server, and the process that deletes both."""
