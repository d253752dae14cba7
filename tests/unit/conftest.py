"""A disk that never waits, for the tests in which no power is cut."""

from tests.support.sample_landings import quick_disk  # noqa: F401
