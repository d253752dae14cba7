"""How the public API grows with the number of zones: look-ups, lists, notices, memory and the take-over of new tiles.

    python -m benchmarks.read_side                       about half a minute, without a database
    python -m benchmarks.read_side --zones 100 100000    other sizes

Views are built in memory, as the follower builds them from tiles. The cost is CPU time of one request without its cache
[us], the best of some rounds. OpenADR's look-ups must cost at most 3 times as much at 10,000 zones as at 100.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from starlette.types import Message

from murmurate.planning.hidden_households import HiddenHouseholds
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log.make_tile import open_shard, release_interval
from murmurate.public_log.signing import Ed25519Signer, verify_signature
from murmurate.public_log.tile import RowKind, row_dtype
from murmurate.public_log.tile_chain import check_follows, check_next
from murmurate.public_log.zone_table import MAX_ZONES, ZoneRow, ZoneTable
from murmurate.service.clock import ServiceClock
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.log_reader.price_columns import PriceColumns
from murmurate.service.log_reader.zone_view import ShardView
from murmurate.service.operator_api.status import service_status
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.formats.new_price import new_price_json
from murmurate.service.public_api.formats.openadr_event import changed_events, notification_json
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.settings import ServiceSettings

INTERVAL_S, LEAD, DAYS = 900, 2, 3
PRICES = DAYS * 96
FIRST = 1_982_976  # begins a day of UTC
NOW_S = (FIRST + PRICES) * INTERVAL_S + 120.0
MAX_RATIO = 3.0
PASSES = 4
PLAN = "a" * 64
SIGNER = Ed25519Signer(bytes(32))
ADR = "/openadr3/3.1.0"
PATHS = {
    "now": "/zones/{zone}/now",
    "evcc": "/zones/{zone}/evcc",
    "day": "/zones/{zone}/days/{day}.json",
    "zones": "/zones",
    "shards": "/shards",
    "programs/{id}": f"{ADR}/programs/{{zone}}-PT15M",
    "programs?programName": f"{ADR}/programs?programName={{zone}}-PT15M",
    "programs": f"{ADR}/programs?skip={{skip}}",
    "events/{id}": f"{ADR}/events/{{zone}}-PT15M-{{day}}",
    "events?programID": f"{ADR}/events?programID={{zone}}-PT15M",
    "events": f"{ADR}/events",
}
LOOK_UPS = ("programs/{id}", "programs?programName", "events/{id}", "events?programID")


def make_terms() -> ReleaseTerms:
    curve = RateCurve.affine(alpha="0.0002", beta="0.08", tick="0.00001", floor="0", cap="2")
    cost = np.full(96, 1000)
    return ReleaseTerms(
        plan_digest=PLAN,
        zone="zone",
        currency="EUR",
        curve=curve,
        distribution=NoiseDistribution.LAPLACE,
        scale_wh=np.full(96, 5000.0),
        core_wh=0 * cost,
        epsilon_micro=cost,
        rho_micro=0 * cost,
        forecast_ticks=curve.price_ticks(np.full(96, 100_000)),
        hidden_households=HiddenHouseholds(by_kind={}, unknown_kind_wh=1000, public_wh=0),
    )


def make_shard(number: int, count: int) -> ShardView:
    """A shard with three days of prices. Its head is a real, signed tile; the prices before it are made up."""
    zones = [f"zone-{number * MAX_ZONES + n:06}" for n in range(count)]
    table = ZoneTable.from_rows(ZoneRow(zone, PLAN, "EUR", "1/100000", FIRST) for zone in zones)
    name, last = f"shard-{number:04}", FIRST + PRICES - 1
    opening = open_shard(name, table, interval=FIRST - 1, interval_s=INTERVAL_S, lead=LEAD, signer=SIGNER)
    head = check_follows(None, opening, table)
    header = replace(opening.header, interval=last - 1)
    head = replace(head, tile=replace(opening, header=header))
    columns = PriceColumns(table, PRICES)
    rng = np.random.default_rng(number)
    rows = make_rows(count, rng)
    for interval in range(FIRST, last + 1):
        rows["price_ticks"] = rng.integers(5000, 20_000, count)
        columns.write(interval, rows, table, float((interval + 1) * INTERVAL_S + 60), None)
    head = check_follows(head, release_interval(head, rows, SIGNER), table)
    return ShardView(head, SIGNER.public_key, columns, FIRST, last)


def make_rows(count: int, rng: np.random.Generator) -> Any:
    rows = np.zeros(count, row_dtype())
    rows["kind"], rows["noise"], rows["scale_wh"], rows["epsilon_micro"] = RowKind.MEASURED, 1, 5000.0, 1000
    rows["price_ticks"] = rng.integers(5000, 20_000, count)
    return rows


def make_state(zones: int) -> tuple[LiveState, list[ShardView], float]:
    """The state of a server with so many zones, its shards, and the time to take them over [s]."""
    clock = ServiceClock(simulated_s=NOW_S, wall_s=0.0, speed=1e-12)
    state = LiveState("postgresql://127.0.0.1:1/none", ServiceSettings(clock=clock))
    state.plan_terms.put(PLAN, make_terms())
    sizes = [min(MAX_ZONES, zones - at) for at in range(0, zones, MAX_ZONES)]
    shards = [make_shard(number, size) for number, size in enumerate(sizes)]
    begin = time.process_time()
    for shard in shards:
        state.show_shard(ChangedShard(shard, range(0)))
    return state, shards, time.process_time() - begin


async def request(app: Any, address: str) -> bytes:
    """The body of an answer."""
    path, _, query = address.partition("?")
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": []}
    scope |= {"query_string": query.encode(), "root_path": "", "scheme": "http", "http_version": "1.1"}
    await app(scope, receive, send)
    assert sent[0]["status"] == 200, (address, sent[0])
    return b"".join(message.get("body", b"") for message in sent[1:])


async def measure_paths(state: LiveState, zones: int, rounds: int) -> dict[str, float]:
    """CPU time of one request to each path [us]: the best of some rounds, each without a cache."""
    app = public_app(state)
    found: dict[str, float] = {}
    for name, path in PATHS.items():
        for number in range(rounds):
            values = {"zone": f"zone-{zones * (number + 1) // (rounds + 1):06}", "day": "2026-07-23", "skip": zones}
            state.volatile_cache.clear()
            state.immutable_cache.clear()
            begin = time.process_time()
            await request(app, path.format(**values))
            found[name] = min(found.get(name, 1e9), 1e6 * (time.process_time() - begin))
    return found


def best_us(act: Callable[[], object], rounds: int = 5) -> float:
    """CPU time of an act [us]."""
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        act()
        found.append(1e6 * (time.process_time() - begin))
    return min(found)


def measure_parts(state: LiveState, shards: list[ShardView]) -> dict[str, float]:
    """What one tile costs, for each of its zones [us]; and the operator's status [us]."""
    shard = shards[0]
    zones = len(shard.table)
    tile = release_interval(shard.head, make_rows(zones, np.random.default_rng(1)), SIGNER)
    views = [state.views[zone] for zone in shard.table.zones[:50]]
    new = range(FIRST + PRICES - 1 + LEAD, FIRST + PRICES + LEAD)
    prices = [view.prices[new[0]] for view in views]

    def follow() -> None:
        check_next(shard.head, tile, shard.table, verify_signature)
        shard.columns.write(FIRST + PRICES, tile.rows, shard.table, 0.0, None)

    def tell_events() -> None:
        for view in views:
            for operation, event in changed_events(view, new):
                notification_json(operation, event)

    def tell_prices() -> None:
        for view, price in zip(views, prices, strict=True):
            new_price_json(view, price)

    def show_status() -> None:
        settings = state.settings
        more: dict[str, Any] = {"reading_counts": {}, "heartbeat": None, "clients": []}
        service_status(shards, {}, display_of=settings.display_of, now_s=NOW_S, grace_s=60, **more)

    return {
        "check and store a row": best_us(follow) / zones,
        "show a shard": best_us(lambda: state.show_shard(ChangedShard(shard, range(0)))) / zones,
        "MQTT, price alone": best_us(tell_prices) / len(views),
        "MQTT, OpenADR events": best_us(tell_events) / len(views),
        "operator's status": best_us(show_status),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, nargs=2, default=(100, 10_000), help="a small and a large number")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    results: list[dict[str, float]] = [{}, {}]
    parts, states = [], []
    for zones in options.zones:
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        state, shards, take_over_s = make_state(zones)
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        states.append(state)
        parts.append(measure_parts(state, shards))
        print(f"{zones:,} zones: taken over in {take_over_s:.2f} CPU s, {grown_kb / zones:.1f} kB a zone")
    for _ in range(PASSES):  # in turn: the machine may be slower for a while
        for found, state, zones in zip(results, states, options.zones, strict=True):
            for name, took_us in asyncio.run(measure_paths(state, zones, options.rounds)).items():
                found[name] = min(found.get(name, took_us), took_us)
    small, large = options.zones
    print(f"\n{'[us] of CPU':<24}{small:>10,}{large:>12,}   ratio")
    for name in PATHS:
        ratio = results[1][name] / results[0][name]
        verdict = "" if name not in LOOK_UPS else "  ok" if ratio <= MAX_RATIO else f"  TOO MUCH, at most {MAX_RATIO}"
        print(f"{name:<24}{results[0][name]:>10.0f}{results[1][name]:>12.0f}{ratio:>8.2f}{verdict}")
    print()
    for name in parts[0]:
        print(f"{name:<24}{parts[0][name]:>10.2f}{parts[1][name]:>12.2f}")
    if any(results[1][name] > MAX_RATIO * results[0][name] for name in LOOK_UPS):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
