"""What an operator does every day: make keys, release what is due, rotate a key.

Each command states an end and may be run again: what stands already is left as it is.
"""

from __future__ import annotations

import time
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.publication.wish import Change, Wish
from murmurate.service.databases import Databases, failures_in_one_line, heads
from murmurate.service.keyring import add_signing_key, load_keys, make_keys
from murmurate.service.office import NO_RELEASE, Office, out, status, zones_word


def new_keys(folder: Path) -> None:
    """`murmurate keys`."""
    made = make_keys(folder)
    out.print(f"Public key: {made.newest.public}")
    out.print("Show it to everybody, in a place other than the log. It is what they verify the log with.")
    out.print(f"Keep a copy of {folder}/ where nobody else can read it: who has it can sign for you.")


def release(databases: Databases, keys: Path, *, grace_s: int, beat_s: float, patience_s: float) -> int:
    """`murmurate release`: decide every interval that is due, in every zone."""
    databases.check()
    with failures_in_one_line():
        office = Office.of(databases, keys, beat_s)
        wishes, unplanned = office.due(time.time(), grace_s)
        zones = wishes.keys() | unplanned.keys()
        if not zones:
            raise MurmurateError("zones", "none", "open one first: murmurate open plan.json")
        outcome, failed = office.publish(wishes, patience_s)
    outcome.aside |= unplanned
    out.print(f"{len(outcome.done):,} of {len(zones):,} {zones_word(zones)} up to date.")
    return status(outcome, failed)


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
    out.print(f"{len(outcome.done):,} of {len(wishes):,} {zones_word(wishes)} now signed by {new}")
    out.print("Keep the new file with the old ones, on every machine that publishes. Old keys are still needed.")
    return status(outcome, failed)
