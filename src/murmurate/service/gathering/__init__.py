"""Readings on disk, and the job that makes demand of them: in one process, or on a Spark cluster."""
