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
    EXPORT_WH,
    FILES,
    HTTP,
    REGISTERS,
    SIGNED,
    STEP_S,
    ZONES,
    TrueEnergy,
    bare_messages,
    meter_table,
)
from tests.chaos.oracle import (
    Evidence,
    PublishedSum,
    is_late_too_early,
    is_price_of_another_time,
    judge,
    judge_static,
)
from tests.chaos.public_inputs import MAX_AGE_INTERVALS, possible_values
from tests.chaos.public_watch import PublicWatch
from tests.support.ingestors import demand_of, new_ingestor
from tests.support.request_bodies import readings_parquet

TRUTH = TrueEnergy(seed=1, first=2_000_000)
LAST = TRUTH.first + 2
METER = next(meter for meter in BARE if EXPORT_WH[meter])
SHARES = (250_000, -500_000)  # of silent meters in each zone
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


def whole_demand(interval: int) -> dict[tuple[int, str], tuple[int, int, int, int, int]]:
    """The demand of each zone if every meter has reported that is not silent; the fence has not."""
    counted, reporting = TRUTH.counted_wh(interval), set(reporting_meters(interval))
    found = {}
    for number, zone in enumerate(ZONES):
        here = reporting & set(range(number, 100, 2))
        silent = sorted(set(range(number, 100, 2)) - here)
        bounds = BOUND_WH * len(silent), int(EXPORT_WH[silent].sum())
        found[interval, zone] = (int(counted[sorted(here)].sum()), len(here), len(silent), *bounds)
    return found


def reporting_meters(interval: int) -> list[int]:
    return TRUTH.reporting(interval, [meter for source in SOURCES for meter in source])


@pytest.fixture
def evidence(tmp_path) -> Evidence:
    demand, published = {}, {}
    for interval in range(TRUTH.first, LAST + 1):
        for source in SOURCES:
            path = shard_folder(tmp_path, interval) / f"{source.start}.parquet"
            meters = TRUTH.reporting(interval, source)
            write_readings(path, interval, meters, TRUTH.energy_wh(interval)[meters])
        close_interval(tmp_path, interval)
        demand |= whole_demand(interval)
        for zone, share in zip(ZONES, SHARES, strict=True):
            energy_wh, _, _, bound_wh, export_bound_wh = demand[interval, zone]
            silent_wh = bound_wh // 4 if share > 0 else -(export_bound_wh // 2)
            published[interval, zone] = PublishedSum(energy_wh + silent_wh, share, 50.0)
    released = {zone: [(interval, "measured") for interval in range(TRUTH.first, LAST + 1)] for zone in ZONES}
    return Evidence(
        landing=tmp_path,
        truth=TRUTH,
        last=LAST,
        acknowledged=lambda interval: frozenset(reporting_meters(interval)),
        demand=demand,
        released=released,
        published=published,
    )


def rules(evidence: Evidence) -> set[str]:
    return {text.partition(":")[0] for text in judge(evidence).violations}


def drop_file(evidence):
    (shard_folder(evidence.landing, LAST) / f"{HTTP.start}.parquet").unlink()
    close_interval(evidence.landing, LAST)
    return evidence


def count_twice(evidence):
    path = shard_folder(evidence.landing, LAST) / "doubled.parquet"
    meter = TRUTH.reporting(LAST, HTTP)[0]
    write_readings(path, LAST, [meter], [2 * abs(int(TRUTH.energy_wh(LAST)[meter])) + 1])
    close_interval(evidence.landing, LAST)
    return evidence


def without_signs(evidence):
    path, meters = shard_folder(evidence.landing, LAST) / f"{FILES.start}.parquet", TRUTH.reporting(LAST, FILES)
    write_readings(path, LAST, meters, TRUTH.energy_wh(LAST)[meters].clip(0))
    close_interval(evidence.landing, LAST)
    return evidence


def send_for_silent(evidence):
    meter = next(meter for meter in HTTP if TRUTH.is_silent(LAST)[meter])
    write_readings(shard_folder(evidence.landing, LAST) / "more.parquet", LAST, [meter], TRUTH.energy_wh(LAST)[[meter]])
    close_interval(evidence.landing, LAST)
    return evidence


