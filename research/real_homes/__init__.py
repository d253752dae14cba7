"""Evaluate a private price on the households of a data set: its error, attacks on it, and a page about both."""
