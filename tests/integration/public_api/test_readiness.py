"""Readiness is about the process; a zone whose log is broken says so itself, and comes back when it is mended."""

from dataclasses import replace

import psycopg
from tests.support.api_servers import STEP_S, plan_of, public_process
from tests.support.postgres_stores import ShardWriter
from tests.support.waiting import wait_until

from murmurate.service.log_reader import follower

FIRST, PRICED = 1_900_000, 5


def test_one_broken_shard_leaves_the_process_ready_and_is_shown_again_once_mended(log_dsn, monkeypatch):
    monkeypatch.setattr(follower, "BROKEN_RETRY_S", 0.1)
    zones = {"harbour": "quay", "old town": "hill"}
    writers = {
        zone: ShardWriter(log_dsn, {zone: plan_of(zone)}, shard=shard, first=FIRST) for zone, shard in zones.items()
    }
    for writer in writers.values():
        writer.write(PRICED + 1)
    with public_process(log_dsn, (FIRST + PRICED) * STEP_S) as (client, _):
        for path in ("/readyz", "/readyz?zone=harbour", "/readyz?zone=old%20town"):
            assert client.get(path).status_code == 200, path
        assert client.get("/readyz?zone=nowhere").status_code == 404
        honest = writers["harbour"].draft().tile
        forged = replace(honest, rows=honest.rows.copy())
        forged.rows["price_ticks"][0] += 1
        writers["harbour"].smuggle(forged)
        assert wait_until(lambda: client.get("/readyz?zone=harbour").status_code == 503)
        assert [client.get(path).status_code for path in ("/readyz", "/healthz", "/readyz?zone=old%20town")] == [
            200
        ] * 3
        assert client.get("/zones/harbour/now").status_code == 200  # the last prices stay
        with psycopg.connect(log_dsn) as connection:
            connection.execute("SET session_replication_role = replica")  # past the rules of the log
            query = "UPDATE public_log.tile SET body = %s WHERE shard = 'quay' AND seq = %s"
            connection.execute(query, (honest.to_bytes(), honest.header.seq))
        assert wait_until(lambda: client.get("/readyz?zone=harbour").status_code == 200)
    for writer in writers.values():
        writer.close()
