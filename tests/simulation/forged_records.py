"""Entries that an honest publisher does not write: the next one of a zone, with a member changed."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

from murmurate.public_log.record import GENESIS_PREV, Entry, Record, RecordKind, sign_record
from murmurate.public_log.signing import Signer
from tests.simulation import reference_chain_rules
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.simulator import Simulation

_NOTHING = {"epsilon_micro": 0, "rho_micro": 0, "noise": "none", "scale_wh": None, "core_wh": 0, "price_ticks": None}
_LAPLACE = {"noise": "laplace", "scale_wh": "2.0", "core_wh": 0, "price_ticks": 5, "epsilon_micro": 3}
_HUBER = _LAPLACE | {"noise": "huber", "core_wh": 7}


def make_next_entry(sim: Simulation, zone: str) -> Entry:
    """Return a valid next entry of a zone, signed by the right key."""
    head = sim.log.heads[zone]
    return sign_record(_opening(sim, zone) if head is None else _next(sim, head), _signer(sim, head))


def _signer(sim: Simulation, head: Entry | None) -> Signer:
    key = sim.signers[0].public_key if head is None else head.key_in_force
    return next(signer for signer in sim.signers if signer.public_key == key)


class UnknownSigner:
    """Signs without a key of the chain."""

    public_key = "f" * 64

    @staticmethod
    def sign(message: bytes) -> str:
        return sha256(message).hexdigest()


def wrongly_signed_entry(sim: Simulation, zone: str) -> Entry | None:
    """Return an entry that follows but has a wrong signature; None before its interval has ended."""
    entry = make_next_entry(sim, zone)
    if entry.record.interval >= sim.log.now:
        return None
    return sign_record(entry.record, UnknownSigner())


def altered_entry(sim: Simulation, zone: str) -> tuple[Entry, str | None]:
    """Return an altered entry and the rule that it breaks, or None where it happens to break no rule."""
    head = sim.log.heads[zone]
    honest = _opening(sim, zone) if head is None else _next(sim, head)
    changes = _changes(sim, honest)
    if sim.faults.chance(0.5) and head is not None:  # a wrong cost with a matching total
        last = head.record
        changes["total_epsilon_micro"] = last.total_epsilon_micro + changes.get("epsilon_micro", honest.epsilon_micro)
        changes["total_rho_micro"] = last.total_rho_micro + changes.get("rho_micro", honest.rho_micro)
    if sim.faults.chance(0.5) and head is not None and "interval" in changes:
        changes["applies"] = changes["interval"] + head.lead_intervals
    entry = sign_record(replace(honest, **changes), _signer(sim, head))
    before = None if head is None else sim.oracle.parsed(head)
    return entry, reference_chain_rules.broken_rule(
        before, GENESIS_PREV if head is None else head.hash, sim.oracle.parsed(entry)
    )


def _changes(sim: Simulation, record: Record) -> dict[str, Any]:
    name = "interval_s" if record.kind is RecordKind.OPEN and sim.faults.chance(0.3) else sim.pick(_CHANGED)
    value = getattr(record, name)
    if name == "kind":
        return {"kind": sim.pick((*RecordKind, RecordKind.OPEN))}
    if name == "interval_s" and sim.faults.chance(0.5):
        return {name: sim.faults.below(2)}
    if name == "noise":
        return {name: sim.pick(("test-only laplace", "none", "gaussian", "laplace", "huber"))}
    if name in {"scale_wh", "price_ticks", "next_key"}:
        return {name: None if value is not None else (5 if name == "price_ticks" else "f" * 64)}
    if isinstance(value, int):
        return {name: value + sim.pick((-1, 1, -1000))}
    return {name: sim.pick(("f" * 64, GENESIS_PREV, sim.signers[2].public_key))}


_CHANGED = (*sorted(reference_chain_rules.MEMBERS - {"murmurate", "signature", "zone"}), "kind", "kind")


def _opening(sim: Simulation, zone: str) -> Record:
    terms, opening = samples.PLANS_BY_ZONE[zone][0].terms, sim.openings[zone]
    return Record(
        zone=zone,
        seq=0,
        kind=RecordKind.OPEN,
        interval=opening.first - 1,
        applies=opening.first - 1 + sim.lead,
        interval_s=samples.INTERVAL_S,
        plan=terms.plan_digest,
        currency=terms.currency,
        tick=str(terms.curve.tick),
        key=opening.key,
        prev=GENESIS_PREV,
    )


def _next(sim: Simulation, head: Entry) -> Record:
    last = head.record
    kind = sim.pick(
        (
            RecordKind.MEASURED,
            RecordKind.MEASURED,
            RecordKind.WITHHELD,
            RecordKind.FORECAST,
            RecordKind.KEY,
            RecordKind.PLAN,
            RecordKind.PLAN,
        )
    )
    interval = last.interval + (kind in reference_chain_rules.RELEASES)
    record = replace(
        last, seq=last.seq + 1, prev=head.hash, key=head.key_in_force, next_key=None, kind=kind, interval=interval
    )
    record = replace(record, **_NOTHING, applies=interval + head.lead_intervals)
    if kind is RecordKind.KEY:
        return replace(record, next_key=sim.signers[1].public_key)
    if kind is RecordKind.FORECAST:
        return replace(record, price_ticks=5)
    if kind is RecordKind.MEASURED:
        return replace(record, **sim.pick((_LAPLACE, _HUBER)), total_epsilon_micro=last.total_epsilon_micro + 3)
    return record
