"""Both stores and the keys of an operator, ready to publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.privacy.noise import SystemNoise
from murmurate.publisher.desired_state import DesiredState, ZoneOpening
from murmurate.publisher.protocol import Outcome
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.clock import ReleaseSchedule, ReleaseSlotClock
from murmurate.service.keyring import Keyring, ReloadingSigners, load_keyring
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher

PUBLISH_TIMEOUT_S = 60.0
LOG_CLOCK = "clock of the log"  # where it is the reason why a shard is not finished


@dataclass(slots=True)
class PublisherContext:
    """Both stores and the keys of an operator, ready to publish."""

    state: PostgresStateStore
    log: PostgresLogStore
    keyring: Keyring
    release_slot_s: float = 1.0
    keys: Path | None = None  # where a key is looked for that the keyring does not have
    on_progress: Callable[[], None] = lambda: None  # called before each batch of shards
    _plans: dict[str, set[str]] = field(default_factory=dict, init=False)  # by shard

    @classmethod
    def from_databases(cls, databases: Databases, keys: Path, release_slot_s: float = 1.0) -> PublisherContext:
        return cls(
            PostgresStateStore(databases.state.dsn),
            PostgresLogStore(databases.log.dsn),
            load_keyring(keys),
            release_slot_s,
            keys,
        )

    def close(self) -> None:
        """Close both connections. They are reopened on the next call."""
        self.state.close()
        self.log.close()

    def reload_keyring(self) -> None:
        """Read the keys again: `murmurate rotate` may have added one. Raises MurmurateError where one is damaged."""
        if self.keys is not None:
            self.keyring = load_keyring(self.keys)

    def make_publisher(self) -> Publisher:
        """A publisher that draws noise, signs tiles and appends them to the log."""
        signers = ReloadingSigners(self.keyring, self.keys)
        writer = TileWriter(terms_for_plan=self.state.terms_for_plan, signers=signers, noise=SystemNoise())
        return Publisher(
            state=self.state,
            log=self.log,
            write_tiles=writer.write_tiles,
            wait_for_slot=ReleaseSlotClock(release_slot_s=self.release_slot_s).wait_for_slot,
            load_plans=self._load_plans,
        )

    def _load_plans(self, shards: Iterable[str]) -> None:
        """Read the plans of some shards together, as far as they were not read yet: the others need not wait."""
        self.on_progress()
        self.state.load_terms({plan for shard in shards for plan in self._plans.get(shard, ())})

    def publish(
        self, desired: Mapping[str, DesiredState], timeout_s: float = PUBLISH_TIMEOUT_S
    ) -> tuple[Outcome, set[str]]:
        """Bring the shards to their desired states. Returns the outcome and the names of the errors on the way."""
        failed: set[str] = set()
        return self.make_publisher().publish(desired, timeout_s=timeout_s, on_failure=failed.add), failed

    def explain_unfinished(self, desired: Mapping[str, DesiredState], outcome: Outcome) -> dict[str, str]:
        """Why the log has not taken a release, if its clock is the reason: by it an interval is not over."""
        reading, unfinished = self.log.clock_reading, [desired[shard] for shard in outcome.unfinished]
        ends_s = [(each.until + 1) * each.opening.interval_s for each in unfinished if each.opening is not None]
        left_s = 0.0 if reading is None or not ends_s else max(ends_s) - reading.earliest_s
        if left_s <= 0:
            return {}
        reason = f"is behind: by it the interval is over in {left_s:,.0f} s, and no release is taken before"
        return {LOG_CLOCK: f"{reason}; check NTP on its server"}

    def desired_states(
        self, now: float, grace_s: int, until: Mapping[int, int] | None = None
    ) -> dict[str, DesiredState]:
        """The desired state of every shard at this time [s of UTC].

        `until` is the last interval to decide for now, by length of the interval [s]; otherwise all that are due.
        """
        zones: dict[str, dict[str, ZoneOpening]] = {}
        self._plans = {shard: {row.plan for row in table.rows} for shard, table in self.state.tables().items()}
        for zone, (shard, zone_opening) in self.state.zones().items():
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
        raise MurmurateError("plan", digest, "is in no store; run murmurate open with its plan.json")
