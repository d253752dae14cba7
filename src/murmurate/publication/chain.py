"""The rules of a chain: what may follow what. The log, the publisher and the verifier all ask this one function."""

from __future__ import annotations

from collections.abc import Callable

from murmurate.errors import ChainError
from murmurate.publication.record import NOBODY, RELEASES, Entry, Kind, Record

Verify = Callable[[str, bytes, str], bool]  # public key, message, signature

MECHANISMS = {"laplace": "epsilon_micro", "huber": "epsilon_micro", "gaussian": "rho_micro"}  # and what each one spends


def follow(head: Entry | None, entry: Entry, verify: Verify) -> Entry:
    """`entry`, if it may come next after `head` in the chain of a zone. Raises ChainError naming the rule it breaks."""
    refuse_misfit(head, entry)
    refuse_unsigned(entry, verify)
    return entry


def refuse_unsigned(entry: Entry, verify: Verify) -> None:
    """Raise ChainError unless the key that the record names has signed it."""
    if not verify(entry.record.key, entry.signed_bytes(), entry.signature):
        raise ChainError("signature", f"of {name(entry.record)}", "must be made by the key that the record names")


def refuse_misfit(head: Entry | None, entry: Entry) -> None:
    """Raise ChainError unless `entry` has its place after `head`, whoever signed it."""
    record = entry.record
    _refuse_shape(record)
    if head is None:
        _require(record, kind=Kind.OPEN, seq=0, prev=NOBODY, total_epsilon_micro=0, total_rho_micro=0)
        return
    last = head.record
    if record.kind is Kind.OPEN:
        raise ChainError("kind", record.kind, "opens a chain that is open already")
    _require(
        record,
        zone=last.zone,
        seq=last.seq + 1,
        prev=head.hash,
        key=head.key,
        interval=last.interval + (record.kind in RELEASES),
        interval_s=last.interval_s,
        total_epsilon_micro=last.total_epsilon_micro + record.epsilon_micro,
        total_rho_micro=last.total_rho_micro + record.rho_micro,
    )
    _require(record, applies=record.interval + head.lead)
    if record.kind is not Kind.PLAN:
        _require(record, plan=last.plan, currency=last.currency, tick=last.tick)


def _refuse_shape(record: Record) -> None:
    """What each kind of record may and must hold."""
    if record.interval_s < 1:
        raise ChainError("interval_s", record.interval_s, "must be at least one second")
    if (record.next_key is not None) != (record.kind is Kind.KEY):
        raise ChainError("next_key", record.next_key, "belongs in a key record, and in no other")
    priced = record.kind in {Kind.MEASURED, Kind.FORECAST}
    if (record.price_ticks is not None) != priced:
        raise ChainError("price_ticks", record.price_ticks, f"does not fit a {record.kind} record")
    if record.kind is not Kind.MEASURED:
        _require(record, noise="none", scale_wh=None, core_wh=0, epsilon_micro=0, rho_micro=0)
        return
    if record.noise not in MECHANISMS:
        raise ChainError("noise", record.noise, f"must be {' or '.join(MECHANISMS)}; a rehearsal is never published")
    if record.scale_wh is None:
        raise ChainError("record", name(record), "must state the scale of its noise")
    if record.core_wh < 0 or (record.core_wh and record.noise != "huber"):
        raise ChainError("core_wh", record.core_wh, "belongs to huber noise, and is never negative")
    for spent in MECHANISMS.values():
        cost = getattr(record, spent)
        if cost < 0 or (cost and spent != MECHANISMS[record.noise]):
            raise ChainError(spent, cost, f"must be what {record.noise} noise spends, never negative")


def _require(record: Record, **wanted: object) -> None:
    for field, value in wanted.items():
        if getattr(record, field) != value:
            allowed = f"must be {value} in {name(record)}"
            raise ChainError(field, getattr(record, field), allowed)


def name(record: Record) -> str:
    """How a person finds a record: zone and number."""
    return f"record {record.seq} of {record.zone}"
