"""Publish until it is done: turn after turn, batch after batch, whatever fails in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import psycopg

from murmurate.publication.chain import Verify
from murmurate.publication.publisher import Outcome, Write, turn
from murmurate.publication.signing import verify
from murmurate.publication.stores import Log, State, drive
from murmurate.publication.wish import Wish

Failed = Callable[[str], None]  # is told the name of a failure, never what it says: that might quote a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """State, log, desk and clock of one publisher. Any number of them may work on the same zones."""

    state: State
    log: Log
    write: Write
    wait: Callable[[], None]
    verify: Verify = verify
    batch: int = 2000  # zones in one transaction
    pause_s: float = 0.2  # after a failure, or while others hold what is left

    def publish(self, wishes: Mapping[str, Wish], *, patience_s: float, failed: Failed = lambda _: None) -> Outcome:
        """Fulfil each wish. What is neither done nor aside when the patience ends is in `moved`; ask again later."""
        end = time.monotonic() + patience_s
        outcome = Outcome(moved=set(wishes))
        while outcome.moved and time.monotonic() < end:
            before = len(outcome.moved)
            for zones in _batches(sorted(outcome.moved), self.batch):
                try:
                    self._settle({zone: wishes[zone] for zone in zones}, outcome, end)
                except (psycopg.Error, OSError) as error:
                    failed(type(error).__name__)
                    time.sleep(self.pause_s)
            if len(outcome.moved) == before:
                time.sleep(self.pause_s)
        return outcome

    def _settle(self, wishes: dict[str, Wish], outcome: Outcome, end: float) -> None:
        """Turn until nothing of the batch gets on: a zone whose offer is not taken must not hold the next batch."""
        turning = wishes
        while turning and time.monotonic() < end:
            result = drive(turn(turning, self.write, self.verify), self.state, self.log, self.wait)
            outcome.done |= result.done
            outcome.aside |= result.aside
            outcome.moved -= result.done | result.aside.keys()
            again = result.moved if turning is wishes else result.moved & result.seen
            turning = {zone: wishes[zone] for zone in again}


def _batches(zones: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(zones), size):
        yield zones[start : start + size]
