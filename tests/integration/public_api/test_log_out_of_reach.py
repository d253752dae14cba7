"""While the log is out of reach the prices that were read are served, and no answer names an interval that is over."""

import re
import time
from datetime import datetime
from email.utils import parsedate_to_datetime

import psycopg
import pytest
from tests.support.api_servers import STEP_S, plan_of, public_process
from tests.support.databases import SERVER
from tests.support.postgres_stores import ShardWriter

FIRST, PRICED, LEAD = 1_900_000, 90, 50
SPEED = 450.0  # an interval takes two seconds
BOUNDARIES = 3
PATHS = ("/zones/harbour/now", "/zones/harbour/evcc", "/zones/harbour/vse/v1/tariffs", "/zones/harbour", "/")


@pytest.fixture
def served(log_dsn):
    """A client of a service whose clock is fast, the clock, and the name of the database of its log."""
    writer = ShardWriter(log_dsn, {"harbour": plan_of("harbour")}, first=FIRST, lead=LEAD)
    writer.write(PRICED)
    writer.close()
    with public_process(log_dsn, (FIRST + PRICED) * STEP_S, speed=SPEED) as (client, live_state):
        yield client, live_state.clock, log_dsn.rpartition("/")[2]


def cut_off(name):
    """End every connection to a database and let none in."""
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


def end_of_current(path, answer):
    """The end of the interval that an answer calls the current one [s of UTC]."""
    if "html" in answer.headers["content-type"]:
        times = [datetime.fromisoformat(text) for text in re.findall(r'datetime="([^"]+)"', answer.text)]
        return max(time.timestamp() for time in times[: 2 if path != "/" else 1])
    document = answer.json()
    first = document if path.endswith("now") else (document[0] if path.endswith("evcc") else document["prices"][0])
    return datetime.fromisoformat(first.get("end") or first["end_timestamp"]).timestamp()


def test_no_answer_names_an_interval_that_is_over_or_may_be_kept_beyond_its_end(served):
    client, clock, database = served
    for path in PATHS:
        assert client.get(path).status_code == 200  # what the next ones may get from the cache
    cut_off(database)
    ends, stop_s = {path: set() for path in PATHS}, time.monotonic() + 60
    while min(len(seen) for seen in ends.values()) <= BOUNDARIES:
        assert time.monotonic() < stop_s, ends
        for path in PATHS:
            asked_s = time.time()
            answer = client.get(path)
            assert answer.status_code == 200
            end_s = end_of_current(path, answer)
            assert end_s > clock.simulated_at(asked_s), path
            kept_until_s = parsedate_to_datetime(answer.headers["expires"]).timestamp() + 1
            assert kept_until_s <= clock.wall_at(end_s), path
            ends[path].add(end_s)
