"""Both APIs run once for all tests of this folder, because their start takes longer than the requests."""

import httpx
import pytest

from murmurate.service.storage.migrate import migrate_database
from tests.support.api_servers import run_apis
from tests.support.databases import database


@pytest.fixture(scope="session")
def apis(tmp_path_factory):
    with database("state") as state_dsn, database("log") as log_dsn:
        migrate_database(state_dsn, "state")
        migrate_database(log_dsn, "log")
        with run_apis(tmp_path_factory.mktemp("api"), state_dsn, log_dsn) as apis:
            yield apis


@pytest.fixture(scope="session")
def clients(apis):
    """An HTTP client for each API."""
    with (
        httpx.Client(base_url=apis.url("public"), trust_env=False, timeout=120) as public,
        httpx.Client(base_url=apis.url("private"), trust_env=False, timeout=120) as private,
    ):
        yield {"public": public, "private": private}
