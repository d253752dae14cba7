"""From readings to the public log: what a plan hides is released, and what it does not hide never reaches the state."""

import json
import time

import psycopg
import pytest
from tests.fault_injection.leak_search import without_hashes
from tests.support.operator_cli import STEP_S, an_operator
from tests.support.sample_landings import Meter, Row, by_hand, meter_csv, readings

from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.types import UNPROTECTED_KIND

PLANNED_WH = 1000  # the largest bound of a flat that the noise of the plan hides
MARKET_WH = 20_000  # of the fish market, whose occupancy is public always
CANARY = 19_283
METERS = [
    Meter(0, "harbour", PLANNED_WH, 120),
    Meter(1, "harbour", PLANNED_WH, 120),
    Meter(4, "harbour", MARKET_WH, 0, protected=False),
]
ROWS = [Row(0, 250), Row(0, 260), Row(4, CANARY)]
EXPECTED = by_hand(METERS, ROWS)["harbour"]
MILL = [*METERS, Meter(5, "mill", 10)]
LOUD = [METERS[0]._replace(bound_wh=PLANNED_WH + 1), *METERS[1:]]
TWO_METERS = [meter._replace(household="1") for meter in METERS[:2]] + [METERS[2]._replace(household="2")]
MARKET = [*METERS[:2], Meter(6, "harbour", MARKET_WH + 1, kind="fish market")]
INN = [*METERS, Meter(7, "harbour", 500, kind="inn")]
OLD, BEYOND, NOTHING, ODD = 5, 6, 7, 8  # intervals after the first
UNREADABLE = ["", "{", "[]", "{}", "null", "1000", '{"": 1000.0}', '{"": true}', '{"": -1}', '{"": "1000"}']


