"""Publish until every zone is as desired: round after round, batch after batch, whatever fails in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import psycopg

from murmurate.public_log.chain import VerifySignature
from murmurate.public_log.signing import verify_signature
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import Outcome, WriteEntries, publish_round
from murmurate.publisher.stores import LogStore, StateStore, drive_steps

OnFailure = Callable[[str], None]  # gets the name of an error, never its text: that might quote a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """State, log, record writer and clock of one publisher. Any number of publishers may work on the same zones."""

    state: StateStore
    log: LogStore
    write_entries: WriteEntries
    wait_for_slot: Callable[[], None]
    verify: VerifySignature = verify_signature
    batch_size: int = 2000  # zones in one transaction
    pause_s: float = 0.2  # after a failure, or while others hold what is left

    def publish(
        self, desired: Mapping[str, DesiredState], *, timeout_s: float, on_failure: OnFailure = lambda _: None
    ) -> Outcome:
        """Bring each zone to its desired state. A zone that is not there at the timeout is in `unfinished`."""
        end = time.monotonic() + timeout_s
        outcome = Outcome(unfinished=set(desired))
        while outcome.unfinished and time.monotonic() < end:
            before = len(outcome.unfinished)
            for zones in _batches(sorted(outcome.unfinished), self.batch_size):
                try:
                    self._publish_batch({zone: desired[zone] for zone in zones}, outcome, end)
                except (psycopg.Error, OSError) as error:
                    on_failure(type(error).__name__)
                    time.sleep(self.pause_s)
            if len(outcome.unfinished) == before:
                time.sleep(self.pause_s)
        return outcome

    def _publish_batch(self, desired: dict[str, DesiredState], outcome: Outcome, end: float) -> None:
        """Run rounds while the batch makes progress: a zone whose entry is not taken must not delay the next batch."""
        remaining = desired
        while remaining and time.monotonic() < end:
            result = drive_steps(
                publish_round(remaining, self.write_entries, self.verify), self.state, self.log, self.wait_for_slot
            )
            outcome.up_to_date |= result.up_to_date
            outcome.blocked |= result.blocked
            outcome.unfinished -= result.up_to_date | result.blocked.keys()
            again = result.unfinished if remaining is desired else result.unfinished & result.with_new_entries
            remaining = {zone: desired[zone] for zone in again}


def _batches(zones: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(zones), size):
        yield zones[start : start + size]
