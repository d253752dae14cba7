"""An operator's office: both stores and the keys, ready to publish, and how a command says what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from murmurate.curator.terms import Terms
from murmurate.errors import MurmurateError
from murmurate.privacy.noise import SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.publisher import Outcome
from murmurate.publication.wish import Wish
from murmurate.service.clock import BeatClock, Schedule
from murmurate.service.databases import Databases
from murmurate.service.keyring import Keyring, load_keys
from murmurate.service.publiclog import PostgresLog
from murmurate.service.publishing import Publisher
from murmurate.service.state import PostgresState

NO_RELEASE = -(2**62)  # a wish that decides no interval
MOST_SHOWN = 20
PATIENCE_S = 60.0

out = Console(highlight=False, soft_wrap=True, markup=False)
aside = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


@dataclass(slots=True)
class Office:
    """Both stores and the keys of an operator, ready to publish."""

    state: PostgresState
    log: PostgresLog
    keys: Keyring
    beat_s: float = 1.0

    @classmethod
    def of(cls, databases: Databases, keys: Path, beat_s: float = 1.0) -> Office:
        return cls(PostgresState(databases.state.dsn), PostgresLog(databases.log.dsn), load_keys(keys), beat_s)

    def close(self) -> None:
        """Hang up on both stores; a later call connects again."""
        self.state.close()
        self.log.close()

    def publisher(self) -> Publisher:
        """Whoever draws, signs and offers."""
        signers = {signer.public: signer for signer in self.keys.signers}
        desk = Desk(terms=self.state.terms, signers=signers, noise=SystemNoise())
        return Publisher(state=self.state, log=self.log, write=desk.write, wait=BeatClock(beat_s=self.beat_s).wait)

    def publish(self, wishes: Mapping[str, Wish], patience_s: float = PATIENCE_S) -> tuple[Outcome, set[str]]:
        """Fulfil these wishes; also the names of what failed on the way."""
        failed: set[str] = set()
        with aside.status(f"publishing for {len(wishes):,} {zones_word(wishes)}"):
            return self.publisher().publish(wishes, patience_s=patience_s, failed=failed.add), failed

    def due(self, now: float, grace_s: int) -> tuple[dict[str, Wish], dict[str, str]]:
        """What every zone wants at this time [s of UTC], and the zones whose plan is lost, with the remedy."""
        wishes, unplanned = {}, {}
        for zone, opening in self.state.openings().items():
            terms = self.state.terms(opening.plan)
            if terms is None:
                unplanned[zone] = f"plan {opening.plan} is not registered; run murmurate open with its plan.json"
                continue
            schedule = Schedule(interval_s=terms.interval_s, lead=opening.lead, grace_s=grace_s)
            wishes[zone] = schedule.wish(now, opening)
        return wishes, unplanned

    def register(self, text: str) -> None:
        """Keep a proven plan, and show it to everybody."""
        digest = Terms.of(text).plan
        self.state.register(digest, text)
        self.log.publish_plan(digest, text)

    def plan(self, digest: str) -> str:
        """The document of a published plan."""
        text = self.log.plan(digest)
        if text is not None:
            return text
        raise MurmurateError("plan", digest, "is in no store any more; put the plan.json back with murmurate open")


def status(outcome: Outcome, failed: set[str]) -> int:
    """Say what needs a person, or another run; 1 if anything does."""
    for zone, why in sorted(outcome.aside.items())[:MOST_SHOWN]:
        aside.print(f"{zone}: set aside: {why}")
    if len(outcome.aside) > MOST_SHOWN:
        aside.print(f"and {len(outcome.aside) - MOST_SHOWN:,} zones more.")
    if any("mend it first" in why for why in outcome.aside.values()):
        aside.print("The log has lost entries that were public. murmurate mend gives them back; see how-to/restore.")
    if outcome.moved:
        why = f" ({', '.join(sorted(failed))})" if failed else ""
        aside.print(f"{len(outcome.moved):,} {zones_word(outcome.moved)} not finished in time{why}: run it again.")
    return 1 if outcome.aside or outcome.moved else 0


def zones_word(some: Sized) -> str:
    return "zone" if len(some) == 1 else "zones"
