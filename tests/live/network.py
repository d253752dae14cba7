"""The network between publisher and databases loses acknowledgements, refuses, and hangs."""

from __future__ import annotations

import time

from murmurate.publication.record import read
from tests.live.checks import check, witness
from tests.live.killing import keep_ahead
from tests.live.pair import Pair, Room, Violation, crew
from tests.live.proxy import Mood, Proxy, proxy

_SAVE, _APPEND = b"curator.", b"public_log.append"  # what a transaction that matters speaks of


def lost_acknowledgements(room: Room, losses: int, seed: int) -> dict[str, int]:
    """Every third COMMIT of the state and of the log is performed, and nobody is told."""
    pair = room.pair("lost acknowledgements")
    with (
        proxy(pair.state.port, loss=0.35, seed=seed, word=_SAVE) as state,
        proxy(pair.log.port, loss=0.35, seed=seed + 1, word=_APPEND) as log,
    ):
        with crew(pair, 3) as band:
            state.mood = log.mood = Mood.LOSE
            while min(state.lost, log.lost) * 2 < losses:
                keep_ahead(pair)
                band.work(0.3, state=state.dsn, log=log.dsn)
                witness(pair)
        lost = {"lost acknowledgements": state.lost + log.lost, "of the state": state.lost, "of the log": log.lost}
    until = pair.heal()
    counts = lost | {"releases": check(pair, until), "rivals": pair.rivals()}
    pair.end()
    return counts


def unreachable_log(room: Room, outages: int) -> dict[str, int]:
    """The log refuses or hangs: nothing is published, and what was drawn before leaves afterwards as it was drawn."""
    pair = room.pair("unreachable log")
    resent = 0
    with proxy(pair.log.port, word=_APPEND) as log, crew(pair, 2) as band:
        for number in range(outages):
            keep_ahead(pair)
            band.work(0.3, log=log.dsn)
            resent += _outage(pair, log, (Mood.REFUSE, Mood.HANG)[number % 2])
            band.work(0.3, log=log.dsn)
            witness(pair)
    until = pair.heal()
    rivals = pair.rivals()
    if rivals:
        raise Violation(f"unreachable log: {rivals} second draws")
    counts = {"outages": outages, "draws kept and sent later": resent, "releases": check(pair, until)}
    pair.end()
    return counts


def _outage(pair: Pair, log: Proxy, mood: Mood) -> int:
    """Cut the log off for a while. The number of draws that were waiting, and that must be the next lines."""
    log.mood = mood
    time.sleep(0.2)  # what was under way has arrived by now
    before = witness(pair)
    waiting = dict(pair.state.execute("SELECT zone, line FROM curator.pending"))
    time.sleep(0.6)
    if witness(pair) != before:
        raise Violation("something was published without a log")
    if dict(pair.state.execute("SELECT zone, line FROM curator.pending")) != waiting:
        raise Violation("a draw was made while none could be published")
    log.mood = Mood.REFUSE  # whoever still hangs is let go
    time.sleep(0.1)
    log.mood = Mood.FORWARD
    heads = {zone: len(lines) for zone, lines in pair.witnessed.items()}
    open_draws = {zone: line for zone, line in waiting.items() if read(line).record.seq == heads.get(zone, 0)}
    end = time.monotonic() + 20
    while any(len(pair.witnessed[zone]) <= heads.get(zone, 0) for zone in open_draws):
        if time.monotonic() > end:
            raise Violation("a waiting draw was not published")
        time.sleep(0.05)
        witness(pair)
    if any(pair.witnessed[zone][heads.get(zone, 0)] != line for zone, line in open_draws.items()):
        raise Violation("another draw was published than the one that waited")
    return len(open_draws)
