"""The whole road, with real servers."""
