"""What commands print: results on standard output, progress and problems on standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized

from rich.console import Console

from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import BlockedCode, Outcome
from murmurate.service.storage.databases import Databases
from murmurate.service.worker.publisher_context import PUBLISH_TIMEOUT_S, PublisherContext

MAX_BLOCKED_SHOWN = 20


stdout = Console(highlight=False, soft_wrap=True, markup=False)


stderr = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


def publish(
    context: PublisherContext, desired: Mapping[str, DesiredState], timeout_s: float = PUBLISH_TIMEOUT_S
) -> tuple[Outcome, set[str]]:
    """Publish with a spinner on standard error. Returns the outcome and the names of the errors on the way."""
    with stderr.status(f"publishing for {len(desired):,} {shards_word(desired)}"):
        return context.publish(desired, timeout_s)


def warn_of_open_schemas(databases: Databases) -> None:
    """Print which databases let every role create objects, which none of our processes needs."""
    for database in (databases.state, databases.log):
        if database.can_everyone_create():
            stderr.print(f"Warning: every role may create objects in schema public of the {database.store} database.")
            stderr.print("As a superuser, there: REVOKE CREATE ON SCHEMA public FROM PUBLIC;")


def report_outcome(outcome: Outcome, failure_names: set[str], more_reasons: Mapping[str, str] | None = None) -> int:
    """Print what needs an operator, or another run. Returns the exit status: 1 if there is any."""
    blocked = outcome.blocked | outcome.blocked_zones
    print_blocked({**(more_reasons or {}), **{name: reason.text for name, reason in blocked.items()}})
    if any(reason.code is BlockedCode.LOG_LOST_ENTRIES for reason in outcome.blocked.values()):
        stderr.print("The log has lost tiles that were public. murmurate log repair restores them; see how-to/restore.")
    if any(reason.code is BlockedCode.LOG_INVALID for reason in outcome.blocked.values()):
        stderr.print("The log holds a tile that no reader accepts. murmurate log repair names it; see how-to/restore.")
    if outcome.unfinished:
        errors = " (a database or the disk failed; see their logs)" if failure_names else ""
        count = f"{len(outcome.unfinished):,} {shards_word(outcome.unfinished)}"
        stderr.print(f"{count} not finished in time{errors}: run it again.")
    return 1 if blocked or outcome.unfinished else 0


def outcome_document(outcome: Outcome, more_reasons: Mapping[str, str] | None = None) -> dict[str, object]:
    """What needs an operator, or another run, for scripts."""
    blocked = outcome.blocked | outcome.blocked_zones
    return {
        "blocked": {**(more_reasons or {}), **{name: reason.text for name, reason in sorted(blocked.items())}},
        "unfinished": sorted(outcome.unfinished),
    }


def print_warnings(sentences: Sequence[str]) -> None:
    """Print the first sentences, and how many more there are."""
    for sentence in sentences[:MAX_BLOCKED_SHOWN]:
        stderr.print(f"Warning: {sentence}")
    if len(sentences) > MAX_BLOCKED_SHOWN:
        stderr.print(f"and {len(sentences) - MAX_BLOCKED_SHOWN:,} more.")


def print_blocked(reasons: Mapping[str, str]) -> None:
    """Print the first zones or shards that are blocked, each with its reason, and how many more there are."""
    for name, reason in sorted(reasons.items())[:MAX_BLOCKED_SHOWN]:
        stderr.print(f"{name}: blocked: {reason}")
    if len(reasons) > MAX_BLOCKED_SHOWN:
        stderr.print(f"and {len(reasons) - MAX_BLOCKED_SHOWN:,} more.")


def shards_word(shards: Sized) -> str:
    return "shard" if len(shards) == 1 else "shards"


def zones_word(zones: Sized) -> str:
    return "zone" if len(zones) == 1 else "zones"
