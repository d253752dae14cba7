"""Formats of incoming readings."""
