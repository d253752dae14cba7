"""`murmurate status`: how a service stands, from its databases, so that it works while the service is down."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from murmurate.commands.json_output import format_utc, print_json
from murmurate.commands.price_text import format_cents, format_local, price_unit
from murmurate.errors import MurmurateError
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.landing.layout import Landing
from murmurate.service.log_reader.follower import Follower
from murmurate.service.log_reader.zone_view import PriceKind, ShardView
from murmurate.service.operator_api.attention import AttentionItem, find_attention
from murmurate.service.operator_api.status import MAX_BACKFILL_S, Heartbeat, ServiceStatus, ZoneStatus, service_status
from murmurate.service.settings import ServiceSettings, load_settings
from murmurate.service.storage.databases import Database, Databases, mask_database_errors
from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT, read_heartbeat_ages
from murmurate.service.storage.session import open_source
from murmurate.service.web.text import format_duration
from murmurate.units import SECONDS_PER_DAY

MAX_STATUS_ROWS = 20


def status_document(
    status: ServiceStatus,
    settings: ServiceSettings,
    ports: Mapping[str, str],
    landing: tuple[int, float | None] | None,
    attention: Sequence[AttentionItem],
) -> dict[str, Any]:
    """Return everything that is shown. Keys are those of docs/reference/json-output.md."""

    def urgency(zone: ZoneStatus) -> tuple[bool, int, bool]:
        """Zones that need a person come first; among equals the order stays."""
        is_measured = zone.last_price is None or zone.last_price.kind is PriceKind.MEASURED
        return not zone.is_broken, -zone.intervals_behind, is_measured

    return {
        "now": format_utc(status.now_s),
        "ok": not attention,
        "attention": [item._asdict() for item in attention],
        "zones": {
            "open": status.zone_count,
            "up_to_date": status.up_to_date_count,
            "broken": status.broken_zone_count,
            "closed": status.closed_count,
            "last_price": {kind.value: status.last_kinds.get(kind, 0) for kind in PriceKind},
        },
        "feed": _feed(status, settings),
        "worker": _worker(status),
        "processes": dict(ports),
        "landing": None if landing is None else {"intervals": landing[0], "oldest_s": _rounded(landing[1])},
        "next_deadline": None if status.next_deadline_s is None else format_utc(status.next_deadline_s),
        "zone_list": [_zone(zone, status) for zone in sorted(status.zones, key=urgency)],
    }


def _feed(status: ServiceStatus, settings: ServiceSettings) -> dict[str, Any]:
    report = {} if status.heartbeat is None else status.heartbeat[1]
    counts, step_s = report.get("feed"), report.get("interval_s")
    broker = settings.mqtt if settings.mqtt is not None and settings.mqtt.readings else None
    found: dict[str, Any] = {"interval": None, "reported": None, "expected": None, "quorum": settings.quorum}
    if isinstance(counts, Mapping) and counts and isinstance(step_s, int):
        found |= {"interval": format_utc(counts["interval"] * step_s), "interval_s": step_s}
        found |= {"reported": counts["reported"], "expected": counts["expected"]}
    clients = {client.id: sorted(client.zones) for client in status.clients if client.zones}
    return found | {"clients": clients, "mqtt": None if broker is None else f"{broker.host}:{broker.port}"}


def _worker(status: ServiceStatus) -> dict[str, Any]:
    release, beat = status.heartbeat, status.worker_beat
    figures = {} if beat is None else beat[1]
    return {
        "alive_s": None if beat is None else _rounded(beat[0]),
        "released_s": None if release is None else _rounded(release[0]),
        "damaged_files": figures.get("damaged_files"),
        "clock_difference_s": figures.get("clock_difference_s"),
    }


def _zone(zone: ZoneStatus, status: ServiceStatus) -> dict[str, Any]:
    price = zone.last_price
    shares = {} if status.heartbeat is None else status.heartbeat[1].get("share_reported")
    age_s = None if price is None else _rounded(max(0.0, time.time() - price.logged_s))
    return {
        "zone": zone.zone,
        "state": "log broken" if zone.is_broken else "behind" if zone.intervals_behind else "up to date",
        "intervals_behind": zone.intervals_behind,
        "decided_until": format_utc(zone.decided_end_s),
        "price": None if price is None else price.value,
        "currency": zone.currency,
        "kind": None if price is None else price.kind.value,
        "published_s": age_s,
        "share_reported": shares.get(zone.zone) if isinstance(shares, Mapping) else None,
        "last_24_hours": {kind.value: zone.releases_by_kind.get(kind, 0) for kind in PriceKind},
        "epsilon": zone.epsilon_micro / 1e6,
        "rho": zone.rho_micro / 1e6,
        "plan": zone.plan_digest,
        "key": zone.key,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def print_status(document: Mapping[str, Any], settings: ServiceSettings) -> None:
    """The page: a few lines on the service, its zones, and last what needs a person."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"Read from the databases at {document['now']}; the service need not run for this.", style="dim")
    for name, words in _lines(document):
        console.print(f"{name:<10}{words}")
    zones = document["zone_list"]
    if zones:
        console.print(_zones_table(zones[:MAX_STATUS_ROWS], settings))
    more = document["zones"]["open"] - min(len(zones), MAX_STATUS_ROWS)
    if more > 0:
        console.print(f"and {more:,} more zones; --zone NAME shows one.\n")
    attention = document["attention"]
    if not attention:
        console.print("Nothing needs attention.", style="bold green")
        return
    console.print("Needs attention:", style="bold")
    for item in attention:
        console.print(f"  {item['about']}: {item['problem']}", style="red")
        console.print(f"    {item['remedy']}")


