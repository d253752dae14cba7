"""The oracle finds what it is for: a lost, a doubled, a wrong reading, a gap and a second record."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState
from murmurate.service.landing.layout import interval_name
from tests.chaos.meters import (
    BARE,
    BARE_TIMES,
    BARE_WH,
    BATCHED,
    BOUND_WH,
    FILES,
    HTTP,
    REGISTERS,
    SIGNED,
    STEP_S,
    ZONES,
    TrueEnergy,
    bare_message,
)
from tests.chaos.oracle import Evidence, is_late_too_early, is_price_of_another_time, judge, judge_static
from tests.chaos.public_watch import PublicWatch
from tests.support.ingestors import demand_of, new_ingestor
from tests.support.request_bodies import readings_parquet

TRUTH = TrueEnergy(seed=1, first=2_000_000)
LAST = TRUTH.first + 2
SOURCES = (HTTP, BARE, SIGNED, BATCHED, REGISTERS, FILES)


def write_readings(path: Path, interval: int, meters, energy) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(readings_parquet(meters, interval * STEP_S, energy))


def shard_folder(landing: Path, interval: int) -> Path:
    return landing / f"interval={interval_name(interval * STEP_S)}" / "shard=0"


def close_interval(landing: Path, interval: int) -> None:
    files = [
        {"path": path.relative_to(landing).as_posix(), "bytes": 0, "sha256": sha256(path.read_bytes()).hexdigest()}
        for path in sorted(shard_folder(landing, interval).glob("*.parquet"))
    ]
    manifest = landing / "_closed" / f"{interval_name(interval * STEP_S)}.json"
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text(json.dumps({"files": files}))


def whole_demand(interval: int) -> dict[tuple[int, str], tuple[int, int, int]]:
    """The demand of each zone if every meter but the fence has reported: the fence is imputed."""
    counted = TRUTH.counted_wh(interval)
    return {
        (interval, zone): (int(counted[number::2][:50].sum()) + 200 * number, 50 - number, number)
        for number, zone in enumerate(ZONES)
    }


@pytest.fixture
def evidence(tmp_path) -> Evidence:
    demand = {}
    for interval in range(TRUTH.first, LAST + 1):
        for source in SOURCES:
            path = shard_folder(tmp_path, interval) / f"{source.start}.parquet"
            write_readings(path, interval, source, TRUTH.stored_wh(interval)[source])
        close_interval(tmp_path, interval)
        demand |= whole_demand(interval)
    released = {zone: [(interval, "measured") for interval in range(TRUTH.first, LAST + 1)] for zone in ZONES}
    everyone = frozenset(meter for source in SOURCES for meter in source)
    return Evidence(
        landing=tmp_path, truth=TRUTH, last=LAST, acknowledged=lambda _: everyone, demand=demand, released=released
    )


def rules(evidence: Evidence) -> set[str]:
    return {text.partition(":")[0] for text in judge(evidence).violations}


def drop_file(evidence):
    (shard_folder(evidence.landing, LAST) / f"{HTTP.start}.parquet").unlink()
    close_interval(evidence.landing, LAST)
    return evidence


def count_twice(evidence):
    path = shard_folder(evidence.landing, LAST) / "doubled.parquet"
    write_readings(path, LAST, [HTTP[5]], [2 * int(TRUTH.energy_wh(LAST)[HTTP[5]])])
    close_interval(evidence.landing, LAST)
    return evidence


def leave_open(evidence):
    (evidence.landing / "_closed" / f"{interval_name(LAST * STEP_S)}.json").unlink()
    return evidence


def without_measurement(evidence, kind="fallback"):
    """The last interval has no demand and was not measured."""
    released = {zone: [*rows[:-1], (LAST, kind)] for zone, rows in evidence.released.items()}
    demand = {key: demand for key, demand in evidence.demand.items() if key[0] != LAST}
    return replace(evidence, released=released, demand=demand)


def with_rows_of_quay(evidence, change):
    return replace(evidence, released=evidence.released | {"quay": change(evidence.released["quay"])})


def with_demand_of_quay(evidence, energy_wh):
    energy, *rest = evidence.demand[LAST, "quay"]
    return replace(evidence, demand=evidence.demand | {(LAST, "quay"): (energy + energy_wh, *rest)})


def without_demand_of_quay(evidence):
    return replace(evidence, demand={key: one for key, one in evidence.demand.items() if key != (LAST, "quay")})


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        pytest.param(drop_file, {"lost", "wrong"}, id="a file of acknowledged readings is dropped"),
        pytest.param(lambda all_: without_measurement(drop_file(all_)), {"lost"}, id="and no demand shows it"),
        pytest.param(count_twice, {"wrong"}, id="a reading counts twice"),
        pytest.param(lambda all_: with_demand_of_quay(all_, 1), {"wrong"}, id="a demand is wrong by one Wh"),
        pytest.param(lambda all_: with_rows_of_quay(all_, lambda rows: rows[1:]), {"gap"}, id="a missing record"),
        pytest.param(
            lambda all_: with_rows_of_quay(all_, lambda rows: rows[:1] + rows), {"doubled"}, id="a second one"
        ),
        pytest.param(without_demand_of_quay, {"wrong"}, id="a measured interval without a demand"),
        pytest.param(lambda all_: without_measurement(leave_open(all_), "withheld"), set(), id="in an open landing"),
    ],
)
def test_each_damage_is_found_and_nothing_else(evidence, damage, found):
    assert judge(evidence).violations == []
    assert judge(evidence).counts["measured"] == 6
    assert rules(damage(evidence)) == found


def test_the_product_computes_the_same_demand(tmp_path):
    """The oracle's arithmetic and the product's: both clip, both impute."""
    zones = {meter: ZONES[meter % 2] for meter in range(100)}
    ingestor = new_ingestor(tmp_path, now_s=(LAST + 1) * STEP_S + 30, zones=zones)
    for source in SOURCES:
        path = shard_folder(ingestor.landing.root, LAST) / f"{source.start}.parquet"
        write_readings(path, LAST, source, TRUTH.stored_wh(LAST)[source])
    found = demand_of(ingestor, tmp_path, LAST * STEP_S)
    assert found == {zone: demand[:2] for (_, zone), demand in whole_demand(LAST).items()}


def bare_reading(interval, arrivals):
    """What the product makes of a bare register's points that arrive at these times: (sent, arrives) as shares."""
    meter, state, energies = BARE[0], None, []
    for sent, arrives in [*arrivals, (1.1, 1.1)]:
        shown = int(bare_message(TRUTH, meter, (interval + sent) * STEP_S)[1])
        point = RegisterReading(int((interval + arrives) * STEP_S), shown)
        state, found = (state or RegisterState(point, point)).advance(point, interval_s=STEP_S)
        energies += found
    return dict(energies).get(interval * STEP_S)


