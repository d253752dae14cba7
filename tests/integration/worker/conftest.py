"""A worker on real databases."""

from tests.support.interval_workers import worker_setup  # noqa: F401
