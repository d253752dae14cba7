"""What an operator does with a plan: open the chain of its zone, or put the zone under another one.

Both prove the plan first, which takes a second or two. They state an end and may be run again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from murmurate.curator.change import reach, refuse_change
from murmurate.curator.history import History
from murmurate.curator.plan import Plan
from murmurate.curator.planfile import load_plan
from murmurate.curator.terms import DAY_S, Terms
from murmurate.errors import ChainError
from murmurate.publication.record import RELEASES, Entry, Kind, Record, read
from murmurate.publication.wish import Change, Opening, Wish
from murmurate.service.clock import begin_of
from murmurate.service.databases import Databases, failures_in_one_line, first_entries, heads
from murmurate.service.keyring import Keyring
from murmurate.service.migrate import migrate
from murmurate.service.office import NO_RELEASE, Office, aside, out, status

_OTHER_RECORDS = 64  # changes of plan and key that may stand among the releases looked at


def open_zones(
    plans: Sequence[Path], databases: Databases, keys: Path, *, lead: int, first: str | None, quiet: bool = False
) -> int:
    """`murmurate open`: prepare both databases, prove the plans, show them, begin the chain of each plan's zone."""
    databases.check(prepared=False)
    if databases.together and not quiet:
        aside.print("Warning: state and log are on one server. What destroys one must not reach the other:")
        aside.print("keep the log on another machine, with other disks, other backups and another administrator.")
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
        office.close()
    for zone in [] if quiet else sorted(outcome.done):
        out.print(_opened(zone, openings[zone], proven, is_new=zone not in begun))
    return status(outcome, failed)


def _opening(terms: Terms, keys: Keyring, lead: int, first: str | None) -> Opening:
    step = terms.interval_s
    begins = int(time.time() // step) + 1 if first is None else begin_of(first, step, "--first") // step
    return Opening(plan=terms.plan, key=keys.newest.public, first=begins, lead=lead)


def _opened(zone: str, opening: Opening, proven: Mapping[Path, Plan], *, is_new: bool) -> str:
    day = next(plan.zone.intervals_per_day for plan in proven.values() if plan.zone.name == zone)
    step = DAY_S // day
    begins, paid = (datetime.fromtimestamp(at * step, UTC) for at in (opening.first, opening.first + opening.lead))
    what = "open" if is_new else "open already; it goes on as the log says"
    return f"{zone}: {what}. First measured {begins:%Y-%m-%d %H:%M} UTC, first paid {paid:%Y-%m-%d %H:%M} UTC."


def change(plan_file: Path, databases: Databases, keys: Path) -> int:
    """`murmurate change`: another plan for a zone from its next interval on, if all promises hold across the change."""
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
            out.print(f"{zone}: under plan {digest} already.")
            return 0
        with aside.status("proving the change"):
            refuse_change(_history(office, head, after), after)
        office.register(text)
        outcome, failed = office.publish({zone: Wish(until=NO_RELEASE, plan=Change(head.record.plan, digest))})
    if outcome.done:
        out.print(f"{zone}: under plan {digest} from the next interval on.")
    return status(outcome, failed)


def _history(office: Office, head: Entry, after: Plan) -> History:
    """What was released under the plan in force and those before it, as far back as the change must look."""
    zone, plans = head.record.zone, {head.record.plan: _proven(office.plan(head.record.plan), "the plan in force")}
    looked = reach([*plans.values(), after])
    while True:
        records = _releases(office, zone, head.record.seq - looked - _OTHER_RECORDS, head.record.seq)
        for digest in {record.plan for record in records} - plans.keys():
            plans[digest] = _proven(office.plan(digest), f"plan {digest[:12]}, which was in force before")
        needed = reach([*plans.values(), after])
        if needed <= looked:
            break
        looked = needed
    releases = [(plans[record.plan], record.kind is Kind.MEASURED) for record in records]
    first = records[0].interval if records else head.record.interval + 1
    return History.of(releases, first=first, complete=head.record.seq - looked - _OTHER_RECORDS < 0)


def _releases(office: Office, zone: str, after_seq: int, last_seq: int) -> list[Record]:
    found: list[Record] = []
    seq = max(-1, after_seq)
    while seq < last_seq:
        lines = office.log.read({zone: seq})[zone].lines
        found += [record for record in (read(line).record for line in lines) if record.kind in RELEASES]
        seq += len(lines)
    return found


def _proven(text: str, name: str) -> Plan:
    with aside.status(f"proving {name}"):
        return load_plan(text)
