"""What in a service needs a person, and what that person can do. Never a demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S
from murmurate.service.log_reader.zone_view import PriceKind
from murmurate.service.operator_api.status import ServiceStatus
from murmurate.service.settings import ServiceSettings
from murmurate.service.web.text import format_duration
from murmurate.service.worker.publisher_context import LOG_CLOCK
from murmurate.translations.language import ENGLISH, Language
from murmurate.units import SECONDS_PER_DAY

WORKER_SILENT_S = 60.0
_LOG_OLD_S = 10.0
MAX_REASONS = 20
_PURGE_DELAY_S = 3600.0  # readings are deleted within an hour


class AttentionItem(NamedTuple):
    """One thing that needs a person."""

    about: str  # a zone, a shard, or a part of the service
    problem: str
    remedy: str
    is_message: bool = (
        False  # the problem is what a process has reported of `about`, in English; no sentence of its own
    )


def find_attention(
    status: ServiceStatus, settings: ServiceSettings, language: Language = ENGLISH, *, needs_worker: bool = True
) -> list[AttentionItem]:
    """Return what needs a person, the worst first. Without `needs_worker` another scheduler may release the prices."""
    unread, messages = list(_log_age(status, language)), list(_messages(status, language))
    if not status.zone_count and not status.broken_shards:
        is_right = status.closed_count or unread  # all zones were closed: nothing is due
        return [*unread, *([] if is_right else [_item(language, "zones", "none_open", "open_remedy")]), *messages]
    return [
        *unread,
        *_log_and_worker(status, language, needs_worker=needs_worker),
        *messages,
        *_last_release(status, language),
        *_feed(status, settings, language),
        *_figures(status, settings, language),
    ]


def _item(language: Language, about: str, problem: str, remedy: str, /, **values: object) -> AttentionItem:
    problem, remedy = (language.plain(f"attention.{key}", **values) for key in (problem, remedy))
    return AttentionItem(about, problem, remedy)


def _log_age(status: ServiceStatus, language: Language) -> Iterator[AttentionItem]:
    """Yield that the log was not read, or not for some time."""
    if status.log_age_s == inf:
        yield _item(language, "log", "log_unread", "log_remedy")
    elif status.log_age_s >= _LOG_OLD_S:
        yield _item(language, "log", "log_old", "log_remedy", age=format_duration(status.log_age_s, language))


def _log_and_worker(status: ServiceStatus, language: Language, *, needs_worker: bool) -> Iterator[AttentionItem]:
    """Yield broken logs, a worker that is silent, and zones that are behind."""
    for shard, reason in sorted(status.broken_shards.items())[:MAX_REASONS]:
        yield _item(language, f"shard {shard}", "log_broken", "repair_remedy", shard=shard, reason=reason)
    if not needs_worker:
        pass
    elif status.worker_beat is None:
        yield _item(language, "worker", "worker_never", "worker_remedy")
    elif status.worker_beat[0] > WORKER_SILENT_S:
        silent = format_duration(status.worker_beat[0], language)
        yield _item(language, "worker", "worker_silent", "worker_remedy", duration=silent)
    late = status.zone_count - status.up_to_date_count - status.broken_zone_count
    if late:
        most = max((zone.intervals_behind for zone in status.zones if not zone.is_broken), default=0)
        counts = {"late": late, "count": status.zone_count, "most": most}
        numbers = {name: language.whole(number) for name, number in counts.items()}
        yield _item(language, "zones", "behind_by" if most else "behind", "behind_remedy", **numbers)


def _messages(status: ServiceStatus, language: Language) -> Iterator[AttentionItem]:
    """Yield what the last release could not do and warned of, and what the ingest warns of."""
    report = {} if status.heartbeat is None else status.heartbeat[1]
    for listed, remedy in (
        (report.get("reasons"), "messages_remedy"),
        (report.get("warnings"), "warnings_remedy"),
        (status.ingest_warnings, "warnings_remedy"),
    ):
        for name, reason in sorted(listed.items())[:MAX_REASONS] if isinstance(listed, Mapping) else ():
            yield AttentionItem(str(name), str(reason), language.plain(f"attention.{remedy}"), is_message=True)


def _last_release(status: ServiceStatus, language: Language) -> Iterator[AttentionItem]:
    """Yield shards that were not finished, and last prices without a measurement."""
    report = {} if status.heartbeat is None else status.heartbeat[1]
    reasons = report.get("reasons")
    is_clock_behind = isinstance(reasons, Mapping) and LOG_CLOCK in reasons  # why the log has taken no release
    if (unfinished := _count(report, "unfinished")) and not is_clock_behind:
        yield _item(language, "shards", "unfinished", "unfinished_remedy", count=language.whole(unfinished))
    withheld = status.last_kinds.get(PriceKind.WITHHELD, 0)
    without_plan = min(withheld, _count(report, "zones_without_plan"))
    is_one = status.zone_count == 1
    fallback, late = ("fallback", "withheld") if is_one else ("fallback_of", "withheld_of")
    for count, problem, remedy in (
        (status.last_kinds.get(PriceKind.FALLBACK, 0), fallback, "fallback_remedy"),
        (without_plan, late, "without_plan_remedy"),
        (withheld - without_plan, late, "too_late_remedy"),
    ):
        if count:
            zones = {"count": language.whole(count), "zones": language.whole(status.zone_count)}
            yield _item(language, "last price", problem, remedy, **zones)


def _feed(status: ServiceStatus, settings: ServiceSettings, language: Language) -> Iterator[AttentionItem]:
    report = {} if status.heartbeat is None else status.heartbeat[1]
    shares = report.get("share_reported")
    by_zone = shares if isinstance(shares, Mapping) else {}
    low = [zone for zone, share in by_zone.items() if share < settings.quorum]
    if low:
        values = {"quorum": f"{100 * settings.quorum:.0f}", "zone": low[0], "share": f"{100 * by_zone[low[0]]:.0f}"}
        quorum = "quorum_of" if len(low) > 1 else "quorum"
        yield _item(language, "feed", quorum, "quorum_remedy", more=language.whole(len(low) - 1), **values)
    needs_readings = status.last_kinds.get(PriceKind.PUBLIC, 0) < status.zone_count
    has_source = (
        any(client.zones for client in status.clients) or (settings.mqtt and settings.mqtt.readings) or settings.kafka
    )
    if needs_readings and not has_source:
        yield _item(language, "feed", "no_source", "no_source_remedy")


def _figures(status: ServiceStatus, settings: ServiceSettings, language: Language) -> Iterator[AttentionItem]:
    """What the worker measures of itself."""
    figures = {} if status.worker_beat is None else status.worker_beat[1]
    differences, oldest_s = figures.get("clock_difference_s"), figures.get("oldest_readings_age_s")
    for store, ahead_s in sorted(differences.items()) if isinstance(differences, Mapping) else ():
        if abs(ahead_s) > MAX_CLOCK_DIFFERENCE_S:
            values = {"seconds": language.whole(round(abs(ahead_s))), "store": store}
            yield _item(language, "clock", "clock_ahead" if ahead_s > 0 else "clock_behind", "clock_remedy", **values)
    if figures.get("table_problem"):
        values = {"problem": figures["table_problem"], "file": settings.meters}
        yield _item(language, "meter table", "table", "table_remedy", **values)
    if isinstance(oldest_s, int | float) and oldest_s > settings.keep_days * SECONDS_PER_DAY + _PURGE_DELAY_S:
        yield _item(language, "readings", "readings_old", "purge_remedy", age=format_duration(oldest_s, language))


def _count(report: Mapping[str, object], member: str) -> int:
    number = report.get(member)
    return number if isinstance(number, int) else 0
