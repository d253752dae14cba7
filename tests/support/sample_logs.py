"""Small public logs with real plans, and functions that change them."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.record import sign_record
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import Change, DesiredState, Opening, find_next_record
from murmurate.publisher.record_writer import RecordWriter
from murmurate.verification.verifier import check_log
from tests.support.sample_chains import NO_DEMAND, demand

DOCS = Path(__file__).parents[2] / "docs"
OLD, NEW, UNKNOWN_SIGNER = (Ed25519Signer(bytes([n]) * 32) for n in (1, 2, 3))
SIGNERS = {signer.public_key: signer for signer in (OLD, NEW, UNKNOWN_SIGNER)}
FIRST = 480_000


@cache
def plan(promise="any 24 h: epsilon 1", calibration="range", name="harbour", old="", new=""):
    """The text of a plan with an hour as its interval, in one line as a log has it."""
    text = EXAMPLE_ZONE_FILE.replace("interval_minutes = 15", "interval_minutes = 60").replace(
        '"harbour"', json.dumps(name)
    )
    text = text.replace('["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', json.dumps([promise]))
    text = text.replace('calibration = "range"', f'calibration = "{calibration}"')
    text = text.replace("Europe/Lisbon", "UTC").replace(old, new) if old else text.replace("Europe/Lisbon", "UTC")
    made = make_plan(parse_zone(text))
    return json.dumps(json.loads(made.to_json()), separators=(",", ":"))


PLAN, OTHER = plan(), plan("any 24 h: epsilon 1/2")
DIGEST, OTHER_DIGEST = (json.loads(text)["digest"] for text in (PLAN, OTHER))
TERMS = {ReleaseTerms.from_json(text).plan_digest: ReleaseTerms.from_json(text) for text in (PLAN, OTHER)}


def record_writer(noise=None, terms=None):
    return RecordWriter(terms_for_plan=(terms or TERMS).get, signers=SIGNERS, noise=noise or SystemNoise())


def grow(entries, desired, energy_wh=None, zone="harbour", writer=None):
    """Append the next record for a desired state."""
    head = entries[-1] if entries else None
    given = NO_DEMAND if energy_wh is None else demand(**{zone: energy_wh})
    drafts = (writer or record_writer()).write_entries({zone: (head, find_next_record(head, desired))}, given)
    assert not drafts.refused, drafts.refused
    return [*entries, drafts.written[zone]]


def open_chain(zone="harbour", writer=None, plan_digest=DIGEST, first=FIRST):
    opening = Opening(plan=plan_digest, key=OLD.public_key, first=first)
    return grow([], DesiredState(until=first, opening=opening), zone=zone, writer=writer)


@cache
def log(zone="harbour", measured=5):
    """Every kind of record, a plan change and a key rotation."""
    entries = open_chain(zone)
    for n in range(measured):
        entries = grow(entries, DesiredState(until=FIRST + n), 180_000 + n, zone)
    last = FIRST + measured
    entries = grow(entries, DesiredState(until=last), zone=zone)
    entries = grow(entries, DesiredState(until=last + 1, priced_from=last + 2), zone=zone)
    entries = grow(entries, DesiredState(until=0, plan_change=Change(DIGEST, OTHER_DIGEST)), zone=zone)
    entries = grow(entries, DesiredState(until=last + 2), 150_000, zone)
    entries = grow(entries, DesiredState(until=0, key_change=Change(OLD.public_key, NEW.public_key)), zone=zone)
    return tuple(grow(entries, DesiredState(until=last + 3), 160_000, zone))


def lines(entries):
    return [entry.line for entry in entries]


def check(*sources, plans=(PLAN, OTHER), **more):
    """The report on lists of lines."""
    return check_log({f"source {n}": lambda kept=kept: kept for n, kept in enumerate(sources)}, plans=plans, **more)


def rules(report):
    return {finding.rule for finding in report.findings}


def resign(entry, signer=OLD, **changes):
    return sign_record(replace(entry.record, **changes), signer)


def chained(entries):
    """The same records, each naming the hash of the one before as it is now."""
    fixed = [entries[0]]
    for entry in entries[1:]:
        fixed.append(resign(entry, SIGNERS[fixed[-1].key_in_force], prev=fixed[-1].hash, key=fixed[-1].key_in_force))
    return fixed
