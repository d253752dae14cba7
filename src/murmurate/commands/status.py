"""`murmurate status`: how a service stands, from its databases, so that it works while the service is down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from murmurate.errors import MurmurateError
from murmurate.operations.console import format_cents, format_utc, price_unit, print_json, stdout
from murmurate.operations.options import AsJson, Log, State, complete_zone, optional_imports
from murmurate.units import SECONDS_PER_DAY

with optional_imports():
    from murmurate.service.auth import ApiClient, AuthStore
    from murmurate.service.landing.layout import Landing
    from murmurate.service.log_reader.follower import Follower
    from murmurate.service.log_reader.tile_source import open_tile_source
    from murmurate.service.log_reader.zone_view import PlanTerms, PriceKind, ShardView
    from murmurate.service.operator_api.attention import AttentionItem, find_attention
    from murmurate.service.operator_api.status import (
        MAX_BACKFILL_S,
        Heartbeat,
        ServiceStatus,
        ZoneStatus,
        service_status,
    )
    from murmurate.service.settings import ServiceSettings, load_settings
    from murmurate.service.storage.databases import Database, Databases, ObjectLog, mask_database_errors
    from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT, read_heartbeat_ages
    from murmurate.service.storage.session import open_source
    from murmurate.service.web.text import format_duration
    from murmurate.service.worker.publisher_context import open_log

MAX_STATUS_ROWS = 20
PORT_TIMEOUT_S = 5.0


def show_status(
    settings_file: Annotated[
        Path | None,
        typer.Argument(metavar="[SETTINGS]", help="Settings of the service, as for serve (TOML).", dir_okay=False),
    ] = None,
    state: State = "",
    log: Log = "",
    zone: Annotated[str | None, typer.Option(help="Show this zone only.", autocompletion=complete_zone)] = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Print how a service stands. Returns the exit status: 1 if anything needs a person."""
    databases = Databases.from_dsns(state=state, log=log)
    settings = ServiceSettings() if settings_file is None else load_settings(settings_file)
    found = StatusReader(settings, databases)
    ports: dict[str, str] = {}
    if settings_file is not None:
        ports = {
            "private": _ask_readiness(*settings.private_address),
            "public": _ask_readiness(*settings.public_address),
        }
        found.read_landing()
    status = service_status(
        found.shards,
        found.broken_shards,
        display_of=settings.display_of,
        now_s=settings.clock.now(),
        grace_s=settings.grace_s,
        reading_counts={},
        heartbeat=found.heartbeats.get(WORKER_HEARTBEAT),
        worker_beat=found.heartbeats.get(WORKER_BEAT),
        clients=found.clients,
        only_zone=zone,
    )
    if zone is not None and not status.zones and not found.unread:
        raise MurmurateError(
            "--zone", zone, "is not open; murmurate status lists the zones, murmurate zone open opens one"
        )
    hidden = {"log": {"zones", "last price"}, "state": {"worker", "feed"}}  # follow from a store that was not read
    unknown = {about for item in found.unread for about in hidden.get(item.about, ())}
    listed = find_attention(status, settings, needs_worker=settings_file is not None)
    attention = [*found.unread, *(item for item in listed if item.about not in unknown)]
    remedy = "start it with murmurate serve, or read its last messages"
    attention += [AttentionItem(name, words, remedy) for name, words in ports.items() if words != "ready"]
    named = [{"about": item.about, "problem": item.problem, "remedy": item.remedy} for item in attention]
    document = status_document(status, settings, ports, found.landing, named)
    if found.shards:
        _add_errors(document, {each.zone: each.square_units for each in status.zones}, databases.log)
    if as_json:
        print_json(document)
    else:
        print_status(document, settings)
    return 1 if attention else 0


class StatusReader:
    """What could be read of a service, and what could not."""

    def __init__(self, settings: ServiceSettings, databases: Databases) -> None:
        self._settings = settings
        self.shards: list[ShardView] = []
        self.broken_shards: dict[str, str] = {}
        self.heartbeats: dict[str, Heartbeat] = {}
        self.clients: list[ApiClient] = []
        self.landing: dict[str, float | None] | None = None  # intervals with readings, and the age of the oldest [s]
        self.unread: list[AttentionItem] = []
        for database in (databases.log, databases.state):
            try:
                database.check_reachable()
            except MurmurateError as error:
                self.unread.append(AttentionItem(database.store, f"{error.field} is {error.value}", error.allowed))
        unread = {item.about for item in self.unread}
        with mask_database_errors():
            if "log" not in unread:
                with closing(Follower(open_tile_source(databases.log), recent_s=SECONDS_PER_DAY)) as follower:
                    for _ in (*follower.refresh(), *follower.backfill(MAX_BACKFILL_S)):
                        pass
                    self.shards, self.broken_shards = follower.views(), dict(follower.broken)
            if "state" not in unread:
                with closing(open_source(databases.state.dsn)) as state:
                    self.heartbeats = dict(read_heartbeat_ages(state))
                    self.clients = AuthStore(state).list_clients()

    def read_landing(self) -> None:
        """Note how many intervals have readings: names of folders, never a reading."""
        try:
            starts_s, _ = Landing.open(self._settings.landing).list_intervals()
        except (MurmurateError, OSError) as error:
            words = str(error) if isinstance(error, MurmurateError) else f"{self._settings.landing}: {error.strerror}"
            self.unread.append(AttentionItem("landing", words, "murmurate init creates one; see landing in the file"))
            return
        oldest_s = max(0.0, self._settings.clock.now() - starts_s[0]) if starts_s else None
        self.landing = {"intervals": len(starts_s), "oldest_s": _rounded(oldest_s)}


