"""Lines that an honest publisher would not write: the next one of a zone, with a member changed."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

from murmurate.publication.record import NOBODY, Entry, Kind, Record, sign
from murmurate.publication.signing import Signer
from tests.simulation import cast, rules
from tests.simulation.theatre import Stage

_NOTHING = {"epsilon_micro": 0, "rho_micro": 0, "noise": "none", "scale_wh": None, "core_wh": 0, "price_ticks": None}
_LAPLACE = {"noise": "laplace", "scale_wh": "2.0", "core_wh": 0, "price_ticks": 5, "epsilon_micro": 3}
_HUBER = _LAPLACE | {"noise": "huber", "core_wh": 7}


def forge(stage: Stage, zone: str) -> Entry:
    """The next line of a zone as it might be, signed by the right key."""
    head = stage.log.heads[zone]
    return sign(_opening(stage, zone) if head is None else _next(stage, head), _signer(stage, head))


def _signer(stage: Stage, head: Entry | None) -> Signer:
    key = stage.signers[0].public if head is None else head.key
    return next(signer for signer in stage.signers if signer.public == key)


class Stranger:
    """Holds no key of the chain."""

    public = "f" * 64

    @staticmethod
    def sign(message: bytes) -> str:
        return sha256(message).hexdigest()


def unsigned(stage: Stage, zone: str) -> Entry | None:
    """A line that follows, but for its signature."""
    entry = forge(stage, zone)
    if entry.record.interval >= stage.log.now:
        return None
    return sign(entry.record, Stranger())


def altered(stage: Stage, zone: str) -> tuple[Entry, str | None]:
    """A line that breaks a rule, and which; chance may find one that breaks none."""
    head = stage.log.heads[zone]
    honest = _opening(stage, zone) if head is None else _next(stage, head)
    changes = _changes(stage, honest)
    if stage.weather.chance(0.5) and head is not None:  # a wrong cost, soundly added up
        last = head.record
        changes["total_epsilon_micro"] = last.total_epsilon_micro + changes.get("epsilon_micro", honest.epsilon_micro)
        changes["total_rho_micro"] = last.total_rho_micro + changes.get("rho_micro", honest.rho_micro)
    if stage.weather.chance(0.5) and head is not None and "interval" in changes:
        changes["applies"] = changes["interval"] + head.lead
    entry = sign(replace(honest, **changes), _signer(stage, head))
    before = None if head is None else stage.oracle.parsed(head)
    return entry, rules.misfit(before, NOBODY if head is None else head.hash, stage.oracle.parsed(entry))


def _changes(stage: Stage, record: Record) -> dict[str, Any]:
    name = "interval_s" if record.kind is Kind.OPEN and stage.weather.chance(0.3) else stage.pick(_CHANGED)
    value = getattr(record, name)
    if name == "kind":
        return {"kind": stage.pick((*Kind, Kind.OPEN))}
    if name == "interval_s" and stage.weather.chance(0.5):
        return {name: stage.weather.below(2)}
    if name == "noise":
        return {name: stage.pick(("rehearsal of laplace", "none", "gaussian", "laplace", "huber"))}
    if name in {"scale_wh", "price_ticks", "next_key"}:
        return {name: None if value is not None else (5 if name == "price_ticks" else "f" * 64)}
    if isinstance(value, int):
        return {name: value + stage.pick((-1, 1, -1000))}
    return {name: stage.pick(("f" * 64, NOBODY, stage.signers[2].public))}


_CHANGED = (*sorted(rules.MEMBERS - {"murmurate", "signature", "zone"}), "kind", "kind")


def _opening(stage: Stage, zone: str) -> Record:
    terms, opening = cast.PLANS_OF[zone][0].terms, stage.openings[zone]
    return Record(
        zone=zone,
        seq=0,
        kind=Kind.OPEN,
        interval=opening.first - 1,
        applies=opening.first - 1 + stage.lead,
        interval_s=cast.INTERVAL_S,
        plan=terms.plan,
        currency=terms.currency,
        tick=str(terms.curve.tick),
        key=opening.key,
        prev=NOBODY,
    )


def _next(stage: Stage, head: Entry) -> Record:
    last = head.record
    kind = stage.pick((Kind.MEASURED, Kind.MEASURED, Kind.WITHHELD, Kind.FORECAST, Kind.KEY, Kind.PLAN, Kind.PLAN))
    interval = last.interval + (kind in rules.RELEASES)
    record = replace(last, seq=last.seq + 1, prev=head.hash, key=head.key, next_key=None, kind=kind, interval=interval)
    record = replace(record, **_NOTHING, applies=interval + head.lead)
    if kind is Kind.KEY:
        return replace(record, next_key=stage.signers[1].public)
    if kind is Kind.FORECAST:
        return replace(record, price_ticks=5)
    if kind is Kind.MEASURED:
        return replace(record, **stage.pick((_LAPLACE, _HUBER)), total_epsilon_micro=last.total_epsilon_micro + 3)
    return record
