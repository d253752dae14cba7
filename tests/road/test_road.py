"""The road on its clock: when it closes, what it releases where something is missing, and when it forgets."""

from __future__ import annotations

import json

import numpy as np
import psycopg
import pytest

from murmurate.curator.plan import make_plan
from murmurate.curator.zonefile import parse_zone
from murmurate.quantities import Readings
from murmurate.service.databases import Databases
from murmurate.service.doors.memory import DoorMemory
from murmurate.service.gathering.append import append
from murmurate.service.gathering.closing import begun, closed
from murmurate.service.gathering.layout import Landing
from murmurate.service.keyring import make_keys
from murmurate.service.office import Office
from murmurate.service.plan_commands import open_zones
from murmurate.service.road import road as handing
from murmurate.service.road.road import Road
from tests.service.operators import STEP_S, small_zone

HOMES, GRACE_S, LEAD = 801, 60, 2
FIRST_S = 1_794_614_400  # 2026-11-14 00:00 UTC


class Wall:
    """A clock on the wall that a test sets."""

    def __init__(self, now_s):
        self.now_s = float(now_s)

    def now(self):
        return self.now_s


class Works:
    """A road with everything it needs."""

    def __init__(self, root, state, log):
        self.root, self.state_dsn, self.log_dsn = root, state, log
        (root / "plan.json").write_text(make_plan(parse_zone(small_zone())).to_json())
        make_keys(root / "keys")
        self.databases = Databases.of(state=state, log=log)
        open_zones(
            [root / "plan.json"], self.databases, root / "keys", lead=LEAD, first="2026-11-14T00:00Z", quiet=True
        )
        self.landing = Landing.create(root / "landing", interval_s=STEP_S)
        self.write_meters()
        self.clock, self.said, self.roads = Wall(FIRST_S), [], []
        self.road = self.new_road()

    def write_meters(self, bound_wh=1000):
        rows = [f"{home},harbour,{bound_wh},100" for home in range(HOMES)]
        (self.root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")

    def new_road(self):
        office = Office.of(self.databases, self.root / "keys", beat_s=0.01)
        made = Road(
            landing=self.landing,
            meters=self.root / "meters.csv",
            office=office,
            memory=DoorMemory(self.state_dsn),
            clock=self.clock,
            say=lambda event, **facts: self.said.append({"event": event} | facts),
            grace_s=GRACE_S,
        )
        self.roads.append(made)
        return made

    def report(self, number, homes=HOMES):
        readings = Readings.of(meter=np.arange(homes), energy_wh=np.full(homes, 200))
        assert append(self.landing, FIRST_S + number * STEP_S, readings)

    def at(self, number, after_s):
        """Turn at so many seconds after the end of an interval."""
        self.clock.now_s = FIRST_S + (number + 1) * STEP_S + after_s
        self.road.turn()

    def kinds(self):
        with psycopg.connect(self.log_dsn) as connection:
            rows = connection.execute("SELECT line FROM public_log.entry ORDER BY seq").fetchall()
        return [json.loads(line)["kind"] for (line,) in rows][1:]

    def count(self, table):
        with psycopg.connect(self.state_dsn) as connection:
            return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608


@pytest.fixture
def works(tmp_path, state_dsn, log_dsn):
    made = Works(tmp_path, state_dsn, log_dsn)
    yield made
    for road in made.roads:
        road.office.close()
        road.memory.close()


def test_an_interval_is_closed_at_its_deadline_and_not_before(works):
    works.report(0)
    works.at(0, GRACE_S - 1)
    assert works.kinds() == []
    assert not begun(works.landing, FIRST_S)
    works.at(0, GRACE_S)
    assert works.kinds() == ["measured"]
    works.at(0, GRACE_S + 1)
    assert works.kinds() == ["measured"]


def test_a_missed_quorum_releases_the_forecast(works):
    works.report(0, homes=int(0.9 * HOMES) - 1)
    works.at(0, GRACE_S)
    works.report(1, homes=int(0.9 * HOMES) + 1)
    works.at(1, GRACE_S)
    assert works.kinds() == ["forecast", "measured"]
    assert "the quorum is 0.9" in str(works.said)


@pytest.mark.parametrize("mishap", ["no table", "a broken table", "a table beyond the plan's bound", "a bad file"])
def test_a_broken_source_releases_the_forecast_and_the_next_interval_is_measured_again(works, mishap):
    works.report(0)
    table = (works.root / "meters.csv").read_bytes()
    if mishap == "no table":
        (works.root / "meters.csv").unlink()
    elif mishap == "a broken table":
        (works.root / "meters.csv").write_text("meter,zone\n1,harbour\n")
    elif mishap == "a table beyond the plan's bound":
        works.write_meters(bound_wh=5000)
    else:
        (works.landing.shard(FIRST_S, 0) / "odd.parquet").write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    works.at(0, GRACE_S)
    assert works.kinds() == ["forecast"]
    (works.root / "meters.csv").write_bytes(table)
    works.report(1)
    works.at(1, GRACE_S)
    assert works.kinds() == ["forecast", "measured"]


def test_a_road_that_was_down_catches_up_with_what_is_still_in_time(works):
    for number in range(6):
        works.report(number)
    works.at(0, GRACE_S)
    works.road = works.new_road()  # as after a restart
    works.at(5, GRACE_S)
    assert works.kinds() == ["measured", *["withheld"] * 4, "measured"]


def test_two_roads_release_once(works):
    works.report(0)
    other = works.new_road()
    works.at(0, GRACE_S)
    other.turn()
    assert works.kinds() == ["measured"]
    works.report(1)
    works.clock.now_s += STEP_S
    other.turn()
    works.road.turn()
    assert works.kinds() == ["measured", "measured"]


def test_after_a_week_readings_demand_and_claims_are_gone_and_the_log_is_not(works):
    works.report(0)
    works.at(0, GRACE_S)
    with works.road.memory.claim(np.array([1]), np.array([FIRST_S])) as first:
        assert first.all()
    assert (works.count("confidential.demand"), works.count("confidential.seen")) == (1, 1)
    works.clock.now_s = FIRST_S + 7 * 86_400 - 60
    works.road._forgot_s = float("-inf")
    works.road._forget(works.clock.now())
    assert works.landing.interval(FIRST_S).exists()
    assert works.count("confidential.demand") == 1
    works.clock.now_s += 61 + STEP_S
    works.road._forget(works.clock.now())
    assert not works.landing.interval(FIRST_S).exists()
    assert closed(works.landing, FIRST_S).forgotten
    assert (works.count("confidential.demand"), works.count("confidential.seen")) == (0, 0)
    assert works.kinds() == ["measured"]


def test_a_part_of_the_service_says_that_it_lives(works):
    works.report(0)
    works.at(0, GRACE_S)
    at_s, said = works.road.office.state.heartbeats()["road"]
    assert at_s > 0
    assert said["done"] == 1
    assert "energy" not in json.dumps(said)


def test_a_state_that_is_away_for_a_moment_costs_no_price(works, monkeypatch):
    works.report(0)
    works.report(1)
    real, calls = handing.hand_over, []

    def away_at_first(*given):
        calls.append(given)
        if len(calls) == 1:
            raise psycopg.OperationalError("gone")
        return real(*given)

    monkeypatch.setattr(handing, "hand_over", away_at_first)
    with pytest.raises(psycopg.OperationalError):
        works.at(0, GRACE_S)
    assert works.kinds() == []
    works.at(0, GRACE_S + 5)
    works.at(1, GRACE_S)
    assert works.kinds() == ["measured", "measured"]


def test_nothing_that_the_road_says_tells_a_demand(works):
    works.report(0)
    works.at(0, GRACE_S)
    works.report(1, homes=10)  # also where the quorum is missed
    works.at(1, GRACE_S)
    assert {"gathered", "released"} <= {one["event"] for one in works.said}
    said = json.dumps([works.said, works.road.office.state.heartbeats()["road"][1]])
    for homes in (HOMES, 10):
        demand_wh = homes * 200 + (HOMES - homes) * 100
        assert str(demand_wh) not in said
        assert str(demand_wh / 1000) not in said