def _lines(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    zones, feed, worker = document["zones"], document["feed"], document["worker"]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in zones["last_price"].items() if count)
    lines = [
        ("Zones", f"{zones['up_to_date']:,} of {zones['open']:,} up to date"),
        ("Prices", f"the last of each zone: {kinds or 'none yet'}"),
        ("Feed", _feed_words(feed)),
        ("Sources", _source_words(feed)),
        ("Worker", "has never run" if worker["alive_s"] is None else f"alive {_ago(worker['alive_s'])}"),
    ]
    lines += [(name.capitalize(), words) for name, words in document["processes"].items()]
    if document["landing"] is not None:
        count, oldest_s = document["landing"]["intervals"], document["landing"]["oldest_s"]
        age = "" if oldest_s is None else f", the oldest began {_ago(oldest_s)}"
        lines.append(("Landing", f"readings of {count:,} intervals{age}"))
    if document["next_deadline"] is not None:
        lines.append(("Deadline", f"the next is at {document['next_deadline']}"))
    return lines


def _feed_words(feed: Mapping[str, Any]) -> str:
    if feed["expected"] is None:
        return "no interval was aggregated yet"
    share, quorum = 100 * feed["reported"] / max(feed["expected"], 1), 100 * feed["quorum"]
    counts = f"{feed['reported']:,} of {feed['expected']:,} readings of the interval of {feed['interval']}"
    return f"{counts} ({share:.1f} %; quorum {quorum:.0f} %)"


def _source_words(feed: Mapping[str, Any]) -> str:
    clients = [
        f"{name} ({zones[0] if len(zones) == 1 else f'{len(zones):,} zones'})"
        for name, zones in feed["clients"].items()
    ]
    some = [*clients[:5], *([f"{len(clients) - 5:,} more"] if len(clients) > 5 else [])]
    some += [f"MQTT at {feed['mqtt']}"] if feed["mqtt"] else []
    return ", ".join(some) or "none"


def _ago(seconds: float) -> str:
    return f"{format_duration(seconds)} ago"