def _ask_readiness(host: str, port: int) -> str:
    """What a process says of itself: `ready`, or what is wrong."""
    connection = HTTPConnection("127.0.0.1" if host in {"0.0.0.0", "::", ""} else host, port, timeout=PORT_TIMEOUT_S)  # noqa: S104
    with closing(connection):
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
        except (OSError, HTTPException):
            return f"{host}:{port} does not answer"
        return "ready" if response.status == 200 else f"{host}:{port} is not ready (HTTP {response.status})"


def status_document(
    status: ServiceStatus,
    settings: ServiceSettings,
    ports: Mapping[str, str],
    landing: Mapping[str, float | None] | None,
    attention: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return everything that is shown. Keys are those of docs/reference/json-output.md."""

    def urgency(zone: ZoneStatus) -> tuple[bool, int, bool]:
        """Zones that need a person come first; among equals the order stays."""
        as_planned = zone.last_price is None or zone.last_price.kind in {PriceKind.MEASURED, PriceKind.PUBLIC}
        return not zone.is_broken, -zone.intervals_behind, as_planned

    release, beat = status.heartbeat or (None, {}), status.worker_beat or (None, {})
    shares = release[1].get("share_reported")
    return {
        "now": format_utc(status.now_s),
        "ok": not attention,
        "attention": attention,
        "zones": {
            "open": status.zone_count,
            "up_to_date": status.up_to_date_count,
            "broken": status.broken_zone_count,
            "closed": status.closed_count,
            "last_price": {kind.value: status.last_kinds.get(kind, 0) for kind in PriceKind},
        },
        "feed": _feed(status, settings, release[1]),
        "worker": {
            "alive_s": _rounded(beat[0]),
            "released_s": _rounded(release[0]),
            "damaged_files": beat[1].get("damaged_files"),
            "clock_difference_s": beat[1].get("clock_difference_s"),
        },
        "processes": dict(ports),
        "landing": landing,
        "next_deadline": None if status.next_deadline_s is None else format_utc(status.next_deadline_s),
        "zone_list": [
            _zone(zone, shares.get(zone.zone) if isinstance(shares, Mapping) else None)
            for zone in sorted(status.zones, key=urgency)
        ],
    }


def _feed(status: ServiceStatus, settings: ServiceSettings, report: Mapping[str, Any]) -> dict[str, Any]:
    counts, step_s = report.get("feed"), report.get("interval_s")
    broker = settings.mqtt if settings.mqtt is not None and settings.mqtt.readings else None
    found: dict[str, Any] = {"interval": None, "reported": None, "expected": None, "quorum": settings.quorum}
    if isinstance(counts, Mapping) and counts and isinstance(step_s, int):
        found |= {"interval": format_utc(counts["interval"] * step_s), "interval_s": step_s}
        found |= {"reported": counts["reported"], "expected": counts["expected"]}
    clients = {client.id: sorted(client.zones) for client in status.clients if client.zones}
    return found | {"clients": clients, "mqtt": None if broker is None else f"{broker.host}:{broker.port}"}


def _zone(zone: ZoneStatus, share_reported: float | None) -> dict[str, Any]:
    price = zone.last_price
    return {
        "zone": zone.zone,
        "state": "log broken" if zone.is_broken else "behind" if zone.intervals_behind else "up to date",
        "intervals_behind": zone.intervals_behind,
        "decided_until": format_utc(zone.decided_end_s),
        "price": None if price is None else price.value,
        "currency": zone.currency,
        "kind": None if price is None else price.kind.value,
        "published_s": None if price is None else _rounded(max(0.0, time.time() - price.logged_s)),
        "share_reported": share_reported,
        "last_24_hours": {kind.value: zone.releases_by_kind.get(kind, 0) for kind in PriceKind},
        "epsilon": zone.epsilon_micro / 1e6,
        "rho": zone.rho_micro / 1e6,
        "plan": zone.plan_digest,
        "key": zone.key,
        "error": None,
    }


def _add_errors(document: Mapping[str, Any], square_units: Mapping[str, int | None], log: Database | ObjectLog) -> None:
    """Add how far the demand that is priced is off, to the zones that a person sees: planned, and as the log shows."""
    shown = [zone for zone in document["zone_list"][:MAX_STATUS_ROWS] if square_units[zone["zone"]] is not None]
    with mask_database_errors(), closing(open_log(log)) as store:
        terms = PlanTerms(store.documents)
        terms.load([zone["plan"] for zone in shown])
        for zone in shown:
            prediction = terms.get(zone["plan"]).prediction
            if prediction is not None and prediction.read_meters:
                low, high = prediction.measured_error(square_units[zone["zone"]] or 0)
                zone["error"] = {"planned": prediction.predicted_error, "low": round(low, 4), "high": round(high, 4)}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def print_status(document: Mapping[str, Any], settings: ServiceSettings) -> None:
    """The page: a few lines on the service, its zones, and last what needs a person. All times are of one clock."""
    clock = settings.display_of("").timezone

    def local(text: str, layout: str = "%a %H:%M") -> str:
        return datetime.fromisoformat(text).astimezone(clock).strftime(layout)

    now = local(document["now"], "%a %d %b %Y, %H:%M:%S")
    stdout.print(
        f"{now}, {clock.key}, as all times here. Read from the databases: the service need not run.", style="dim"
    )
    for name, words in _summary_lines(document, local):
        stdout.print(f"{name:<10}{words}")
    zones = document["zone_list"]
    if zones:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for name in ("zone", "state", "decided until", "last price", "kind", "published", "error, log of 4 weeks"):
            table.add_column(name, justify="right" if name in {"last price", "published"} else "left")
        for zone in zones[:MAX_STATUS_ROWS]:
            price = "none"
            if zone["price"] is not None:
                price = f"{format_cents(zone['price'], zone['currency'])} {price_unit(zone['currency'])}"
            behind = f"{zone['intervals_behind']:,} behind" if zone["state"] == "behind" else zone["state"]
            until = local(zone["decided_until"])
            age = "" if zone["published_s"] is None else _ago(zone["published_s"])
            error = zone["error"]
            off = "" if error is None else f"{100 * error['low']:.0f} to {100 * error['high']:.0f} %"
            table.add_row(Text(zone["zone"]), behind, until, price, zone["kind"] or "", age, off)
        stdout.print(table)
    more = document["zones"]["open"] - min(len(zones), MAX_STATUS_ROWS)
    if more > 0:
        stdout.print(f"and {more:,} more zones; --zone NAME shows one.\n")
    if document["ok"]:
        stdout.print("Nothing needs attention.", style="bold green")
        return
    stdout.print("Needs attention:", style="bold")
    for item in document["attention"]:
        stdout.print(f"  {item['about']}: {item['problem']}", style="red")
        stdout.print(f"    {item['remedy']}")


def _summary_lines(document: Mapping[str, Any], local: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    zones, feed, worker = document["zones"], document["feed"], document["worker"]
    yield "Zones", f"{zones['up_to_date']:,} of {zones['open']:,} up to date"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in zones["last_price"].items() if count)
    yield "Prices", f"the last of each zone: {kinds or 'none yet'}"
    if feed["expected"] is None:
        yield "Feed", "no interval was aggregated yet"
    elif not feed["expected"]:
        yield "Feed", "no reading is expected"
    else:
        share, quorum = 100 * feed["reported"] / max(feed["expected"], 1), 100 * feed["quorum"]
        counts = f"{feed['reported']:,} of {feed['expected']:,} readings of the interval of {local(feed['interval'])}"
        yield "Feed", f"{counts} ({share:.1f} %; quorum {quorum:.0f} %)"
    clients = [
        f"{name} ({zones[0] if len(zones) == 1 else f'{len(zones):,} zones'})"
        for name, zones in feed["clients"].items()
    ]
    some = [*clients[:5], *([f"{len(clients) - 5:,} more"] if len(clients) > 5 else [])]
    some += [f"MQTT at {feed['mqtt']}"] if feed["mqtt"] else []
    yield "Sources", ", ".join(some) or "none"
    yield "Worker", "has never run" if worker["alive_s"] is None else f"alive {_ago(worker['alive_s'])}"
    for name, words in document["processes"].items():
        yield name.capitalize(), words
    if (landing := document["landing"]) is not None:
        age = "" if landing["oldest_s"] is None else f", the oldest began {_ago(landing['oldest_s'])}"
        yield "Landing", f"readings of {landing['intervals']:,} intervals{age}"
    if document["next_deadline"] is not None:
        yield "Deadline", f"the next is at {local(document['next_deadline'])}"


def _ago(seconds: float) -> str:
    return f"{format_duration(seconds)} ago"
