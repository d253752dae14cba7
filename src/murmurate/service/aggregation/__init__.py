"""The job that sums the readings of closed intervals: in one process, or on a Spark cluster."""
