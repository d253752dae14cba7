"""A plan that is damaged in the state: said while the worker still has it in memory, and with its cause afterwards."""

from contextlib import closing

import psycopg
import pytest
from tests.support.interval_workers import GRACE_S
from tests.support.operator_cli import STEP_S

from murmurate.operations.publishing import open_zones
from murmurate.service.log_reader.follower import Follower
from murmurate.service.operator_api.attention import find_attention
from murmurate.service.operator_api.status import service_status
from murmurate.service.settings import ServiceSettings

DAMAGES = {
    "changed": 'UPDATE curator.document SET body = replace(body, \'"zone":"harbour"\', \'"zone":"hill"\')',
    "cut": "UPDATE curator.document SET body = left(body, 300)",
    "gone": "DELETE FROM curator.document",
}


def damage_plan(setup, damage):
    with psycopg.connect(setup.state_dsn) as connection:
        done = connection.execute(f"{DAMAGES[damage]} WHERE body LIKE '%%murmurate_plan%%'")
        assert done.rowcount == 1


def attention(setup):
    """What `murmurate status` lists about prices and zones."""
    settings = ServiceSettings()
    with closing(Follower(setup.log_dsn)) as follower:
        shards = [change.view for change in follower.refresh()]
    status = service_status(
        shards,
        {},
        display_of=settings.display_of,
        now_s=setup.clock.now(),
        grace_s=GRACE_S,
        reading_counts={},
        heartbeat=(0.0, setup.release_report()),
        clients=[],
        worker_beat=(0.0, {}),
    )
    return {
        item.about: (item.problem, item.remedy) for item in find_attention(status, settings) if item.about != "feed"
    }


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_it_is_said_before_a_restart_with_its_cause_after_it_and_opening_again_mends_it(worker_setup, damage):
    worker_setup.release(0)
    assert attention(worker_setup) == {}
    damage_plan(worker_setup, damage)
    worker_setup.release(1)
    assert worker_setup.kinds() == ["measured"] * 2
    assert "murmurate zone open" in attention(worker_setup)["harbour"][0]

    worker_setup.worker = worker_setup.new_worker()  # as after a restart
    worker_setup.release(2)
    assert worker_setup.kinds() == ["measured"] * 2 + ["withheld"]
    found = attention(worker_setup)
    assert found.keys() == {"harbour", "last price"}
    assert found["last price"][0] == "The last price was withheld."
    assert "too late" not in found["last price"][1]
    assert "plan" in found["last price"][1]

    plan, keys = worker_setup.root / "plan.json", worker_setup.root / "keys"
    open_zones([plan], worker_setup.databases, keys, lead_intervals=2)
    worker_setup.release(3)
    assert worker_setup.kinds()[3:] == ["measured"]
    assert attention(worker_setup) == {}


def test_a_price_that_was_decided_too_late_is_still_called_so(worker_setup):
    worker_setup.worker.grace_s = STEP_S
    worker_setup.report(0)
    worker_setup.at(0, STEP_S)
    assert worker_setup.kinds() == ["withheld"]
    assert "too late" in attention(worker_setup)["last price"][1]
