"""Publish until every shard is as desired: round after round, batch after batch, whatever fails in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import psycopg

from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile_chain import VerifySignature
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import Outcome, publish_round
from murmurate.publisher.steps import WriteTiles
from murmurate.publisher.stores import LogStore, StateStore, drive_steps

OnFailure = Callable[[str], None]  # gets the name of an error, never its text: that might quote a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """State, log, tile writer and clock of one publisher. Any number of publishers may work on the same shards."""

    state: StateStore
    log: LogStore
    write_tiles: WriteTiles
    wait_for_slot: Callable[[], None]
    verify: VerifySignature = verify_signature
    batch_size: int = 20  # shards in one transaction
    pause_s: float = 0.2  # after a failure, or while others hold what is left
    load_plans: Callable[[Iterable[str]], None] = lambda _: None  # of some shards, before they are locked

    def publish(
        self, desired: Mapping[str, DesiredState], *, timeout_s: float, on_failure: OnFailure = lambda _: None
    ) -> Outcome:
        """Bring each shard to its desired state. A shard that is not there at the timeout is in `unfinished`."""
        end = time.monotonic() + timeout_s
        outcome = Outcome(unfinished=set(desired))
        while outcome.unfinished and time.monotonic() < end:
            before = len(outcome.unfinished)
            for shards in _batches(sorted(outcome.unfinished), self.batch_size):
                try:
                    self.load_plans(shards)
                    self._publish_batch({shard: desired[shard] for shard in shards}, outcome, end)
                except (psycopg.Error, OSError) as error:
                    on_failure(type(error).__name__)
                    time.sleep(self.pause_s)
            if len(outcome.unfinished) == before:
                time.sleep(self.pause_s)
        return outcome

    def _publish_batch(self, desired: dict[str, DesiredState], outcome: Outcome, end: float) -> None:
        """Run rounds while the batch makes progress: a shard whose tile is not taken must not delay the next batch."""
        remaining = desired
        while remaining and time.monotonic() < end:
            result = drive_steps(
                publish_round(remaining, self.write_tiles, self.verify), self.state, self.log, self.wait_for_slot
            )
            outcome.up_to_date |= result.up_to_date
            outcome.with_new_tiles |= result.with_new_tiles
            outcome.blocked |= result.blocked
            outcome.blocked_zones |= result.blocked_zones
            outcome.unfinished -= result.up_to_date | result.blocked.keys()
            again = result.unfinished if remaining is desired else result.unfinished & result.with_new_tiles
            remaining = {shard: desired[shard] for shard in again}


def _batches(shards: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(shards), size):
        yield shards[start : start + size]
