"""The gateway of a bucket is killed, and its clients are cut off from it, at random moments."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from tests.support.ceph_gateway import CephGateway

KILL, CUT = "kill", "cut"


class Link(Protocol):
    """A way from a client to the gateway."""

    def cut(self) -> None: ...

    def connect(self) -> None: ...


class GatewayFaults(threading.Thread):
    """Kills the gateway and cuts links, one fault after the other, until all are done. `done` counts them."""

    def __init__(
        self, ceph: CephGateway, links: Sequence[Link], *, kills: int, cuts: int, seed: int, longest_cut_s: float
    ) -> None:
        super().__init__(daemon=True)
        self._ceph, self._links, self._longest_cut_s = ceph, links, longest_cut_s
        self._rng = random.Random(seed)  # noqa: S311 nothing secret is chosen
        self._faults = [KILL] * kills + [CUT] * cuts
        self._rng.shuffle(self._faults)
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        for fault in self._faults:
            time.sleep(self._rng.uniform(0.2, 1.5))
            if fault == KILL:
                self._ceph.kill_gateway()
                self._ceph.start_gateway()
            else:
                link = self._rng.choice(self._links)
                link.cut()
                time.sleep(self._rng.uniform(0.2, self._longest_cut_s))
                link.connect()
            self.done[fault] += 1

    @property
    def is_complete(self) -> bool:
        """Whether each fault has happened: this thread may have ended early, with an error."""
        return not self.is_alive() and self.done == Counter(self._faults)
