"""What an operator does: make keys, open a zone, release what is due, change a plan or a key.

Each command states an end and may be run again: what stands already is left as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from murmurate.curator.change import Used, refuse_straddling
from murmurate.curator.plan import Plan
from murmurate.curator.planfile import load_plan
from murmurate.curator.terms import DAY_S, Terms
from murmurate.errors import ChainError, MurmurateError
from murmurate.privacy.noise import SystemNoise
from murmurate.privacy.promise import WindowPromise
from murmurate.publication.desk import Desk
from murmurate.publication.publisher import Outcome
from murmurate.publication.record import Entry, read
from murmurate.publication.verification_plans import MOST_PLANS
from murmurate.publication.wish import Change, Opening, Wish
from murmurate.service.clock import BeatClock, Schedule
from murmurate.service.databases import Databases, failures_in_one_line, first_entries, heads
from murmurate.service.keyring import Keyring, add_signing_key, load_keys, make_keys
from murmurate.service.migrate import migrate
from murmurate.service.publiclog import PostgresLog
from murmurate.service.publishing import Publisher
from murmurate.service.state import PostgresState

NO_RELEASE = -(2**62)  # a wish that decides no interval
MOST_SHOWN = 20
PATIENCE_S = 60.0

_out = Console(highlight=False, soft_wrap=True, markup=False)
_aside = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


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

    def publish(self, wishes: Mapping[str, Wish], patience_s: float = PATIENCE_S) -> tuple[Outcome, set[str]]:
        """Fulfil these wishes; also the names of what failed on the way."""
        signers = {signer.public: signer for signer in self.keys.signers}
        desk = Desk(terms=self.state.terms, signers=signers, noise=SystemNoise(), input_key=self.keys.input_key)
        publisher = Publisher(state=self.state, log=self.log, write=desk.write, wait=BeatClock(beat_s=self.beat_s).wait)
        failed: set[str] = set()
        with _aside.status(f"publishing for {len(wishes):,} {_zones(wishes)}"):
            return publisher.publish(wishes, patience_s=patience_s, failed=failed.add), failed

    def register(self, text: str) -> None:
        """Keep a proven plan, and show it to everybody."""
        digest = Terms.of(text).plan
        self.state.register(digest, text)
        self.log.publish_plan(digest, text)

    def plan(self, digest: str) -> str:
        """The document of a published plan."""
        for text in self.log.plans():
            if json.loads(text).get("digest") == digest:
                return text
        raise MurmurateError("plan", digest, "is in no store any more; put the plan.json back with murmurate open")


def new_keys(folder: Path) -> None:
    """`murmurate keys`."""
    made = make_keys(folder)
    _out.print(f"Public key: {made.newest.public}")
    _out.print("Show it to everybody, in a place other than the log. It is what they verify the log with.")
    _out.print(f"Keep a copy of {folder}/ where nobody else can read it: who has it can sign for you.")


def open_zones(plans: Sequence[Path], databases: Databases, keys: Path, *, lead: int, first: str | None) -> int:
    """`murmurate open`: prepare both databases, prove the plans, show them, begin the chain of each plan's zone."""
    databases.check(prepared=False)
    if databases.together:
        _aside.print("Warning: state and log are on one server. What destroys one must not reach the other:")
        _aside.print("keep the log on another machine, with other disks, other backups and another administrator.")
    texts = {path: path.read_text(encoding="utf-8") for path in plans}
    proven = {path: _proven(text, str(path)) for path, text in texts.items()}
    with failures_in_one_line():
        migrate(databases.state.dsn, "state")
        migrate(databases.log.dsn, "log")
        office = Office.of(databases, keys)
        openings = {
            plan.zone.name: _opening(Terms.of(texts[path]), office.keys, lead, first) for path, plan in proven.items()
        }
        begun = first_entries(office.log, list(openings))
        for text in texts.values():
            office.register(text)
        for zone, entry in begun.items():
            record = entry.record
            openings[zone] = Opening(plan=record.plan, key=record.key, first=record.interval + 1, lead=entry.lead)
        for digest in {entry.record.plan for entry in heads(office.log, list(begun)).values()}:
            text = office.plan(digest)
            _proven(text, f"plan {digest}")
            office.state.register(digest, text)
        office.state.open(openings)
        outcome, failed = office.publish({zone: Wish(until=NO_RELEASE, opening=at) for zone, at in openings.items()})
    for zone in sorted(outcome.done):
        _out.print(_opened(zone, openings[zone], proven, is_new=zone not in begun))
    return _status(outcome, failed)


