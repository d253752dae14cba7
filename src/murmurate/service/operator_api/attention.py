"""What in a service needs a person, and what that person can do. Never a demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.status import ServiceStatus
from murmurate.service.settings import ServiceSettings
from murmurate.service.web.text import format_duration
from murmurate.service.worker.publisher_context import LOG_CLOCK
from murmurate.units import SECONDS_PER_DAY

WORKER_SILENT_S = 60.0
MAX_REASONS = 20
_PURGE_DELAY_S = 3600.0  # readings are deleted within an hour


class AttentionItem(NamedTuple):
    """One thing that needs a person."""

    about: str  # a zone, a shard, or a part of the service
    problem: str
    remedy: str


def find_attention(
    status: ServiceStatus, settings: ServiceSettings, *, needs_worker: bool = True
) -> list[AttentionItem]:
    """Return what needs a person, the worst first. Without `needs_worker` another scheduler may release the prices."""
    if not status.zone_count and not status.broken_shards:
        if status.closed_count:
            return []  # all zones were closed: nothing is due
        return [AttentionItem("zones", "none is open", "murmurate zone open plan.json opens one")]
    return [
        *_log_and_worker(status, needs_worker=needs_worker),
        *_last_release(status),
        *_feed(status, settings),
        *_figures(status, settings),
    ]


def _log_and_worker(status: ServiceStatus, *, needs_worker: bool) -> Iterator[AttentionItem]:
    """Yield broken logs, a worker that is silent, and zones that are behind."""
    for shard, reason in sorted(status.broken_shards.items())[:MAX_REASONS]:
        remedy = "murmurate log repair names the tile; docs/how-to/restore.md says what to do. Its zones stand still"
        yield AttentionItem(f"shard {shard}", f"its log is not valid: {reason}", remedy)
    remedy = "start it with murmurate serve, or read its last messages: without it no price is released"
    if not needs_worker:
        pass
    elif status.worker_beat is None:
        yield AttentionItem("worker", "has never run", remedy)
    elif status.worker_beat[0] > WORKER_SILENT_S:
        yield AttentionItem("worker", f"silent for {format_duration(status.worker_beat[0])}", remedy)
    late = status.zone_count - status.up_to_date_count - status.broken_zone_count
    if late:
        most = max((zone.intervals_behind for zone in status.zones if not zone.is_broken), default=0)
        words = f"{late:,} of {status.zone_count:,} are behind" + (f", by up to {most:,} intervals" if most else "")
        yield AttentionItem("zones", words, "see the worker, its messages and the database of the log")


def _last_release(status: ServiceStatus) -> Iterator[AttentionItem]:
    """Yield what the last release could not do, what it warns of, and prices without a measurement."""
    report = {} if status.heartbeat is None else status.heartbeat[1]
    for member, remedy in (
        ("reasons", "docs/how-to/watch.md, Messages, has the remedy of each message"),
        ("warnings", "correct the file or the meter table that is named"),
    ):
        listed = report.get(member)
        for name, reason in sorted(listed.items())[:MAX_REASONS] if isinstance(listed, Mapping) else ():
            yield AttentionItem(str(name), str(reason), remedy)
    reasons = report.get("reasons")
    is_clock_behind = isinstance(reasons, Mapping) and LOG_CLOCK in reasons  # why the log has taken no release
    if (unfinished := _count(report, "unfinished")) and not is_clock_behind:
        remedy = "it is tried again; if it lasts, the log or the state answers too slowly"
        yield AttentionItem("shards", f"{unfinished:,} were not finished in time", remedy)
    withheld = status.last_kinds.get(PriceKind.WITHHELD, 0)
    without_plan = min(withheld, _count(report, "zones_without_plan"))
    found = (
        (
            status.last_kinds.get(PriceKind.FALLBACK, 0),
            "a fallback price, without a measurement",
            "too few readings came in time: see the feed below, the head-end and its token",
        ),
        (
            without_plan,
            "withheld",
            "its plan cannot be used, for the reason above; murmurate zone open PLAN restores a damaged one",
        ),
        (
            withheld - without_plan,
            "withheld",
            "it was decided too late: see that the worker runs and that grace_s is below the lead",
        ),
    )
    for count, kind, remedy in found:
        if count:
            about = f"{count:,} of {status.zone_count:,} zones" if status.zone_count > 1 else "the zone"
            yield AttentionItem("last price", f"of {about} is {kind}", remedy)


def _feed(status: ServiceStatus, settings: ServiceSettings) -> Iterator[AttentionItem]:
    report = {} if status.heartbeat is None else status.heartbeat[1]
    shares = report.get("share_reported")
    low = [zone for zone, share in shares.items() if share < settings.quorum] if isinstance(shares, Mapping) else []
    if low:
        first = f"{low[0]} with {100 * shares[low[0]]:.0f} %" if isinstance(shares, Mapping) else low[0]
        more = f" and {len(low) - 1:,} more" if len(low) > 1 else ""
        words = f"fewer meters than the quorum of {100 * settings.quorum:.0f} % have reported: {first}{more}"
        yield AttentionItem("feed", words, "check the head-end, its token and the broker")
    needs_readings = status.last_kinds.get(PriceKind.PUBLIC, 0) < status.zone_count
    has_source = any(client.zones for client in status.clients) or (settings.mqtt and settings.mqtt.readings)
    if needs_readings and not has_source:
        remedy = "murmurate client add head-end --zone ZONE lets one send them; murmurate readings ingest takes files"
        yield AttentionItem("feed", "no client may send readings", remedy)


def _figures(status: ServiceStatus, settings: ServiceSettings) -> Iterator[AttentionItem]:
    """What the worker measures of itself."""
    figures = {} if status.worker_beat is None else status.worker_beat[1]
    differences, oldest_s = figures.get("clock_difference_s"), figures.get("oldest_readings_age_s")
    for store, ahead_s in sorted(differences.items()) if isinstance(differences, Mapping) else ():
        if abs(ahead_s) > MAX_CLOCK_DIFFERENCE_S:
            words = f"of the worker is {abs(ahead_s):,.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the {store}'s"
            yield AttentionItem("clock", words, "check NTP on both machines")
    if figures.get("table_problem"):
        words = f"the newest one is not in force: {figures['table_problem']}"
        yield AttentionItem("meter table", words, f"correct {settings.meters}")
    if isinstance(oldest_s, int | float) and oldest_s > settings.keep_days * SECONDS_PER_DAY + _PURGE_DELAY_S:
        words = f"some are {format_duration(oldest_s)} old, more than keep_days"
        yield AttentionItem("readings", words, "see the worker's messages about purging")


def _count(report: Mapping[str, object], member: str) -> int:
    number = report.get(member)
    return number if isinstance(number, int) else 0
