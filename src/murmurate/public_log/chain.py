"""The rules of a chain: what may follow what. The log, the publisher and the verifier all ask this one function."""

from __future__ import annotations

from collections.abc import Callable

from murmurate.errors import ChainError
from murmurate.public_log.record import GENESIS_PREV, RELEASE_KINDS, Entry, Record, RecordKind

VerifySignature = Callable[[str, bytes, str], bool]  # public key, message, signature

MECHANISM_COST_MEMBERS = {
    "laplace": "epsilon_micro",
    "huber": "epsilon_micro",
    "gaussian": "rho_micro",
}  # and what each one spends


def check_next(head: Entry | None, entry: Entry, verify: VerifySignature) -> Entry:
    """`entry`, if it may come next after `head` in the chain of a zone. Raises ChainError naming the rule it breaks."""
    check_follows(head, entry)
    check_signature(entry, verify)
    return entry


def check_signature(entry: Entry, verify: VerifySignature) -> None:
    """Raise ChainError unless the key that the record names has signed it."""
    if not verify(entry.record.key, entry.signed_bytes(), entry.signature):
        raise ChainError(
            "signature", f"of {record_label(entry.record)}", "must be made by the key that the record names"
        )


def check_follows(head: Entry | None, entry: Entry) -> None:
    """Raise ChainError unless `entry` may follow `head`. Signatures are not checked."""
    record = entry.record
    _check_members(record)
    if head is None:
        _require_members(
            record, kind=RecordKind.OPEN, seq=0, prev=GENESIS_PREV, total_epsilon_micro=0, total_rho_micro=0
        )
        return
    last = head.record
    if record.kind is RecordKind.OPEN:
        raise ChainError("kind", record.kind, "opens a chain that is open already")
    _require_members(
        record,
        zone=last.zone,
        seq=last.seq + 1,
        prev=head.hash,
        key=head.key_in_force,
        interval=last.interval + (record.kind in RELEASE_KINDS),
        interval_s=last.interval_s,
        total_epsilon_micro=last.total_epsilon_micro + record.epsilon_micro,
        total_rho_micro=last.total_rho_micro + record.rho_micro,
    )
    _require_members(record, applies=record.interval + head.lead_intervals)
    if record.kind is not RecordKind.PLAN:
        _require_members(record, plan=last.plan, currency=last.currency, tick=last.tick)


def _check_members(record: Record) -> None:
    """What each kind of record may and must hold."""
    if record.interval_s < 1:
        raise ChainError("interval_s", record.interval_s, "must be at least one second")
    if (record.next_key is not None) != (record.kind is RecordKind.KEY):
        raise ChainError("next_key", record.next_key, "belongs in a key record, and in no other")
    priced = record.kind in {RecordKind.MEASURED, RecordKind.FORECAST}
    if (record.price_ticks is not None) != priced:
        raise ChainError("price_ticks", record.price_ticks, f"does not fit a {record.kind} record")
    if record.kind is not RecordKind.MEASURED:
        _require_members(record, noise="none", scale_wh=None, core_wh=0, epsilon_micro=0, rho_micro=0)
        return
    if record.noise not in MECHANISM_COST_MEMBERS:
        raise ChainError(
            "noise", record.noise, f"must be {' or '.join(MECHANISM_COST_MEMBERS)}; test-only noise is never published"
        )
    if record.scale_wh is None:
        raise ChainError("record", record_label(record), "must state the scale of its noise")
    if record.core_wh < 0 or (record.core_wh and record.noise != "huber"):
        raise ChainError("core_wh", record.core_wh, "belongs to huber noise, and is never negative")
    for spent in MECHANISM_COST_MEMBERS.values():
        cost = getattr(record, spent)
        if cost < 0 or (cost and spent != MECHANISM_COST_MEMBERS[record.noise]):
            raise ChainError(spent, cost, f"must be what {record.noise} noise spends, never negative")


def _require_members(record: Record, **expected: object) -> None:
    for field, value in expected.items():
        if getattr(record, field) != value:
            allowed = f"must be {value} in {record_label(record)}"
            raise ChainError(field, getattr(record, field), allowed)


def record_label(record: Record) -> str:
    """How a person finds a record: zone and number."""
    return f"record {record.seq} of {record.zone}"
