"""The operator's page: what was released, what it cost, what needs an operator. Never a demand.

This module computes what is shown; `web/templates/operator.html` holds the text and the markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

from murmurate.service.auth import ApiClient, scope_for_zones
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.status import ServiceStatus, ZoneStatus
from murmurate.service.web.html import render_page
from murmurate.service.web.text import format_cost, format_duration

_MAX_SCOPES = 5
_MAX_REASONS = 100
_LOG_AGE_WARNING_S = 10.0
_WORKER_SILENT_S = 60.0
_HALF_DAY_S = 43_200


@dataclass(frozen=True, slots=True)
class KeyFigure:
    name: str
    value: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneStatusRow:
    """A zone in the table of zones."""

    zone: str
    title: str
    state: str
    decided_until: str
    measured: str  # prices of the last 24 hours
    fallback: str
    withheld: str
    cost: str
    plan_digest: str
    key: str


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client and what it may do. Never a secret."""

    id: str
    scope: str
    permissions: tuple[str, ...]


def operator_page(status: ServiceStatus) -> str:
    """Return the page of one moment."""
    return render_page(
        "operator.html",
        time=_format_time(status.now_s),
        log_age=_log_age(status.log_age_s),
        tiles=_tiles(status),
        blocked=_blocked(status),
        zones=[_zone_row(zone, status.now_s) for zone in status.zones],
        more_zones=status.zone_count - len(status.zones),
        clients=[_client_row(client) for client in status.clients],
    )


def _format_time(at_s: float) -> str:
    return f"{datetime.fromtimestamp(int(at_s), UTC):%Y-%m-%d %H:%M} UTC"


def _format_end(at_s: float, now_s: float) -> str:
    """The hour alone where the day is clear."""
    return f"{_format_time(at_s)[11:]}" if abs(at_s - now_s) < _HALF_DAY_S else _format_time(at_s)


def _log_age(seconds: float) -> str:
    """How old the page's copy of the log is; empty if it is fresh."""
    if seconds == inf:
        return "never"
    return "" if seconds < _LOG_AGE_WARNING_S else format_duration(seconds)


def _tiles(status: ServiceStatus) -> list[KeyFigure]:
    due = status.next_deadline_s
    report = {} if status.heartbeat is None else status.heartbeat[1]
    tiles = [
        KeyFigure(
            "Zones up to date",
            f"{status.up_to_date_count:,} of {status.zone_count:,}",
            status.zone_count != status.up_to_date_count,
        ),
        KeyFigure(
            "Last release", "none yet" if status.heartbeat is None else f"{format_duration(status.heartbeat[0])} ago"
        ),
        KeyFigure("Next deadline", "none" if due is None else f"in {format_duration(due - status.now_s)}"),
        KeyFigure("Shards blocked", _format_count(report, "blocked"), bool(report.get("blocked"))),
        KeyFigure("Zones blocked", _format_count(report, "blocked_zones"), bool(report.get("blocked_zones"))),
        KeyFigure("Shards not finished in time", _format_count(report, "unfinished"), bool(report.get("unfinished"))),
    ]
    tiles += _worker_tiles(status)
    names = {"accepted": "Readings accepted", "late": "Readings late", "refused": "Readings refused"}
    return tiles + [KeyFigure(name, f"{status.reading_counts.get(key, 0):,}") for key, name in names.items()]


def _worker_tiles(status: ServiceStatus) -> list[KeyFigure]:
    """Whether the worker is alive, and what its landing looks like."""
    if status.worker_beat is None:
        return [KeyFigure("Worker", "not started yet", is_bad=True)]
    age_s, figures = status.worker_beat
    restarts = sum(status.part_restarts.values())
    oldest = figures.get("oldest_readings_age_s")
    return [
        KeyFigure("Worker", f"alive {format_duration(age_s)} ago", age_s > _WORKER_SILENT_S),
        KeyFigure("Damaged files", _format_count(figures, "damaged_files"), bool(figures.get("damaged_files"))),
        KeyFigure("Oldest readings", format_duration(oldest) if isinstance(oldest, int | float) else "unknown"),
        KeyFigure("Processes restarted", f"{restarts:,}", is_bad=restarts > 0),
    ]


def _format_count(worker_report: Mapping[str, object], key: str) -> str:
    number = worker_report.get(key, 0)
    return f"{number:,}" if isinstance(number, int) else "unknown"


def _blocked(status: ServiceStatus) -> list[tuple[str, str]]:
    """Shards and zones that need an operator, each with its reason; the worker reports the first few."""
    report = {} if status.heartbeat is None else status.heartbeat[1]
    listed = [report.get(member) for member in ("reasons", "warnings")]
    found = [each.items() for each in listed if isinstance(each, Mapping)]
    reasons = dict(status.ingest_warnings)
    reasons |= {str(name): str(reason) for items in found for name, reason in items}
    broken = {f"shard {shard}": reason for shard, reason in status.broken_shards.items()}
    return [*sorted(broken.items()), *sorted(reasons.items())][:_MAX_REASONS]


def _zone_row(zone: ZoneStatus, now_s: float) -> ZoneStatusRow:
    state = f"{zone.intervals_behind:,} behind" if zone.intervals_behind else "up to date"
    measured, fallback, withheld = (
        f"{zone.releases_by_kind.get(kind, 0):,}"
        for kind in (PriceKind.MEASURED, PriceKind.FALLBACK, PriceKind.WITHHELD)
    )
    return ZoneStatusRow(
        zone=zone.zone,
        title=zone.title,
        state="log broken" if zone.is_broken else state,
        decided_until=_format_end(zone.decided_end_s, now_s),
        measured=measured,
        fallback=fallback,
        withheld=withheld,
        cost=format_cost(zone.epsilon_micro, zone.rho_micro),
        plan_digest=zone.plan_digest,
        key=zone.key,
    )


def _client_row(client: ApiClient) -> ClientRow:
    some = sorted(client.zones)[:_MAX_SCOPES]
    more = len(client.zones) - len(some)
    permissions = [f"and {more:,} zones more"] if more else []
    permissions += ["see this page and the metrics"] if client.is_operator else []
    return ClientRow(client.id, scope_for_zones(some), tuple(permissions))
