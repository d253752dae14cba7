"""The state is failed over, split in two, and set back to an old backup; each time the readings turn out wrong too.

The standby's link is a proxy that hangs for a while before the fault, as a slow network does: what the primary commits
in that time is lost. The log in its own failure domain is all that remembers it. One publisher is late each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.chance import chance
from tests.live.checks import check, witness
from tests.live.cluster import Cluster
from tests.live.killing import keep_ahead
from tests.live.pair import MURMURATE, Pair, Room, Violation, crew
from tests.live.proxy import Mood, Proxy, proxy

_LATE_S = 2.0  # how long it holds its draw


@contextmanager
def _replica(pair: Pair) -> Iterator[tuple[Proxy, Cluster]]:
    """A standby of the state that has caught up, and the link by which it follows."""
    with proxy(pair.state.port, word=b"never") as link:
        standby = pair.room.clusters.standby(pair.state, link.port)
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn = sent_lsn"
        end = time.monotonic() + 30
        while not pair.state.execute(query)[0][0]:
            if time.monotonic() > end:
                raise RuntimeError("the standby does not follow")
            time.sleep(0.02)
        yield link, standby


class _Late:
    """A publisher that draws before a fault and sends after it, beside those who know nothing of its draw."""

    def __init__(self, pair: Pair) -> None:
        self._patience_s = 3 * _LATE_S if pair.protocol == MURMURATE else 0  # a control draws and sends at once
        self._child = pair.publisher(beat_s=_LATE_S)
        self._output = Path(self._child.order["output"])
        self._await("holding")

    def _await(self, word: str) -> None:
        end = time.monotonic() + self._patience_s
        while time.monotonic() < end and not (self._output.exists() and word in self._output.read_text()):
            time.sleep(0.01)

    def send(self) -> None:
        """See its draw leave, and end it."""
        self._await("offer")
        time.sleep(0.05)
        self._child.kill()
        self._child.ended.wait(30)


def _watch(pair: Pair) -> None:
    if pair.protocol == MURMURATE:
        witness(pair)


def _finish(pair: Pair, counts: dict[str, int], forgotten: int) -> dict[str, int]:
    """Heal, check, and see that the faults were real."""
    until = pair.heal()
    if pair.protocol == MURMURATE:
        counts |= {"forgotten lines": forgotten, "releases": check(pair, until), "rivals": pair.rivals()}
        if not forgotten:
            raise Violation(f"{pair.name}: nothing was lost, so nothing was tested")
    else:
        counts |= {"double values": pair.doubles()}
    pair.end()
    return counts


def failovers(room: Room, times: int, seed: int, protocol: str = MURMURATE) -> dict[str, int]:
    """The primary of the state dies with commits that its standby never got; the standby goes on."""
    pair = room.pair(f"failovers of {protocol}", protocol)
    luck = chance(seed)
    forgotten = 0
    for _ in range(times):
        keep_ahead(pair)
        with _replica(pair) as (link, standby), crew(pair, 2) as band:
            band.work(luck.uniform(0.1, 0.3))
            link.mood = Mood.HANG
            band.work(luck.uniform(0.2, 0.4))
            late = _Late(pair)
            pair.state.kill()
            link.mood = Mood.REFUSE
            standby.promote()
            band.dismiss()
            pair.state = standby
            forgotten += pair.forgotten()
            pair.correct(standby)
            band.work(luck.uniform(0.2, 0.4))
            late.send()
        _watch(pair)
    return _finish(pair, {"failovers": times}, forgotten)


def split_brains(room: Room, times: int, seed: int, protocol: str = MURMURATE) -> dict[str, int]:
    """The standby is promoted while the primary lives; both publish, from different readings; one is given up."""
    pair = room.pair(f"split brains of {protocol}", protocol)
    luck = chance(seed)
    forgotten = 0
    for _ in range(times):
        keep_ahead(pair)
        with _replica(pair) as (link, standby), crew(pair, 2) as old, crew(pair, 2) as new:
            old.work(luck.uniform(0.1, 0.2))
            link.mood = Mood.HANG
            old.work(luck.uniform(0.1, 0.2))
            standby.promote()
            pair.correct(standby)
            end = time.monotonic() + luck.uniform(0.4, 0.7)
            while time.monotonic() < end:
                old.refill()
                new.refill(state=standby.dsn)
                time.sleep(0.02)
            old.dismiss()
            new.dismiss()
            given_up = pair.state if luck.random() < 0.5 else standby
            pair.state = standby if given_up is pair.state else pair.state
            given_up.kill()
            forgotten += pair.forgotten()
        _watch(pair)
    return _finish(pair, {"split brains": times}, forgotten)


def restores(room: Room, times: int, seed: int, protocol: str = MURMURATE) -> dict[str, int]:
    """The state is set back to a backup that is older than what was published since."""
    pair = room.pair(f"restores of {protocol}", protocol)
    luck = chance(seed)
    forgotten = 0
    for number in range(times):
        keep_ahead(pair)
        with crew(pair, 2) as band:
            band.work(luck.uniform(0.1, 0.2))
            backup = pair.state.backup(pair.state.root / f"backup-{number}")
            band.work(luck.uniform(0.3, 0.5))
            late = _Late(pair)
            pair.state.restore(backup)
            band.dismiss()
            forgotten += pair.forgotten()
            pair.correct(pair.state)
            band.work(luck.uniform(0.2, 0.4))
            late.send()
        _watch(pair)
    return _finish(pair, {"restores": times}, forgotten)