def _zones_table(zones: Sequence[Mapping[str, Any]], settings: ServiceSettings) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, justify in (("zone", "left"), ("state", "left"), ("decided until", "left"), ("last price", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("kind")
    table.add_column("published", justify="right")
    for zone in zones:
        price = "none" if zone["price"] is None else f"{format_cents(zone['price'], zone['currency'])} "
        unit = "" if zone["price"] is None else price_unit(zone["currency"])
        behind = f"{zone['intervals_behind']:,} behind" if zone["state"] == "behind" else zone["state"]
        until = format_local(
            datetime.fromisoformat(zone["decided_until"]).timestamp(), settings.display_of(zone["zone"]).timezone
        )
        age = "" if zone["published_s"] is None else _ago(zone["published_s"])
        table.add_row(Text(zone["zone"]), behind, until, price + unit, zone["kind"] or "", age)
    return table


PORT_TIMEOUT_S = 5.0


@dataclass(slots=True)
class StatusSources:
    """What could be read of a service, and what could not."""

    shards: list[ShardView] = field(default_factory=list)
    broken_shards: dict[str, str] = field(default_factory=dict)
    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    clients: list[ApiClient] = field(default_factory=list)
    ports: dict[str, str] = field(default_factory=dict)  # of each process with a port: ready, or what is wrong
    landing: tuple[int, float | None] | None = None  # intervals with readings, and the age of the oldest [s]
    missing: list[AttentionItem] = field(default_factory=list)  # what could not be read


def show_status(settings_file: Path | None, databases: Databases, zone: str | None, *, as_json: bool) -> int:
    """Print how a service stands. Returns the exit status: 1 if anything needs a person."""
    settings = ServiceSettings() if settings_file is None else load_settings(settings_file)
    sources = _read_sources(settings_file, settings, databases)
    now_s = settings.clock.now()
    status = service_status(
        sources.shards,
        sources.broken_shards,
        display_of=settings.display_of,
        now_s=now_s,
        grace_s=settings.grace_s,
        reading_counts={},
        heartbeat=sources.heartbeats.get(WORKER_HEARTBEAT),
        worker_beat=sources.heartbeats.get(WORKER_BEAT),
        clients=sources.clients,
        only_zone=zone,
    )
    if zone is not None and not status.zones and not sources.missing:
        raise MurmurateError(
            "--zone", zone, "is not open; murmurate status lists the zones, murmurate zone open opens one"
        )
    attention = [*sources.missing, *_find_attention(status, settings, sources, has_settings=settings_file is not None)]
    document = status_document(status, settings, sources.ports, sources.landing, attention)
    if as_json:
        print_json(document)
    else:
        print_status(document, settings)
    return 1 if attention else 0


def _find_attention(
    status: ServiceStatus, settings: ServiceSettings, sources: StatusSources, *, has_settings: bool
) -> list[AttentionItem]:
    unread = {item.about for item in sources.missing}
    found = find_attention(status, settings, needs_worker=has_settings)
    if "log" in unread:
        found = [item for item in found if item.about not in {"zones", "last price"}]
    if "state" in unread:
        found = [item for item in found if item.about not in {"worker", "feed"}]
    remedy = "start it with murmurate serve, or read its last messages"
    return found + [AttentionItem(name, words, remedy) for name, words in sources.ports.items() if words != "ready"]


def _read_sources(settings_file: Path | None, settings: ServiceSettings, databases: Databases) -> StatusSources:
    sources = StatusSources()
    with mask_database_errors():
        if _is_reachable(databases.log, sources):
            with closing(Follower(databases.log.dsn, recent_s=SECONDS_PER_DAY)) as follower:
                for _ in (*follower.refresh(), *follower.backfill(MAX_BACKFILL_S)):
                    pass
                sources.shards, sources.broken_shards = follower.views(), dict(follower.broken)
        if _is_reachable(databases.state, sources):
            with closing(open_source(databases.state.dsn)) as state:
                sources.heartbeats = dict(read_heartbeat_ages(state))
                sources.clients = AuthStore(state).list_clients()
    if settings_file is not None:
        addresses = {"private": settings.private_address, "public": settings.public_address}
        sources.ports = {name: _ask_readiness(*address) for name, address in addresses.items()}
        _read_landing(settings, sources)
    return sources


def _is_reachable(database: Database, sources: StatusSources) -> bool:
    try:
        database.check_reachable()
    except MurmurateError as error:
        sources.missing.append(AttentionItem(database.store, f"{error.field} is {error.value}", error.allowed))
        return False
    return True


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


def _read_landing(settings: ServiceSettings, sources: StatusSources) -> None:
    """Note how many intervals have readings: names of folders, never a reading."""
    try:
        starts_s, _ = Landing.open(settings.landing).list_intervals()
    except (MurmurateError, OSError) as error:
        words = str(error) if isinstance(error, MurmurateError) else f"{settings.landing}: {error.strerror}"
        sources.missing.append(AttentionItem("landing", words, "murmurate init creates one; see landing in the file"))
        return
    sources.landing = len(starts_s), max(0.0, settings.clock.now() - starts_s[0]) if starts_s else None