def move_of(*energies):
    """The first interval whose energies of the first bare register, from it on, are these."""
    found = (
        at
        for at in range(TRUTH.first + 1, TRUTH.first + 200)
        if all(int(TRUTH.energy_wh(at + n)[BARE[0]]) == energy for n, energy in enumerate(energies))
    )
    return next(found)


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1])
def test_a_bare_register_that_arrives_at_once_is_right_after_the_bound(delay):
    for energy in (0, BARE_WH):
        reading = bare_reading(move_of(energy), [(share, min(0.999, share + delay)) for share in BARE_TIMES])
        assert min(reading, BOUND_WH) == min(energy, BOUND_WH)


def test_a_bare_register_that_waited_is_wrong_and_found(evidence):
    """A point that waited since the interval before carries its energy into one in which nothing was drawn."""
    interval = move_of(BARE_WH, 0) + 1
    reading = bare_reading(interval, [(-0.8, 0.05), (0.7, 0.7), (0.9, 0.9)])
    assert min(reading, BOUND_WH) > 0 == int(TRUTH.energy_wh(interval)[BARE[0]])
    path = shard_folder(evidence.landing, LAST) / f"{BARE.start}.parquet"
    energy = TRUTH.stored_wh(LAST)[BARE]
    energy[0] = reading if not energy[0] else 0
    write_readings(path, LAST, BARE, energy)
    close_interval(evidence.landing, LAST)
    assert rules(evidence) == {"wrong"}


def test_readings_that_are_called_late_before_their_deadline_are_found():
    assert is_late_too_early(1, answered_s=90.0, deadline_s=100.0)
    assert not is_late_too_early(0, answered_s=90.0, deadline_s=100.0)
    assert not is_late_too_early(1, answered_s=95.0, deadline_s=100.0)  # clocks may differ by so much


def test_a_price_of_another_time_is_found():
    assert is_price_of_another_time(1800, 2700, asked_s=900, answered_s=901, slack_s=100)
    assert is_price_of_another_time(1800, 2700, asked_s=2900, answered_s=2901, slack_s=100)
    assert not is_price_of_another_time(1800, 2700, asked_s=1799, answered_s=2701, slack_s=0)
    assert not is_price_of_another_time(1800, 2700, asked_s=2750, answered_s=2751, slack_s=100)


@pytest.mark.parametrize(("hours_ago", "found"), [(0, 0), (3, 1)])
def test_the_watch_of_the_public_api_finds_a_price_of_another_time(hours_ago, found):
    begin = datetime.now(UTC) - timedelta(hours=hours_ago, minutes=5)
    price = {"start": begin.isoformat(), "end": (begin + timedelta(minutes=15)).isoformat()}
    watch = PublicWatch(SimpleNamespace(clock=ServiceClock()), [])
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, json=price))) as web:
        watch._check_now("quay", web, "http://public/zones/quay/now")
    watch.stop()
    assert len(watch.changed) == found


@pytest.fixture
def static(tmp_path):
    """A folder with two tiles of a shard, and those tiles."""
    folder, bodies = tmp_path / "static", [b"first", b"second"]
    (folder / "tiles" / "s").mkdir(parents=True)
    for seq, body in enumerate(bodies):
        (folder / "tiles" / "s" / str(seq)).write_bytes(body)
    (folder / "shards").write_text(json.dumps([{"shard": "s", "seq": 1}]))
    return folder, {"s": bodies}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, 0),
        ({"tiles/s/0": None}, 1),
        ({"shards": None}, 1),
        ({"tiles/s/0": b"other"}, 1),
        ({"tiles/s/0": b"other", "shards": json.dumps([{"shard": "s", "seq": 2}]).encode()}, 2),
    ],
)
def test_a_static_file_that_is_lost_or_wrong_and_a_list_that_lies_are_found(static, changed, found):
    for name, body in changed.items():
        (static[0] / name).write_bytes(body) if body else (static[0] / name).unlink()
    assert len(judge_static(*static)) == found
