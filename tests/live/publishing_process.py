"""A process that has everything loaded and bears publishers on request, so that a killed one is replaced in no time.

It reads one order a line from its standard input and reports births and ends on its standard output; when the input
ends, so do all its children.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from murmurate.curator.terms import Terms
from murmurate.privacy.noise import NoiseLaw, SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.record import Entry
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Opening, Wish
from murmurate.service.publiclog import PostgresLog
from murmurate.service.publishing import Publisher
from murmurate.service.state import PostgresState
from tests.live.controls import CONTROLS
from tests.live.kill_points import Fate, Mortal

DONE, UNFINISHED, ASIDE, FAILED = 0, 3, 4, 5  # exit codes


def _note(line: str) -> None:
    """Written at once and past any buffer: whoever notes it may be killed the next moment."""
    os.write(1, f"{line}\n".encode())


@dataclass(frozen=True, slots=True)
class Loaded:
    """What every child needs, read once."""

    terms: Terms
    signer: Ed25519Signer

    @classmethod
    def of(cls, setup: dict[str, str]) -> Loaded:
        terms = Terms.of(setup["plan"])
        noise, core_wh = SystemNoise(), terms.core_wh if terms.law is NoiseLaw.HUBER else None
        noise.draw(terms.law, terms.scale_wh, core_wh)  # what it takes to draw is made ready once
        return cls(terms, Ed25519Signer(bytes.fromhex(setup["secret"])))

    def desk(self) -> Desk:
        signers = {self.signer.public: self.signer}
        return Desk(terms={self.terms.plan: self.terms}.get, signers=signers, noise=SystemNoise())


class Announced:
    """A log that says what it is offered before it is offered: two different offers for one place are rivals."""

    def __init__(self, log: PostgresLog) -> None:
        self.read = log.read
        self._append = log.append

    def append(self, entries: Any) -> None:
        offers: list[Entry] = list(entries)
        _note("\n".join(f"offer {e.record.zone} {e.record.seq} {e.hash}" for e in offers))
        self._append(offers)


@dataclass(frozen=True, slots=True)
class Beats:
    """A beat as short as a test wants it, or long enough for the world to change before the draw leaves."""

    beat_s: float

    def beat(self) -> None:
        _note("holding a draw")
        time.sleep(self.beat_s)


def publish(order: dict[str, Any], loaded: Loaded, fate: Fate) -> int:
    """Be a publisher until the order is fulfilled."""
    if order["protocol"] in CONTROLS:
        CONTROLS[order["protocol"]](order, loaded.terms, fate).publish()
        return DONE
    publisher = Publisher(
        state=Mortal(PostgresState(order["state"]), fate, "lock", "recall", "save"),
        log=Mortal(Announced(PostgresLog(order["log"])), fate, "read", "append"),
        write=loaded.desk().write,
        wait=Mortal(Beats(order["beat_s"]), fate, "beat").beat,
        batch=order["batch"],
        pause_s=order["pause_s"],
    )
    opening = Opening(plan=loaded.terms.plan, key=loaded.signer.public, first=order["first"])
    wish = Wish(until=order["until"], opening=opening)
    wishes = dict.fromkeys(order["zones"], wish)
    outcome = publisher.publish(wishes, patience_s=order["patience_s"], failed=_note)
    for zone, reason in outcome.aside.items():
        _note(f"aside {zone}: {reason}")
    return ASIDE if outcome.aside else UNFINISHED if outcome.moved else DONE


def live(order: dict[str, Any], loaded: Loaded) -> NoReturn:
    """The whole life of a child; it never returns to where it was born."""
    code = FAILED
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        fate = Fate(order["point"], order["visit"])
        fate.watch_commits()
        code = publish(order, loaded, fate)
    except BaseException:  # noqa: BLE001 a child that lets anything pass would go on as its mother
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _orders(rest: bytes, woken: int) -> tuple[list[dict[str, Any]] | None, bytes]:
    """The next orders, or None at the end of the input."""
    ready, _, _ = select.select([0, woken], [], [])
    if woken in ready:
        os.read(woken, 4096)
    if 0 not in ready:
        return [], rest
    data = os.read(0, 1 << 20)
    if not data:
        return None, rest
    *lines, rest = (rest + data).split(b"\n")
    return [json.loads(line) for line in lines], rest


def _ends(children: set[int]) -> None:
    """Report every child that has ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        children.discard(pid)
        _note(json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}))


def main() -> None:
    """Load, say so, and serve."""
    loaded = Loaded.of(json.loads(sys.stdin.readline()))
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _note(json.dumps({"ready": os.getpid()}))
    children: set[int] = set()
    rest = b""
    while True:
        orders, rest = _orders(rest, woken)
        if orders is None:
            break
        for order in orders:
            pid = os.fork()
            if pid == 0:
                live(order, loaded)
            children.add(pid)
            _note(json.dumps({"born": pid}))
        _ends(children)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
