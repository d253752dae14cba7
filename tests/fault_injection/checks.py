"""Rules that a public log and its state must follow after any fault."""

from __future__ import annotations

from itertools import pairwise

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.chain import check_next
from murmurate.public_log.record import RELEASE_KINDS, Entry, RecordKind, parse_entry
from murmurate.public_log.signing import verify_signature
from tests.fault_injection.sample_zones import FIRST, NO_DEMAND_EVERY
from tests.fault_injection.store_pair import StorePair, Violation


def check_append_only(stores: StorePair) -> int:
    """Check that every line that was public before is unchanged. Return the number of lines."""
    now = stores.lines()
    for zone, before in stores.earlier_lines.items():
        if now.get(zone, [])[: len(before)] != before:
            raise Violation(f"{stores.name}: {zone} has changed")
    stores.earlier_lines = now
    return sum(map(len, now.values()))


def check_log(stores: StorePair, until: int) -> int:
    """Check all rules after the work is finished up to an interval. Return the number of releases."""
    check_append_only(stores)
    sample = stores.context.sample
    if stores.earlier_lines.keys() != set(sample.zones):
        raise Violation(f"{stores.name}: chains of {len(stores.earlier_lines)} zones instead of {len(sample.zones)}")
    known: dict[str, list[str]] = {}
    for zone, line in stores.state.execute("SELECT zone, line FROM curator.release ORDER BY zone, seq"):
        known.setdefault(zone, []).append(line)
    if known != stores.earlier_lines:
        raise Violation(f"{stores.name}: the state's copy differs from the log")
    if stores.state.execute("SELECT FROM curator.pending"):
        raise Violation(f"{stores.name}: a draw is still pending")
    return sum(_check_chain(zone, lines, sample.terms, until) for zone, lines in stores.earlier_lines.items())


_NOT_MEASURED = {"noise": "none", "scale_wh": None, "core_wh": 0, "epsilon_micro": 0, "rho_micro": 0}


def _check_chain(zone: str, lines: list[str], terms: ReleaseTerms, until: int) -> int:
    head: Entry | None = None
    chain = [head := check_next(head, parse_entry(line), verify_signature) for line in lines]
    released = [entry.record for entry in chain if entry.record.kind in RELEASE_KINDS]
    if [record.interval for record in released] != list(range(FIRST, until + 1)):
        raise Violation(f"{zone}: not one release for each interval up to {until}")
    for before, after in pairwise(chain):
        if after.record.total_epsilon_micro < before.record.total_epsilon_micro:
            raise Violation(f"{zone}: the total cost falls")
    for record in released:
        slot = terms.slot_of_day(record.interval)
        measured = record.kind is RecordKind.MEASURED
        expected = terms.noise_members(slot) if measured else _NOT_MEASURED
        if {name: getattr(record, name) for name in _NOT_MEASURED} != expected:
            raise Violation(f"{zone}: noise or cost of interval {record.interval} is not the plan's")
        if not measured and record.price_ticks != int(terms.forecast_ticks[slot]):
            raise Violation(f"{zone}: the forecast of interval {record.interval} is not the plan's")
        if measured and record.interval % NO_DEMAND_EVERY == 0:
            raise Violation(f"{zone}: interval {record.interval} has no demand that could be measured")
    if chain[-1].record.total_epsilon_micro != sum(record.epsilon_micro for record in released):
        raise Violation(f"{zone}: the total cost is not the sum")
    return len(released)
