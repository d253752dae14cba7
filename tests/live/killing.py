"""Publishers and databases are killed while they work."""

from __future__ import annotations

import signal
import time
from collections import Counter
from itertools import cycle

from tests.live.chance import chance
from tests.live.checks import check, witness
from tests.live.kill_points import POINTS
from tests.live.pair import MURMURATE, Crew, Pair, Room, crew

_AHEAD = 40  # intervals with demand beyond what is published


def keep_ahead(pair: Pair) -> None:
    """More demand before the publishers run out of work."""
    zones = len(pair.room.world.zones)
    if pair.published() / zones > pair.until - _first(pair) - _AHEAD / 2:
        pair.extend(_AHEAD)


def _first(pair: Pair) -> int:
    return pair.room.world.openings()[pair.room.world.zones[0]].first


class Executioner:
    """Half of the publishers carry the place of their death with them, the others are killed by the clock."""

    def __init__(self, band: Crew, seed: int, points: tuple[str, ...]) -> None:
        self.band = band
        self.chance = chance(seed)
        self.fates = cycle([(point, visit) for visit in (1, 2, 3) for point in points])
        self.deadline: dict[int, float] = {}
        self.killed: Counter[str] = Counter()

    def refill(self) -> None:
        """Bury the dead and replace them."""
        for child in self.band.bury():
            self.deadline.pop(child.pid, None)
            if child.code == -signal.SIGKILL:
                self.killed[child.order["point"] or "at random"] += 1
        while len(self.band.children) < self.band.size:
            if self.chance.random() < 0.5:
                child = self.band.pair.publisher()
                self.deadline[child.pid] = time.monotonic() + self.chance.uniform(0.02, 0.15)
            else:
                point, visit = next(self.fates)
                child = self.band.pair.publisher(point=point, visit=visit)
            self.band.children.append(child)

    def strike(self) -> None:
        """Kill whose time has come."""
        now = time.monotonic()
        for child in self.band.children:
            if self.deadline.get(child.pid, now + 1) <= now:
                child.kill()


def sigkills(room: Room, kills: int, seed: int, protocol: str = MURMURATE) -> dict[str, int]:
    """SIGKILL of publishers at random and at every named point, three at work at any time."""
    pair = room.pair(f"sigkills of {protocol}", protocol)
    pair.extend(_AHEAD)
    points = POINTS if protocol == MURMURATE else ("before append", "after append", "before save", "after save")
    with crew(pair, 3) as band:
        executioner = Executioner(band, seed, points)
        turn = 0
        while executioner.killed.total() < kills:
            executioner.refill()
            executioner.strike()
            time.sleep(0.003)
            turn += 1
            if turn % 50 == 0:
                keep_ahead(pair)
                if protocol == MURMURATE:
                    witness(pair)
    until = pair.heal()
    counts = {"SIGKILLs": executioner.killed.total(), "named points": len(executioner.killed.keys() - {"at random"})}
    if protocol == MURMURATE:
        counts |= {"releases": check(pair, until), "rivals": pair.rivals()}
    else:
        counts |= {"double values": pair.doubles()}
    pair.end()
    return counts


def database_kills(room: Room, kills: int, seed: int) -> dict[str, int]:
    """kill -9 of the whole state cluster and of the whole log cluster, in turn, while three publishers work."""
    pair = room.pair("database kills")
    luck = chance(seed)
    with crew(pair, 3) as band:
        for number in range(kills):
            keep_ahead(pair)
            band.work(luck.uniform(0.15, 0.4))
            victim = (pair.state, pair.log)[number % 2]
            victim.kill()
            band.work(luck.uniform(0.0, 0.15))
            victim.start()
            witness(pair)
    until = pair.heal()
    counts = {"database kills": kills, "releases": check(pair, until), "rivals": pair.rivals()}
    pair.end()
    return counts
