"""Formats of outgoing prices."""
