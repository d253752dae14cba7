"""What `murmurate status` shows, as a document for scripts and as a page for a terminal. Never a demand."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from murmurate.commands.json_output import format_utc
from murmurate.commands.price_text import format_cents, format_local, price_unit
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.attention import AttentionItem
from murmurate.service.operator_api.status import ServiceStatus, ZoneStatus
from murmurate.service.settings import ServiceSettings
from murmurate.service.web.text import format_duration

MAX_STATUS_ROWS = 20


def status_document(
    status: ServiceStatus,
    settings: ServiceSettings,
    ports: Mapping[str, str],
    landing: tuple[int, float | None] | None,
    attention: Sequence[AttentionItem],
) -> dict[str, Any]:
    """Return everything that is shown. Keys are those of docs/reference/json-output.md."""
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
        "zone_list": [_zone(zone, status) for zone in sorted(status.zones, key=_urgency)],
    }


def _urgency(zone: ZoneStatus) -> tuple[bool, int, bool]:
    """Zones that need a person come first; among equals the order stays."""
    is_measured = zone.last_price is None or zone.last_price.kind is PriceKind.MEASURED
    return not zone.is_broken, -zone.intervals_behind, is_measured


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
