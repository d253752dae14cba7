"""Databases of a real PostgreSQL server, and a disk that never waits."""

from tests.support.databases import log_dsn, state_dsn, stores  # noqa: F401
from tests.support.sample_landings import quick_disk  # noqa: F401
