"""Pages for residents."""