def _opening(terms: Terms, keys: Keyring, lead: int, first: str | None) -> Opening:
    step = terms.interval_s
    if first is None:
        return Opening(plan=terms.plan, key=keys.newest.public, first=int(time.time() // step) + 1, lead=lead)
    try:
        begins = datetime.fromisoformat(first)
    except ValueError:
        raise MurmurateError("--first", first, "must be a time such as 2026-05-01T00:00Z") from None
    if begins.tzinfo is None or begins.timestamp() % step:
        allowed = f"must name its time zone (2026-05-01T00:00Z) and begin an interval of {step} s"
        raise MurmurateError("--first", first, allowed)
    return Opening(plan=terms.plan, key=keys.newest.public, first=int(begins.timestamp()) // step, lead=lead)


def _opened(zone: str, opening: Opening, proven: Mapping[Path, Plan], *, is_new: bool) -> str:
    day = next(plan.zone.intervals_per_day for plan in proven.values() if plan.zone.name == zone)
    step = DAY_S // day
    begins, paid = (datetime.fromtimestamp(at * step, UTC) for at in (opening.first, opening.first + opening.lead))
    what = "open" if is_new else "open already; it goes on as the log says"
    return f"{zone}: {what}. First measured {begins:%Y-%m-%d %H:%M} UTC, first paid {paid:%Y-%m-%d %H:%M} UTC."


def release(databases: Databases, keys: Path, *, grace_s: int, beat_s: float, patience_s: float) -> int:
    """`murmurate release`: decide every interval that is due, in every zone."""
    databases.check()
    with failures_in_one_line():
        office = Office.of(databases, keys, beat_s)
        openings = office.state.openings()
        if not openings:
            raise MurmurateError("zones", "none", "open one first: murmurate open plan.json")
        now, wishes, unplanned = time.time(), {}, {}
        for zone, opening in openings.items():
            terms = office.state.terms(opening.plan)
            if terms is None:
                unplanned[zone] = f"plan {opening.plan} is not registered; run murmurate open with its plan.json"
                continue
            schedule = Schedule(interval_s=terms.interval_s, lead=opening.lead, grace_s=grace_s)
            wishes[zone] = schedule.wish(now, opening)
        outcome, failed = office.publish(wishes, patience_s)
    outcome.aside |= unplanned
    _out.print(f"{len(outcome.done):,} of {len(openings):,} {_zones(openings)} up to date.")
    return _status(outcome, failed)


def change(plan_file: Path, databases: Databases, keys: Path) -> int:
    """`murmurate change`: another plan for a zone from its next interval on, if each window across the change holds."""
    databases.check()
    text = plan_file.read_text(encoding="utf-8")
    after, digest = _proven(text, str(plan_file)), Terms.of(text).plan
    zone = after.zone.name
    with failures_in_one_line():
        office = Office.of(databases, keys)
        head = heads(office.log, [zone]).get(zone)
        if head is None or zone not in office.state.openings():
            raise ChainError("zone", zone, "is not open; murmurate open plan.json opens it")
        if head.record.plan == digest:
            _out.print(f"{zone}: under plan {digest} already.")
            return 0
        refuse_straddling(_used(office, head, after), after)
        office.register(text)
        outcome, failed = office.publish({zone: Wish(until=NO_RELEASE, plan=Change(head.record.plan, digest))})
    if outcome.done:
        _out.print(f"{zone}: under plan {digest} from the next interval on.")
    return _status(outcome, failed)


def _used(office: Office, head: Entry, after: Plan) -> list[Used]:
    """The plan in force and those that were before it, as far back as a window may reach."""
    zone = head.record.zone
    in_force = _proven(office.plan(head.record.plan), "the plan in force")
    promises = (*in_force.zone.promises, *after.zone.promises)
    longest = max((promise.intervals for promise in promises if isinstance(promise, WindowPromise)), default=0)
    costly: dict[str, int] = {}
    seq = max(-1, head.record.seq - longest - MOST_PLANS)
    while seq < head.record.seq:
        lines = office.log.read({zone: seq})[zone].lines
        for record in (read(line).record for line in lines):
            if record.epsilon_micro or record.rho_micro:
                costly.pop(record.plan, None)
                costly[record.plan] = record.interval
        seq += len(lines)
    costly.setdefault(head.record.plan, head.record.interval - longest - MOST_PLANS)
    plans = {digest: office.plan(digest) for digest in costly}
    return [Used(load_plan(plans[digest]), head.record.interval - last) for digest, last in costly.items()]


def rotate(databases: Databases, keys: Path) -> int:
    """`murmurate rotate`: a new signing key for every zone. One that was begun and not finished is finished first."""
    databases.check()
    with failures_in_one_line():
        office = Office.of(databases, keys)
        current = {zone: entry.key for zone, entry in heads(office.log, list(office.state.openings())).items()}
        if not current:
            raise MurmurateError("zones", "none", "open one first: murmurate open plan.json")
        if set(current.values()) == {office.keys.newest.public}:
            add_signing_key(keys)
            office.keys = load_keys(keys)
        new = office.keys.newest.public
        wishes = {zone: Wish(until=NO_RELEASE, key=Change(key, new)) for zone, key in current.items() if key != new}
        outcome, failed = office.publish(wishes)
    _out.print(f"{len(outcome.done):,} of {len(wishes):,} {_zones(wishes)} now signed by {new}")
    _out.print("Keep the new file with the old ones, on every machine that publishes. Old keys are still needed.")
    return _status(outcome, failed)


def _proven(text: str, name: str) -> Plan:
    with _aside.status(f"proving {name}"):
        return load_plan(text)


def _status(outcome: Outcome, failed: set[str]) -> int:
    """Say what needs a person, or another run; 1 if anything does."""
    for zone, why in sorted(outcome.aside.items())[:MOST_SHOWN]:
        _aside.print(f"{zone}: set aside: {why}")
    if len(outcome.aside) > MOST_SHOWN:
        _aside.print(f"and {len(outcome.aside) - MOST_SHOWN:,} zones more.")
    if any("mend it first" in why for why in outcome.aside.values()):
        _aside.print("The log has lost entries that were public. murmurate mend gives them back; see how-to/restore.")
    if outcome.moved:
        why = f" ({', '.join(sorted(failed))})" if failed else ""
        _aside.print(f"{len(outcome.moved):,} {_zones(outcome.moved)} not finished in time{why}: run it again.")
    return 1 if outcome.aside or outcome.moved else 0


def _zones(some: Sized) -> str:
    return "zone" if len(some) == 1 else "zones"
