"""From readings to the public log: what a plan hides is released, and what it does not hide never reaches the state."""

import json
import time

import psycopg
import pytest

from murmurate.quantities import UNPROTECTED
from murmurate.service.gathering.append import append
from murmurate.service.gathering.layout import Landing
from tests.gathering.worlds import Meter, Row, by_hand, meter_csv, readings
from tests.live.canary import without_hashes
from tests.service.operators import STEP_S, an_operator

PLANNED_WH = 1000  # the largest bound of a flat that the noise of the plan hides
MARKET_WH = 20_000  # of the fish market, whose occupancy is public always
CANARY = 19_283
METERS = [
    Meter(0, "harbour", PLANNED_WH, 120),
    Meter(1, "harbour", PLANNED_WH, 120),
    Meter(4, "harbour", MARKET_WH, 0, protected=False),
]
ROWS = [Row(0, 250), Row(0, 260), Row(4, CANARY)]
SAID = by_hand(METERS, ROWS)["harbour"]
MILL = [*METERS, Meter(5, "mill", 10)]
LOUD = [METERS[0]._replace(bound_wh=PLANNED_WH + 1), *METERS[1:]]
TWO_METERS = [meter._replace(household="1") for meter in METERS[:2]] + [METERS[2]._replace(household="2")]
MARKET = [*METERS[:2], Meter(6, "harbour", MARKET_WH + 1, kind="fish market")]
INN = [*METERS, Meter(7, "harbour", 500, kind="inn")]
OLD, BEYOND, NOTHING, ODD = 5, 6, 7, 8  # intervals after the first
UNREADABLE = ["", "{", "[]", "{}", "null", "1000", '{"": 1000.0}', '{"": true}', '{"": -1}', '{"": "1000"}']


class Scene:
    """An operator with an open zone and a landing; `told` is what each command has printed."""

    def __init__(self, operator):
        self.operator, self.told = operator, {}
        operator.open(hours_ago=2)
        operator.run("murmurate export log.jsonl")
        self.first = json.loads(operator.lines("log.jsonl")[-1])["interval"] + 1
        operator.run("murmurate landing landing --minutes 5 --shard-meters 3")
        self.landing = Landing.open(operator.folder / "landing")

    def gather(self, name, after, meters, *, status=0, landing=None):
        """Hand over the demand of an interval from readings and a meter table."""
        landing = landing or self.landing
        start_s = (self.first + after) * STEP_S // landing.interval_s * landing.interval_s
        append(landing, start_s, readings(ROWS))
        meter_csv(self.operator.folder / "meters.csv", meters)
        begin = time.strftime("%FT%TZ", time.gmtime(start_s))
        line = f"murmurate gather --readings {landing.root.name} --meters meters.csv --interval {begin}"
        self.told[name] = self.operator.run(line, status=status)

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
    """Intervals, each handed over in another way; then one release."""
    with an_operator(tmp_path_factory.mktemp("handover")) as operator:
        scene = Scene(operator)
        scene.gather("plain", 0, METERS)
        scene.gather("again", 0, METERS)
        scene.gather("mill", 1, MILL, status=1)
        scene.gather("loud", 2, LOUD, status=1)
        a_second, a_third = (
            Landing.create(operator.folder / name, interval_s=STEP_S, shard_meters=3) for name in ("second", "third")
        )
        quarter = Landing.create(operator.folder / "quarter", interval_s=900, shard_meters=3)
        scene.gather("quarter", 3, METERS, status=1, landing=quarter)
        scene.gather("two meters", 4, TWO_METERS, status=1)
        scene.gather("market", 4, MARKET, status=1, landing=a_second)
        scene.gather("inn", 4, INN, status=1, landing=a_third)
        scene.kept = scene.state("SELECT zone, interval FROM confidential.demand ORDER BY interval")
        operator.remember(scene.first + OLD, scene.first + OLD, bounds=None)
        operator.remember(scene.first + BEYOND, scene.first + BEYOND, bounds=({"": PLANNED_WH + 1},))
        operator.remember(scene.first + ODD, scene.first + ODD + len(UNREADABLE) - 1)
        for at, text in enumerate(UNREADABLE):
            query = "UPDATE confidential.demand SET bounds = %s WHERE interval = %s"
            scene.state(query, text, scene.first + ODD + at)
        operator.run("murmurate release --beat 0.02")
        operator.run("murmurate export log.jsonl")
        yield scene


def kinds(scene):
    """What the log says of each interval from the first on."""
    records = [json.loads(line) for line in scene.operator.lines("log.jsonl")[1:]]
    return {record["interval"] - scene.first: record["kind"] for record in records if record["kind"] != "open"}


