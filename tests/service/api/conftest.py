"""One world for all tests of the doors: making it takes longer than asking it."""

import httpx
import pytest

from murmurate.service.migrate import migrate
from tests.service.api.world import a_world
from tests.service.conftest import database


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    with database("state") as state_dsn, database("log") as log_dsn:
        migrate(state_dsn, "state")
        migrate(log_dsn, "log")
        with a_world(tmp_path_factory.mktemp("api"), state_dsn, log_dsn) as made:
            yield made


@pytest.fixture(scope="session")
def doors(world):
    """An HTTP client for each door."""
    with (
        httpx.Client(base_url=world.url("public"), trust_env=False, timeout=20) as public,
        httpx.Client(base_url=world.url("private"), trust_env=False, timeout=20) as private,
    ):
        yield {"public": public, "private": private}
