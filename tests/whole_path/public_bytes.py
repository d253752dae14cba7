"""Everything that the public gets of a world: tiles, zone tables, plans, lines, pages, answers of the API."""

from __future__ import annotations

import asyncio
from functools import cache
from urllib.parse import urlsplit

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.tile import TileKind
from murmurate.public_log.zone_line import make_zone_line
from murmurate.service.clock import ServiceClock
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.log_reader.price_columns import PriceColumns
from murmurate.service.log_reader.zone_view import ShardView
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.client_formats import CLIENT_FORMATS
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.pages.routes import page_routes
from murmurate.service.public_api.price_formats import shard_prices_path
from murmurate.service.settings import ServiceSettings
from tests.whole_path.random_worlds import World
from tests.whole_path.simulated_history import KEY
from tests.whole_path.simulated_world import WorldRun

NO_DATABASE = "postgresql://nobody@127.0.0.1:1/none"
OPENADR = "/openadr3/3.1.0"
OF_SERVICE = ("/", "/?lang=de", "/zones", "/shards", f"{OPENADR}/programs", f"{OPENADR}/events")
_WANTED = {"/cheapest": "hours=1", "/midas/api/ValueData": "SignalType=0"}
OF_ZONE = ("", "?lang=de", "/plan", "/plan?lang=de", "/now", "/prices", "/evcc?forecast=true", "/days", "/history.csv")
OF_ZONE += tuple(f"{path}?{_WANTED.get(path, 'forecast=true')}" for path in CLIENT_FORMATS)


def public_bytes(world: World, run: WorldRun) -> dict[str, bytes]:
    """Return all that is public, by a name or an address."""
    found = {f"plan {at}": text.encode() for at, text in enumerate(sorted({each for own in run.plans for each in own}))}
    for number, (tile, table) in enumerate(run.tiles):
        found[f"tile {number}"], found[f"zone table {number}"] = tile.to_bytes(), table.text.encode()
        for zone in table.zones:
            found[f"line {number} of {zone}"] = make_zone_line(tile, table, zone).to_json().encode()
    if not world.has_readers:
        return found
    state = _live_state(world, run)
    try:
        app = public_app(state, page_routes(state))
        paths = [*OF_SERVICE, *(f"/zones/{zone.name}{path}" for zone in world.zones[:1] for path in OF_ZONE)]
        for shard in state.views.shards.values():
            decided = range(shard.first + shard.lead_intervals, shard.last + shard.lead_intervals + 1)
            paths += [f"/{shard_prices_path(shard, interval)}" for interval in decided]
        for path in paths:
            found[path] = _get(app, path)
    finally:
        state.lookup_threads.stop()
        state.bulk_threads.stop()
        state.close()
    return found


def _live_state(world: World, run: WorldRun) -> LiveState:
    """Return what the public server holds when it has read all tiles."""
    table = run.head.table
    columns = PriceColumns(table, world.intervals)
    for tile, its_table in run.tiles:
        if tile.header.kind is TileKind.RELEASE:
            interval = tile.header.interval
            columns.write(interval, tile.rows, its_table, (interval + 1) * world.interval_s + 60.0, None)
    now_s = (run.head.interval + world.lead) * world.interval_s + 1.0
    clock = ServiceClock(simulated_s=now_s, wall_s=0.0, speed=1e-12)
    state = LiveState(NO_DATABASE, ServiceSettings(url="https://x.example", timezone=world.time_zone, clock=clock))
    for own in run.plans:
        for text in own:
            terms = ReleaseTerms.from_json(text)
            state.plan_terms.put(terms.plan_digest, terms)
    shard = ShardView(run.head, KEY.public_key, columns, world.first, run.head.interval)
    state.show_shard(ChangedShard(shard, range(0)))
    return state


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _get(app, address: str) -> bytes:
    """Return status and body of an answer."""
    parts = urlsplit(address)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": parts.path, "raw_path": parts.path.encode(), "query_string": parts.query.encode(), "root_path": "",
        "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    answer: list[bytes] = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message) -> None:
        if message["type"] == "http.response.start":
            answer.append(b"%d\n" % message["status"])
        else:
            answer.append(message.get("body", b""))

    _event_loop().run_until_complete(app(scope, receive, send))
    return b"".join(answer)