def test_what_was_gathered_is_in_the_state_and_then_in_the_log_as_measured(scene):
    begin = time.strftime("%F %H:%M", time.gmtime(scene.first * STEP_S))
    assert scene.told["plain"].splitlines() == [
        f"Interval {begin} UTC: 1 zone, 2 of 3 readings are there.",
        "Demand of 1 of 1 zone handed over to the state.",
    ]
    assert scene.told["again"] == scene.told["plain"]
    assert scene.demand(0) == [("harbour", *SAID)]
    assert SAID == (CANARY + 260 + 120, 2, 1, {"": PLANNED_WH, UNPROTECTED: MARKET_WH})
    assert kinds(scene)[0] == "measured"
    assert "Everything holds." in scene.operator.run("murmurate verify log.jsonl")


def test_a_zone_that_is_not_open_is_set_aside_and_the_others_go_on(scene):
    said, complaint = scene.told["mill"].splitlines()[-2:]
    assert said == "Demand of 1 of 2 zones handed over to the state."
    assert complaint == "mill: set aside: is not open; murmurate open plan.json"
    assert scene.demand(1) == [("harbour", *SAID)]
    assert kinds(scene)[1] == "measured"


REMEDY = "lower its bound_wh, or change to a plan with such households"
REFUSED = {
    "loud": f"without a kind with bound_wh 1001; its plan hides up to 1000 there: say its kind, {REMEDY}",
    "two meters": f"without a kind with bound_wh 2000; its plan hides up to 1000 there: say its kind, {REMEDY}",
    "market": f"of kind 'fish market' with bound_wh 20001; its plan hides up to 20000 there: {REMEDY}",
    "inn": "of kind 'inn'; the kinds of its plan are 'fish market', 'flat': say one of these",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_household_that_the_noise_does_not_hide_sets_its_zone_aside(scene, name):
    said, complaint = scene.told[name].splitlines()[-2:]
    assert said == "Demand of 0 of 1 zone handed over to the state."
    assert complaint == f"harbour: set aside: has a household {REFUSED[name]}"


def test_what_was_set_aside_is_released_as_forecast(scene):
    assert scene.demand(4) == []
    assert kinds(scene)[4] == "forecast"
    assert scene.demand(2) == []
    assert kinds(scene)[2] == "forecast"


def test_intervals_of_another_length_are_set_aside(scene):
    said, complaint = scene.told["quarter"].splitlines()[-2:]
    assert said == "Demand of 0 of 1 zone handed over to the state."
    assert complaint == f"harbour: set aside: is planned for intervals of {STEP_S} s, not 900 s"
    assert scene.kept == [("harbour", scene.first), ("harbour", scene.first + 1)]
    assert kinds(scene)[3] == "forecast"


def test_a_demand_whose_bounds_are_not_known_is_not_used(scene):
    assert [line[-1] for line in scene.demand(OLD)] == [None]
    assert kinds(scene)[OLD] == "forecast"


def test_bounds_that_cannot_be_read_are_not_known(scene):
    read = [kinds(scene)[ODD + at] for at in range(len(UNREADABLE))]
    assert dict(zip(UNREADABLE, read, strict=True)) == dict.fromkeys(UNREADABLE, "forecast")


def test_the_desk_uses_no_demand_that_its_noise_does_not_hide_wherever_it_came_from(scene):
    assert [line[-1] for line in scene.demand(BEYOND)] == [{"": PLANNED_WH + 1}]
    assert kinds(scene)[BEYOND] == "forecast"
    assert kinds(scene)[NOTHING] == "forecast"


def test_nothing_printed_or_published_holds_a_demand(scene):
    published = (scene.operator.folder / "log.jsonl").read_text(encoding="utf-8")
    everything = without_hashes(scene.operator.shown + published)
    assert "measured" in everything
    for number in (CANARY, SAID.energy_wh):
        for form in (str(number), f"{number:,}", f"{number:x}", f"{number / 1000}"):
            assert form not in everything


def test_a_state_that_is_out_of_reach_is_one_line_without_a_password(scene):
    dsn = "postgresql://me:geheim@127.0.0.1:5499/x"
    begin = time.strftime("%FT%TZ", time.gmtime(scene.first * STEP_S))
    line = f"murmurate gather --readings landing --interval {begin}"
    *_, complaint = scene.operator.run(line, status=2, MURMURATE_STATE=dsn).splitlines()
    assert complaint.startswith("murmurate: the state database is out of reach: ")
    assert "geheim" not in complaint