class Scene:
    """An operator with an open zone and a landing; `printed` is what each command has printed."""

    def __init__(self, operator):
        self.operator, self.printed = operator, {}
        self.first = operator.open_and_find_first()
        operator.run("rm -r landing && murmurate init --minutes 5 --shard-meters 3")
        self.landing = Landing.open(operator.folder / "landing")

    def aggregate(self, name, after, meters, *, status=0, landing=None):
        """Submit the demand of an interval from readings and a meter table."""
        landing = landing or self.landing
        start_s = (self.first + after) * STEP_S // landing.interval_s * landing.interval_s
        append_readings(landing, start_s, readings(ROWS))
        meter_csv(self.operator.folder / "meters.csv", meters)
        begin = time.strftime("%FT%TZ", time.gmtime(start_s))
        line = f"murmurate step aggregate --landing {landing.root.name} --meters meters.csv --interval {begin}"
        self.printed[name] = self.operator.run(line, status=status)

    def state(self, query, *values):
        with psycopg.connect(self.operator.dsn("state")) as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def demand(self, after):
        """(zone, energy, reported, imputed, bounds) as the state has it."""
        columns = "zone, energy_wh, reported, imputed, bounds::jsonb"
        return self.state(f"SELECT {columns} FROM confidential.demand WHERE interval = %s", self.first + after)  # noqa: S608


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Intervals, each submitted in another way; then one release."""
    with an_operator(tmp_path_factory.mktemp("submit")) as operator:
        scene = Scene(operator)
        scene.aggregate("plain", 0, METERS)
        scene.aggregate("again", 0, METERS)
        scene.aggregate("mill", 1, MILL, status=1)
        scene.aggregate("loud", 2, LOUD, status=1)
        a_second, a_third = (
            Landing.create(operator.folder / name, interval_s=STEP_S, shard_meters=3) for name in ("second", "third")
        )
        quarter = Landing.create(operator.folder / "quarter", interval_s=900, shard_meters=3)
        scene.aggregate("quarter", 3, METERS, status=1, landing=quarter)
        scene.aggregate("two meters", 4, TWO_METERS, status=1)
        scene.aggregate("market", 4, MARKET, status=1, landing=a_second)
        scene.aggregate("inn", 4, INN, status=1, landing=a_third)
        scene.kept = scene.state("SELECT zone, interval FROM confidential.demand ORDER BY interval")
        operator.store_demand(scene.first + OLD, scene.first + OLD, bounds=None)
        operator.store_demand(scene.first + BEYOND, scene.first + BEYOND, bounds=({"": PLANNED_WH + 1},))
        operator.store_demand(scene.first + ODD, scene.first + ODD + len(UNREADABLE) - 1)
        for at, text in enumerate(UNREADABLE):
            query = "UPDATE confidential.demand SET bounds = %s WHERE interval = %s"
            scene.state(query, text, scene.first + ODD + at)
        operator.run("murmurate step release --slot 0.02")
        operator.run("murmurate log export --zone harbour log.jsonl")
        yield scene


def kinds(scene):
    """What the log says of each interval from the first on."""
    lines = [json.loads(line) for line in scene.operator.lines("log.jsonl")[1:]]
    return {line["tile"]["interval"] - scene.first: line["row"]["kind"] for line in lines if line["row"]}


def test_what_was_aggregated_is_in_the_state_and_then_in_the_log_as_measured(scene):
    begin = time.strftime("%F %H:%M", time.gmtime(scene.first * STEP_S))
    assert scene.printed["plain"].splitlines() == [
        f"Interval {begin} UTC: 1 zone, 2 of 3 readings are there.",
        "Demand of 1 of 1 zone submitted to the state.",
    ]
    assert scene.printed["again"] == scene.printed["plain"]
    assert scene.demand(0) == [("harbour", *EXPECTED)]
    assert EXPECTED == (CANARY + 260 + 120, 2, 1, {"": PLANNED_WH, UNPROTECTED_KIND: MARKET_WH})
    assert kinds(scene)[0] == "measured"
    assert "Everything holds." in scene.operator.run("murmurate log verify log.jsonl")


def test_a_zone_that_is_not_open_is_blocked_and_the_others_go_on(scene):
    summary, complaint = scene.printed["mill"].splitlines()[-2:]
    assert summary == "Demand of 1 of 2 zones submitted to the state."
    assert complaint == "mill: blocked: is not open; murmurate zone open plan.json"
    assert scene.demand(1) == [("harbour", *EXPECTED)]
    assert kinds(scene)[1] == "measured"


REMEDY = "lower its bound_wh or export_bound_wh, or change to a plan with such households"
RANGE = "bound_wh + export_bound_wh ="
REFUSED = {
    "loud": f"without a kind with {RANGE} 1001; its plan hides up to 1000 there: state its kind, {REMEDY}",
    "two meters": f"without a kind with {RANGE} 2000; its plan hides up to 1000 there: state its kind, {REMEDY}",
    "market": f"of kind 'fish market' with {RANGE} 20001; its plan hides up to 20000 there: {REMEDY}",
    "inn": "of kind 'inn'; the kinds of its plan are 'fish market', 'flat': state one of these",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_household_that_the_noise_does_not_hide_blocks_its_zone(scene, name):
    summary, complaint = scene.printed[name].splitlines()[-2:]
    assert summary == "Demand of 0 of 1 zone submitted to the state."
    assert complaint == f"harbour: blocked: has a household {REFUSED[name]}"


def test_what_was_blocked_is_released_as_forecast(scene):
    assert scene.demand(4) == []
    assert kinds(scene)[4] == "fallback"
    assert scene.demand(2) == []
    assert kinds(scene)[2] == "fallback"


def test_intervals_of_another_length_are_blocked(scene):
    summary, complaint = scene.printed["quarter"].splitlines()[-2:]
    assert summary == "Demand of 0 of 1 zone submitted to the state."
    assert complaint == f"harbour: blocked: is planned for intervals of {STEP_S} s, not 900 s"
    assert scene.kept == [("harbour", scene.first), ("harbour", scene.first + 1)]
    assert kinds(scene)[3] == "fallback"


def test_a_demand_whose_bounds_are_not_known_is_not_used(scene):
    assert [line[-1] for line in scene.demand(OLD)] == [None]
    assert kinds(scene)[OLD] == "fallback"


def test_bounds_that_cannot_be_read_are_not_known(scene):
    read = [kinds(scene)[ODD + at] for at in range(len(UNREADABLE))]
    assert dict(zip(UNREADABLE, read, strict=True)) == dict.fromkeys(UNREADABLE, "fallback")


def test_the_record_writer_uses_no_demand_that_its_noise_does_not_hide_wherever_it_came_from(scene):
    assert [line[-1] for line in scene.demand(BEYOND)] == [{"": PLANNED_WH + 1}]
    assert kinds(scene)[BEYOND] == "fallback"
    assert kinds(scene)[NOTHING] == "fallback"


def test_nothing_printed_or_published_holds_a_demand(scene):
    published = (scene.operator.folder / "log.jsonl").read_text(encoding="utf-8")
    everything = without_hashes(scene.operator.shown + published)
    assert "measured" in everything
    for number in (CANARY, EXPECTED.energy_wh):
        for form in (str(number), f"{number:,}", f"{number:x}", f"{number / 1000}"):
            assert form not in everything


def test_a_state_that_is_out_of_reach_is_one_line_without_a_password(scene):
    dsn = "postgresql://me:geheim@127.0.0.1:5499/x"
    begin = time.strftime("%FT%TZ", time.gmtime(scene.first * STEP_S))
    line = f"murmurate step aggregate --landing landing --interval {begin}"
    *_, complaint = scene.operator.run(line, status=2, MURMURATE_STATE=dsn).splitlines()
    assert complaint.startswith("murmurate: the state database is out of reach: ")
    assert "geheim" not in complaint
