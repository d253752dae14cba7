"""What must hold of a public log and of the state that made it, whatever was done to them."""

from __future__ import annotations

from itertools import pairwise

from murmurate.curator.terms import Terms
from murmurate.publication.chain import follow
from murmurate.publication.record import RELEASES, Entry, Kind, read
from murmurate.publication.signing import verify
from tests.live.pair import Pair, Violation
from tests.live.world import FIRST, LEFT_OUT


def witness(pair: Pair) -> int:
    """Whatever was public once is public now, byte for byte. The number of lines."""
    now = pair.lines()
    for zone, before in pair.witnessed.items():
        if now.get(zone, [])[: len(before)] != before:
            raise Violation(f"{pair.name}: {zone} is not what it was")
    pair.witnessed = now
    return sum(map(len, now.values()))


def check(pair: Pair, until: int) -> int:
    """Everything, after the work was finished up to an interval. The number of releases."""
    witness(pair)
    world = pair.room.world
    if pair.witnessed.keys() != set(world.zones):
        raise Violation(f"{pair.name}: chains of {len(pair.witnessed)} zones instead of {len(world.zones)}")
    known: dict[str, list[str]] = {}
    for zone, line in pair.state.execute("SELECT zone, line FROM curator.release ORDER BY zone, seq"):
        known.setdefault(zone, []).append(line)
    if known != pair.witnessed:
        raise Violation(f"{pair.name}: the state does not know the log as it is")
    if pair.state.execute("SELECT FROM curator.pending"):
        raise Violation(f"{pair.name}: a draw is still pending")
    return sum(_check_chain(zone, lines, world.terms, until) for zone, lines in pair.witnessed.items())


_UNREAD = {"noise": "none", "scale_wh": None, "core_wh": 0, "epsilon_micro": 0, "rho_micro": 0}


def _check_chain(zone: str, lines: list[str], terms: Terms, until: int) -> int:
    head: Entry | None = None
    chain = [head := follow(head, read(line), verify) for line in lines]
    released = [entry.record for entry in chain if entry.record.kind in RELEASES]
    if [record.interval for record in released] != list(range(FIRST, until + 1)):
        raise Violation(f"{zone}: not one release for each interval up to {until}")
    for before, after in pairwise(chain):
        if after.record.total_epsilon_micro < before.record.total_epsilon_micro:
            raise Violation(f"{zone}: the total cost falls")
    for record in released:
        slot = terms.slot(record.interval)
        measured = record.kind is Kind.MEASURED
        wanted = terms.noise_members(slot) if measured else _UNREAD
        if {name: getattr(record, name) for name in _UNREAD} != wanted:
            raise Violation(f"{zone}: noise or cost of interval {record.interval} is not the plan's")
        if not measured and record.price_ticks != int(terms.forecast_ticks[slot]):
            raise Violation(f"{zone}: the forecast of interval {record.interval} is not the plan's")
        if measured and record.interval % LEFT_OUT == 0:
            raise Violation(f"{zone}: interval {record.interval} has no demand that could be measured")
    if chain[-1].record.total_epsilon_micro != sum(record.epsilon_micro for record in released):
        raise Violation(f"{zone}: the total cost is not the sum")
    return len(released)
