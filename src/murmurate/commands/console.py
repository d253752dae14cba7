"""What commands print: results on standard output, progress and problems on standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sized

from rich.console import Console

from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import BlockedCode, Outcome
from murmurate.service.worker.publisher_context import PUBLISH_TIMEOUT_S, PublisherContext

MAX_BLOCKED_SHOWN = 20


stdout = Console(highlight=False, soft_wrap=True, markup=False)


stderr = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


def publish(
    context: PublisherContext, desired: Mapping[str, DesiredState], timeout_s: float = PUBLISH_TIMEOUT_S
) -> tuple[Outcome, set[str]]:
    """Publish with a spinner on standard error. Returns the outcome and the names of the errors on the way."""
    with stderr.status(f"publishing for {len(desired):,} {zones_word(desired)}"):
        return context.publish(desired, timeout_s)


def report_outcome(outcome: Outcome, failure_names: set[str]) -> int:
    """Print what needs an operator, or another run. Returns the exit status: 1 if there is any."""
    print_blocked({zone: reason.text for zone, reason in outcome.blocked.items()})
    if any(reason.code is BlockedCode.LOG_LOST_ENTRIES for reason in outcome.blocked.values()):
        stderr.print("The log has lost entries that were public. murmurate repair restores them; see how-to/restore.")
    if outcome.unfinished:
        errors = f" ({', '.join(sorted(failure_names))})" if failure_names else ""
        stderr.print(
            f"{len(outcome.unfinished):,} {zones_word(outcome.unfinished)} not finished in time{errors}: run it again."
        )
    return 1 if outcome.blocked or outcome.unfinished else 0


def print_blocked(reasons: Mapping[str, str]) -> None:
    """Print the first zones that are blocked, each with its reason, and how many more there are."""
    for zone, reason in sorted(reasons.items())[:MAX_BLOCKED_SHOWN]:
        stderr.print(f"{zone}: blocked: {reason}")
    if len(reasons) > MAX_BLOCKED_SHOWN:
        stderr.print(f"and {len(reasons) - MAX_BLOCKED_SHOWN:,} zones more.")


def zones_word(zones: Sized) -> str:
    return "zone" if len(zones) == 1 else "zones"
