"""The public HTTP API. Everything it serves derives from the public log."""
