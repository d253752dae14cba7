"""Both stores and the keys of an operator, ready to publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import psycopg

from murmurate.errors import MurmurateError
from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile_chain import VerifySignature
from murmurate.publisher.desired_state import DesiredState, ZoneOpening
from murmurate.publisher.protocol import Outcome, publish_round
from murmurate.publisher.steps import LogStore, StateStore, WriteTiles, drive_steps
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.clock import ReleaseSchedule, ReleaseSlotClock
from murmurate.service.keyring import Keyring, ReloadingSigners, load_keyring
from murmurate.service.storage.databases import Database, Databases, ObjectLog
from murmurate.service.storage.object_log import ObjectLogStore
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.watchdog import report_progress

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
        self,
        desired: Mapping[str, DesiredState],
        *,
        timeout_s: float,
        stall_s: float = inf,
        is_stopped: Callable[[], bool] = lambda: False,
        on_failure: OnFailure = lambda _: None,
    ) -> Outcome:
        """Bring each shard to its desired state. A shard that is not there at the timeout is in `unfinished`.

        It ends before where no shard moves for `stall_s`, which reading plans does not count to, and between two rounds
        once `is_stopped` is true.
        """
        end, moved_s = time.monotonic() + timeout_s, time.monotonic()
        outcome = Outcome(unfinished=set(desired))

        def may_go_on() -> bool:
            return time.monotonic() < min(end, moved_s + stall_s) and not is_stopped()

        while outcome.unfinished and may_go_on():
            before = len(outcome.unfinished)
            remaining = sorted(outcome.unfinished)
            for start in range(0, before, self.batch_size):
                shards = remaining[start : start + self.batch_size]
                try:
                    reading_s = time.monotonic()
                    self.load_plans(shards)
                    moved_s += time.monotonic() - reading_s
                    if self._publish_batch({shard: desired[shard] for shard in shards}, outcome, may_go_on):
                        moved_s = time.monotonic()
                except (psycopg.Error, OSError) as error:
                    on_failure(type(error).__name__)
                    time.sleep(self.pause_s)
                if not may_go_on():
                    return outcome
            if len(outcome.unfinished) == before:
                time.sleep(self.pause_s)
        return outcome

    def _publish_batch(self, desired: dict[str, DesiredState], outcome: Outcome, may_go_on: Callable[[], bool]) -> bool:
        """Run rounds while the batch makes progress: a shard whose tile is not taken must not delay the next batch.

        Returns whether a shard has moved.
        """
        remaining, before, has_new_tiles = desired, len(outcome.unfinished), False
        while remaining and may_go_on():
            result = drive_steps(
                publish_round(remaining, self.write_tiles, self.verify), self.state, self.log, self.wait_for_slot
            )
            has_new_tiles |= bool(result.with_new_tiles)
            outcome.up_to_date |= result.up_to_date
            outcome.with_new_tiles |= result.with_new_tiles
            outcome.blocked |= result.blocked
            outcome.blocked_zones |= result.blocked_zones
            outcome.unfinished -= result.up_to_date | result.blocked.keys()
            again = result.unfinished if remaining is desired else result.unfinished & result.with_new_tiles
            remaining = {shard: desired[shard] for shard in again}
        return has_new_tiles or len(outcome.unfinished) < before


def open_log(log: Database | ObjectLog) -> PostgresLogStore | ObjectLogStore:
    """Return a log to publish to."""
    return PostgresLogStore(log.dsn) if isinstance(log, Database) else ObjectLogStore(log.open())


PUBLISH_TIMEOUT_S = 60.0
LOG_CLOCK = "clock of the log"  # where it is the reason why a shard is not finished


@dataclass(slots=True)
class PublisherContext:
    """Both stores and the keys of an operator, ready to publish."""

    state: PostgresStateStore
    log: PostgresLogStore | ObjectLogStore
    keyring: Keyring
    release_slot_s: float = 1.0
    keys: Path | None = None  # where a key is looked for that the keyring does not have
    _plans: dict[str, set[str]] = field(default_factory=dict, init=False)  # by shard

    @classmethod
    def from_databases(cls, databases: Databases, keys: Path, release_slot_s: float = 1.0) -> PublisherContext:
        return cls(
            PostgresStateStore(databases.state.dsn),
            open_log(databases.log),
            load_keyring(keys),
            release_slot_s,
            keys,
        )

    def close(self) -> None:
        """Close both connections. They are reopened on the next call."""
        self.state.close()
        self.log.close()

    def reload_keyring(self) -> None:
        """Read the keys again: `murmurate keys rotate` may have added one. Raises MurmurateError for a damaged one."""
        if self.keys is not None:
            self.keyring = load_keyring(self.keys)

    def publish(
        self,
        desired: Mapping[str, DesiredState],
        timeout_s: float = PUBLISH_TIMEOUT_S,
        *,
        stall_s: float = inf,
        on_progress: Callable[[], object] = report_progress,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> tuple[Outcome, set[str]]:
        """Draw noise, sign tiles and append them to the log, until the shards are in their desired states.

        It ends before as `Publisher.publish` says. `on_progress` is called before each batch of shards, and while their
        plans are read. Returns the outcome and the names of the errors on the way.
        """
        signers = ReloadingSigners(self.keyring, self.keys)
        writer = TileWriter(
            terms_for_plan=self.state.terms_for_plan,
            signers=signers,
            noise=SystemNoise(),
            find_inputs=self.state.find_inputs,
        )

        def load_plans(shards: Iterable[str]) -> None:
            """Read the plans of some shards together, as far as they were not read yet: the others need not wait."""
            on_progress()
            self.state.load_terms({plan for shard in shards for plan in self._plans.get(shard, ())}, on_progress)

        publisher = Publisher(
            state=self.state,
            log=self.log,
            write_tiles=writer.write_tiles,
            wait_for_slot=ReleaseSlotClock(release_slot_s=self.release_slot_s).wait_for_slot,
            load_plans=load_plans,
        )
        failed: set[str] = set()
        outcome = publisher.publish(
            desired, timeout_s=timeout_s, stall_s=stall_s, is_stopped=is_stopped, on_failure=failed.add
        )
        return outcome, failed

    def explain_unfinished(self, desired: Mapping[str, DesiredState], outcome: Outcome) -> dict[str, str]:
        """Why the log has not taken a tile, as far as it says: by its clock an interval is not over, or a rule."""
        refused = self.log.refused if isinstance(self.log, ObjectLogStore) else {}
        reasons = {shard: refused[shard] for shard in outcome.unfinished & refused.keys()}
        reading, unfinished = self.log.clock_reading, [desired[shard] for shard in outcome.unfinished]
        ends_s = [(each.until + 1) * each.opening.interval_s for each in unfinished if each.opening is not None]
        left_s = 0.0 if reading is None or not ends_s else max(ends_s) - reading.earliest_s
        if left_s <= 0:
            return reasons
        reason = f"is behind: by it the interval is over in {left_s:,.0f} s, and no release is taken before"
        return reasons | {LOG_CLOCK: f"{reason}; check NTP on its server"}

    def desired_states(
        self,
        now: float,
        grace_s: int,
        until: Mapping[int, int] | None = None,
        opened: Mapping[str, tuple[str, ZoneOpening]] | None = None,
    ) -> dict[str, DesiredState]:
        """The desired state of every shard at this time [s of UTC].

        `until` is the last interval to decide for now, by length of the interval [s]; otherwise all that are due.
        `opened` are the zones of the state, where they were read already.
        """
        zones: dict[str, dict[str, ZoneOpening]] = {}
        self._plans = {shard: {row.plan for row in table.rows} for shard, table in self.state.tables().items()}
        for zone, (shard, zone_opening) in (self.state.zones() if opened is None else opened).items():
            zones.setdefault(shard, {})[zone] = zone_opening
            self._plans.setdefault(shard, set()).add(zone_opening.plan)
        desired = {}
        for shard, opening in self.state.shards().items():
            schedule = ReleaseSchedule(interval_s=opening.interval_s, lead_intervals=opening.lead, grace_s=grace_s)
            due = schedule.due_interval(now)
            desired[shard] = DesiredState(
                until=min(due, (until or {}).get(opening.interval_s, due)),
                priced_from=schedule.first_in_time(now),
                opening=opening,
                zones=zones.get(shard, {}),
            )
        return desired

    def register_plans(self, texts: Iterable[str]) -> None:
        """Store proven plans in the state, and publish them in the log."""
        documents = {ReleaseTerms.from_json(text).plan_digest: compact_plan(text) for text in texts}
        self.state.register_plans(documents)
        self.log.publish_documents(documents)

    def plan_document(self, digest: str) -> str:
        """The document of a published plan."""
        text = self.log.documents([digest]).get(digest)
        if text is not None:
            return text
        raise MurmurateError("plan", digest, "is in no store; run murmurate zone open with its plan.json")
