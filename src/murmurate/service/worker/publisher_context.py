"""Both stores and the keys of an operator, ready to publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import SystemNoise
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import BlockedCode, BlockedReason, Outcome
from murmurate.publisher.record_writer import RecordWriter
from murmurate.service.clock import ReleaseSchedule, ReleaseSlotClock
from murmurate.service.keyring import Keyring, load_keyring
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher

PUBLISH_TIMEOUT_S = 60.0


@dataclass(slots=True)
class PublisherContext:
    """Both stores and the keys of an operator, ready to publish."""

    state: PostgresStateStore
    log: PostgresLogStore
    keyring: Keyring
    release_slot_s: float = 1.0

    @classmethod
    def from_databases(cls, databases: Databases, keys: Path, release_slot_s: float = 1.0) -> PublisherContext:
        return cls(
            PostgresStateStore(databases.state.dsn),
            PostgresLogStore(databases.log.dsn),
            load_keyring(keys),
            release_slot_s,
        )

    def close(self) -> None:
        """Close both connections. They are reopened on the next call."""
        self.state.close()
        self.log.close()

    def make_publisher(self) -> Publisher:
        """A publisher that draws noise, signs records and appends them to the log."""
        signers = {signer.public_key: signer for signer in self.keyring.signers}
        writer = RecordWriter(terms_for_plan=self.state.terms_for_plan, signers=signers, noise=SystemNoise())
        return Publisher(
            state=self.state,
            log=self.log,
            write_entries=writer.write_entries,
            wait_for_slot=ReleaseSlotClock(release_slot_s=self.release_slot_s).wait_for_slot,
        )

    def publish(
        self, desired: Mapping[str, DesiredState], timeout_s: float = PUBLISH_TIMEOUT_S
    ) -> tuple[Outcome, set[str]]:
        """Bring the zones to their desired states. Returns the outcome and the names of the errors on the way."""
        failed: set[str] = set()
        return self.make_publisher().publish(desired, timeout_s=timeout_s, on_failure=failed.add), failed

    def desired_states(self, now: float, grace_s: int) -> tuple[dict[str, DesiredState], dict[str, BlockedReason]]:
        """The desired state of every zone at this time [s of UTC], and the zones whose plan is not registered."""
        desired, without_plan = {}, {}
        for zone, opening in self.state.openings().items():
            terms = self.state.terms_for_plan(opening.plan)
            if terms is None:
                text = f"plan {opening.plan} is not registered; run murmurate open with its plan.json"
                without_plan[zone] = BlockedReason(BlockedCode.PLAN_NOT_REGISTERED, text)
                continue
            schedule = ReleaseSchedule(interval_s=terms.interval_s, lead_intervals=opening.lead, grace_s=grace_s)
            desired[zone] = schedule.desired_state(now, opening)
        return desired, without_plan

    def register_plan(self, text: str) -> None:
        """Store a proven plan in the state, and publish it in the log."""
        digest = ReleaseTerms.from_json(text).plan_digest
        self.state.register_plan(digest, text)
        self.log.publish_plan(digest, text)

    def plan_document(self, digest: str) -> str:
        """The document of a published plan."""
        text = self.log.plan_document(digest)
        if text is not None:
            return text
        raise MurmurateError("plan", digest, "is in no store; run murmurate open with its plan.json")
