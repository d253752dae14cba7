"""Small public logs with real plans, and hands to change them with."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from murmurate.curator.plan import make_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import EXAMPLE, parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.record import sign
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.verification import check_log
from murmurate.publication.wish import Change, Opening, Wish, next_task
from tests.publication.chains import NO_DEMAND, demand

DOCS = Path(__file__).parents[2] / "docs"
OLD, NEW, STRANGER = (Ed25519Signer(bytes([n]) * 32) for n in (1, 2, 3))
SIGNERS = {signer.public: signer for signer in (OLD, NEW, STRANGER)}
FIRST = 480_000


@cache
def plan(promise="any 24 h: epsilon 1", calibration="range", name="harbour", old="", new=""):
    """The text of a plan with an hour as its interval, in one line as a log has it."""
    text = EXAMPLE.replace("interval_minutes = 15", "interval_minutes = 60").replace('"harbour"', json.dumps(name))
    text = text.replace('["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', json.dumps([promise]))
    text = text.replace('calibration = "range"', f'calibration = "{calibration}"')
    text = text.replace("Europe/Lisbon", "UTC").replace(old, new) if old else text.replace("Europe/Lisbon", "UTC")
    made = make_plan(parse_zone(text))
    return json.dumps(json.loads(made.to_json()), separators=(",", ":"))


PLAN, OTHER = plan(), plan("any 24 h: epsilon 1/2")
DIGEST, OTHER_DIGEST = (json.loads(text)["digest"] for text in (PLAN, OTHER))
TERMS = {Terms.of(text).plan: Terms.of(text) for text in (PLAN, OTHER)}


def desk(noise=None, terms=None):
    return Desk(terms=(terms or TERMS).get, signers=SIGNERS, noise=noise or SystemNoise())


def grow(entries, wish, energy_wh=None, zone="harbour", at=None):
    """Append what the wish asks for next."""
    head = entries[-1] if entries else None
    given = NO_DEMAND if energy_wh is None else demand(**{zone: energy_wh})
    drafts = (at or desk()).write({zone: (head, next_task(head, wish))}, given)
    assert not drafts.refused, drafts.refused
    return [*entries, drafts.written[zone]]


def open_chain(zone="harbour", at=None, plan_digest=DIGEST, first=FIRST):
    opening = Opening(plan=plan_digest, key=OLD.public, first=first)
    return grow([], Wish(until=first, opening=opening), zone=zone, at=at)


@cache
def log(zone="harbour", measured=5):
    """Every kind of record, a plan change and a key rotation."""
    entries = open_chain(zone)
    for n in range(measured):
        entries = grow(entries, Wish(until=FIRST + n), 180_000 + n, zone)
    last = FIRST + measured
    entries = grow(entries, Wish(until=last), zone=zone)
    entries = grow(entries, Wish(until=last + 1, in_time_from=last + 2), zone=zone)
    entries = grow(entries, Wish(until=0, plan=Change(DIGEST, OTHER_DIGEST)), zone=zone)
    entries = grow(entries, Wish(until=last + 2), 150_000, zone)
    entries = grow(entries, Wish(until=0, key=Change(OLD.public, NEW.public)), zone=zone)
    return tuple(grow(entries, Wish(until=last + 3), 160_000, zone))


def lines(entries):
    return [entry.line for entry in entries]


def check(*sources, plans=(PLAN, OTHER), **more):
    """The report on lists of lines."""
    return check_log({f"source {n}": lambda kept=kept: kept for n, kept in enumerate(sources)}, plans=plans, **more)


def rules(report):
    return {finding.rule for finding in report.findings}


def resign(entry, signer=OLD, **changes):
    return sign(replace(entry.record, **changes), signer)


def chained(entries):
    """The same records, each naming the hash of the one before as it is now."""
    fixed = [entries[0]]
    for entry in entries[1:]:
        fixed.append(resign(entry, SIGNERS[fixed[-1].key], prev=fixed[-1].hash, key=fixed[-1].key))
    return fixed