def publish_more(evidence, zone, energy_wh, intervals=(LAST,)):
    """Sums of a zone are published that are larger by this."""
    changed = {
        key: one._replace(noisy_wh=one.noisy_wh + energy_wh)
        for key, one in evidence.published.items()
        if key[1] == zone and key[0] in intervals
    }
    return replace(evidence, published=evidence.published | changed)


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
        pytest.param(without_signs, {"wrong"}, id="what was fed in counts as 0"),
        pytest.param(send_for_silent, {"wrong"}, id="a silent meter has a reading"),
        pytest.param(lambda all_: publish_more(all_, "quay", -3001), {"wrong"}, id="a sum is published without a part"),
        pytest.param(
            lambda all_: publish_more(all_, "harbour", -1100, range(TRUTH.first, LAST + 1)),
            {"wrong"},
            id="silent meters count nothing",
        ),
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
    """The oracle's arithmetic and the product's: both clip on both sides."""
    ingestor = new_ingestor(tmp_path, now_s=(LAST + 1) * STEP_S + 30, meter_table=meter_table())
    for source in SOURCES:
        path = shard_folder(ingestor.landing.root, LAST) / f"{source.start}.parquet"
        meters = TRUTH.reporting(LAST, source)
        write_readings(path, LAST, meters, TRUTH.energy_wh(LAST)[meters])
    found = demand_of(ingestor, tmp_path, LAST * STEP_S)
    assert found == {zone: demand[:2] for (_, zone), demand in whole_demand(LAST).items()}


def bare_reading(interval, arrivals):
    """What the product makes of bare registers' points that arrive at these times: (sent, arrives) as shares."""
    halves = []
    for is_export in (0, 1):
        state, energies = None, []
        for sent, arrives in [*arrivals, (1.1, 1.1)]:
            shown = int(bare_messages(TRUTH, METER, (interval + sent) * STEP_S)[is_export][1])
            point = RegisterReading(int((interval + arrives) * STEP_S), shown)
            state, found = (state or RegisterState(point, point)).advance(point, interval_s=STEP_S)
            energies += found
        halves.append(dict(energies)[interval * STEP_S])
    return halves[0] - halves[1]


def clip(energy_wh):
    return max(-int(EXPORT_WH[METER]), min(energy_wh, BOUND_WH))


def move_of(*energies):
    """The first interval whose energies of the bare meter, from it on, are these, and in which it is not silent."""
    found = (
        at
        for at in range(TRUTH.first + 1, TRUTH.first + 200)
        if all(int(TRUTH.energy_wh(at + n)[METER]) == energy for n, energy in enumerate(energies))
        and not any(TRUTH.is_silent(at + n)[METER] for n in (-1, 0, 1, 2))
    )
    return next(found)


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1])
def test_a_bare_register_that_arrives_at_once_is_right_after_the_bound(delay):
    for energy in (0, BARE_WH, -BARE_WH):
        reading = bare_reading(move_of(energy), [(share, min(0.999, share + delay)) for share in BARE_TIMES])
        assert clip(reading) == clip(energy)


def test_a_bare_register_that_waited_is_wrong_and_found(evidence):
    """A point that waited since the interval before carries its energy into one in which nothing was drawn."""
    interval = move_of(BARE_WH, 0) + 1
    reading = bare_reading(interval, [(-0.8, 0.05), (0.7, 0.7), (0.9, 0.9)])
    assert clip(reading) > 0 == int(TRUTH.energy_wh(interval)[METER])
    path = shard_folder(evidence.landing, LAST) / f"{BARE.start}.parquet"
    meters = TRUTH.reporting(LAST, BARE)
    energy = TRUTH.energy_wh(LAST)[meters]
    energy[0] = reading if energy[0] <= 0 else 0
    write_readings(path, LAST, meters, energy)
    close_interval(evidence.landing, LAST)
    assert rules(evidence) == {"wrong"}


def test_a_tile_states_what_was_acknowledged_before_and_nothing_older():
    posted = {90: (1, 5.0), 95: (2, 5.0), 97: (3, 20.0)}
    assert possible_values(posted, 97, tile_s=10.0) == {3, 2}
    assert possible_values(posted, 97, tile_s=30.0) == {3}
    assert possible_values(posted, 96, tile_s=10.0) == {2}
    assert possible_values(posted, 90 + MAX_AGE_INTERVALS, tile_s=0.0) == {3, 2, 1, None}
    assert possible_values({90: (1, 5.0)}, 91 + MAX_AGE_INTERVALS, tile_s=10.0) == {None}


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


@pytest.mark.parametrize(("ticks", "found"), [(8120, 0), (8121, 1)])
def test_the_watch_of_the_public_api_finds_a_price_of_a_shard_that_is_not_the_one_of_the_history(ticks, found):
    row = {"zone": "quay", "price_ticks": ticks, "kind": "measured"}
    answers = {
        "/shards": [{"shard": "s", "interval": 10, "lead": 2, "interval_s": 900}],
        "/prices/s/19700101T030000Z.json": {"start": "1970-01-01T03:00:00Z", "prices": [row]},
    }
    watch = PublicWatch(SimpleNamespace(clock=ServiceClock()), [])
    watch._compare_price("quay", "1970-01-01T03:00:00Z", "8120", "measured")
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answers[request.url.path]))
    with httpx.Client(transport=transport) as web:
        watch._compare_shards(web, SimpleNamespace(url=lambda path: f"http://public{path}"))
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
