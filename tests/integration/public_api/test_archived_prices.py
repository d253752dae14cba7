"""The public process after tiles were archived: with the archive every answer stays as it was, without it 410."""

import pytest
from tests.support.api_servers import LEAD, STEP_S, plan_of, public_process
from tests.support.postgres_stores import ShardWriter
from tests.support.sample_shards import NEW_KEY, OLD_KEY

from murmurate.commands.archive import archive_tiles
from murmurate.operations.log_source import open_log_source
from murmurate.publisher.desired_state import Change
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.tile_archive import TileArchive
from murmurate.verification.verifier import check_log

pytestmark = pytest.mark.slow

ZONE, SHARD = "harbour", "quay"
FIRST = 1_767_225_600 // STEP_S
RELEASES, ARCHIVED = 600, 400  # more than the three days in memory
NOW_S = (FIRST + RELEASES + LEAD) * STEP_S - 60
URL = "http://prices.example"
OLD = {  # answers about intervals that are archived, or partly
    "history": f"/zones/{ZONE}/history.csv?start=2026-01-02T00:00:00Z&end=2026-01-03T00:00:00Z",
    "both": f"/zones/{ZONE}/history.csv?start=2026-01-04T00:00:00Z&end=2026-01-06T00:00:00Z",
    "day": f"/zones/{ZONE}/days/2026-01-02.json",
    "prices": f"/zones/{ZONE}/prices?from=2026-01-02&to=2026-01-03",
    "prices until now": f"/zones/{ZONE}/prices?from=2026-01-02",
    "tile": f"/tiles/{SHARD}/100",
    "log": f"/zones/{ZONE}/log.jsonl",
}
KEPT = {  # answers that need no archive
    "page": f"/zones/{ZONE}",
    "plan": f"/zones/{ZONE}/plan",
    "first tile": f"/tiles/{SHARD}/0",
    "recent": f"/zones/{ZONE}/history.csv?start=2026-01-06T00:00:00Z&end=2026-01-07T00:00:00Z",
}


@pytest.fixture(scope="module")
def plan():
    return plan_of(ZONE)


def answers(client, paths):
    return {name: client.get(path) for name, path in paths.items()}


def bodies(found):
    return {name: (each.status_code, each.content) for name, each in found.items()}


def test_answers_stay_with_the_archive_and_say_where_it_is_without(log_dsn, state_dsn, plan, tmp_path):
    writer = ShardWriter(log_dsn, {ZONE: plan}, shard=SHARD, first=FIRST, lead=LEAD)
    writer.write(50, 400_000)
    writer.write(key_change=Change(OLD_KEY.public_key, NEW_KEY.public_key))
    writer.write(RELEASES - 49, 400_000)
    writer.close()
    with public_process(log_dsn, NOW_S, url=URL) as (client, _):
        before, kept_before = bodies(answers(client, OLD)), bodies(answers(client, KEPT))
        assert all(status == 200 for status, _ in (*before.values(), *kept_before.values()))
        assert "archived" not in client.get("/shards").json()[0]
    databases, folder = Databases.from_dsns(state=state_dsn, log=log_dsn), tmp_path / "archive"
    outcome = archive_tiles(databases, TileArchive(folder), (FIRST + ARCHIVED) * STEP_S)
    assert (outcome.refused, outcome.dropped) == ({}, ARCHIVED)

    with public_process(log_dsn, NOW_S, url=URL, archive=folder) as (client, _):
        assert bodies(answers(client, OLD)) == before
        assert bodies(answers(client, KEPT)) == kept_before
        assert "archived" not in client.get("/shards").json()[0]
        report = check_log({"service": open_log_source(str(client.base_url))})
        assert (report.findings, report.is_complete) == ([], True)

    with public_process(log_dsn, NOW_S, url=URL, static_files=tmp_path / "static") as (client, _):
        for answer in answers(client, OLD).values():
            assert answer.status_code == 410
            assert "archive" in answer.json()["detail"]
        assert bodies(answers(client, KEPT)) == kept_before
        assert client.get("/shards").json()[0]["archived"] == {"seq": ARCHIVED + 1, "kept": [0, 50]}
        alone = check_log({"service": open_log_source(str(client.base_url))})
        assert (alone.findings, alone.is_complete) == ([], False)
        whole = check_log({name: open_log_source(name) for name in (str(folder), str(client.base_url))})
        assert (whole.findings, whole.is_complete) == ([], True)
