"""The road on a fixed clock: intervals are closed, gathered, released and forgotten."""
