"""Who may read what: the log everybody, confidential data the curator alone."""

from __future__ import annotations

import psycopg
import pytest
from tests.support.postgres_stores import SHARDS, ZONES
from tests.support.sample_shards import FIRST

CONFIDENTIAL = [
    *(f"confidential.{table}" for table in ("demand", "register", "register_energy", "seen")),
    *("access.client", "access.token"),
]
CURATORS = [f"curator.{table}" for table in ("document", "shard", "zone", "tile", "heartbeat", "aggregation_attempt")]


def as_role(dsn, name):
    return psycopg.connect(dsn, user=name, autocommit=True)


@pytest.mark.parametrize("table", [*CONFIDENTIAL, *CURATORS])
def test_nobody_but_the_curator_reads_the_state(stores, stranger, table):
    with as_role(stores.state_dsn, stranger) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(f"SELECT * FROM {table}")  # noqa: S608


def test_everybody_reads_the_log_and_nobody_writes_it(stores, stranger):
    stores.publish(FIRST)
    with as_role(stores.log_dsn, stranger) as connection:
        shards = {shard for (shard,) in connection.execute("SELECT shard FROM public_log.tile")}
        assert shards == set(SHARDS)
        zones = {zone for (zone,) in connection.execute("SELECT zone FROM public_log.claim")}
        assert zones == set(ZONES)
        for statement in (
            "SELECT public_log.append('{}')",
            "SELECT public_log.claim_zones('{}')",
            "INSERT INTO public_log.document VALUES ('x', 'y')",
            "INSERT INTO public_log.claim VALUES ('x', 'y')",
            "INSERT INTO public_log.tile VALUES ('x', 0, 0, now(), '')",
            "UPDATE public_log.head SET seq = 0",
            "DELETE FROM public_log.tile",
            "INSERT INTO public_log.evidence (kind) VALUES ('tile')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
