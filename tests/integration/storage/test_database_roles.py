"""Who may read what: the log everybody, confidential data the curator alone."""

from __future__ import annotations

from secrets import token_hex

import psycopg
import pytest
from tests.support.databases import SERVER
from tests.support.postgres_stores import ZONES, desired
from tests.support.sample_chains import FIRST

CONFIDENTIAL = ("confidential.demand", "confidential.register", "confidential.seen", "access.client", "access.token")
CURATORS = ("curator.pending", "curator.head", "curator.release", "curator.heartbeat")


@pytest.fixture
def plain_role():
    """A role with a login and no other right."""
    name = f"plain_role_{token_hex(4)}"
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        yield name
        connection.execute(f"DROP ROLE {name}")


def as_role(dsn, name):
    return psycopg.connect(dsn, user=name, autocommit=True)


@pytest.mark.parametrize("table", [*CONFIDENTIAL, *CURATORS])
def test_nobody_but_the_curator_reads_the_state(stores, plain_role, table):
    with as_role(stores.state_dsn, plain_role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(f"SELECT * FROM {table}")  # noqa: S608


def test_everybody_reads_the_log_and_nobody_writes_it(stores, plain_role):
    stores.publisher().publish(desired(FIRST), timeout_s=60)
    with as_role(stores.log_dsn, plain_role) as connection:
        zones = {zone for (zone,) in connection.execute("SELECT zone FROM public_log.entry")}
        assert zones == set(ZONES)
        for statement in (
            "SELECT public_log.append('{}')",
            "INSERT INTO public_log.plan VALUES ('x', 'y')",
            "UPDATE public_log.head SET seq = 0",
            "DELETE FROM public_log.entry",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
