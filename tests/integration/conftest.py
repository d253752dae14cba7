"""Databases of a real PostgreSQL server, and a disk that never waits."""

import pytest

from murmurate.service.storage.session import CONNECT_PARAMETERS
from tests.support.databases import log_dsn, state_dsn, stores  # noqa: F401
from tests.support.sample_landings import quick_disk  # noqa: F401

_PATIENT_S = 60
_NOT_ABOUT_SERVERS = {"aggregation", "commands", "docs", "worker"}


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test is not about servers that do not answer, it waits for a server that is busy."""
    if _NOT_ABOUT_SERVERS & {*request.path.parts}:
        monkeypatch.setitem(CONNECT_PARAMETERS, "connect_timeout", _PATIENT_S)
