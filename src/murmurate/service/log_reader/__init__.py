"""Read the public log: follow it as it grows, look up what is old."""
