"""Public series that an operator posts for both services: on time, late or never. A tile must state one of them.

A value is known for certain if a service has acknowledged it before the interval ended whose tile states it: no tile is
made earlier. A value of which that is not known may be stated or not; then an earlier one stands in.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import inf

import httpx

from tests.chaos.meters import GRACE_INTERVALS, LEAD, SERIES, STEP_S
from tests.support.running_service import ServiceOperator

MAX_AGE_INTERVALS = 6 * 3600 // STEP_S  # for which a value stands in for a later one
EARLY, LATE = LEAD + 3, LEAD - GRACE_INTERVALS - 2  # intervals before its own at which a value is posted
_LOW_HIGH = ((-10_000, 25_000), (0, 900_000), (-300, 300))  # of each series [thousandths]
_POST_TIMEOUT_S, _PAUSE_S = 20.0, 0.3

Posted = Mapping[str, Mapping[int, tuple[int, float]]]  # by series and interval: thousandths, acknowledged at


class PublicInputs:
    """A thread that posts each value of each series until a service has acknowledged it."""

    def __init__(self, operator: ServiceOperator, seed: int, first: int) -> None:
        self._operator, self._seed, self._first = operator, seed, first
        self.posted: dict[str, dict[int, tuple[int, float]]] = defaultdict(dict)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inputs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        interval = self._first
        while not self._stopped.wait(max(0.0, self._operator.clock.wall_at(interval * STEP_S) - time.time())):
            for series, at in self._due(interval):
                self._post(series, at)
            interval += 1

    def _due(self, interval: int) -> Iterator[tuple[str, int]]:
        """The values that are posted when an interval begins: of six, four are early, one is late and one is lost."""
        for series in SERIES:
            for ahead, wanted in ((EARLY, range(4)), (LATE, range(4, 5))):
                if random.Random(f"{self._seed} {series} {interval + ahead}").randrange(6) in wanted:  # noqa: S311
                    yield series, interval + ahead

    def _post(self, series: str, at: int) -> None:
        low, high = _LOW_HIGH[SERIES.index(series)]
        value = random.Random(f"{series} {at}").randrange(low, high)  # noqa: S311
        self.posted[series][at] = value, inf
        body = f"start,value\n{datetime.fromtimestamp(at * STEP_S, UTC).isoformat()},{value / 1000}\n"
        secret, attempt = ("operator", self._operator.secrets["operator"]), at
        while not self._stopped.is_set():
            service = self._operator.services[attempt % len(self._operator.services)]
            attempt += 1
            with suppress(httpx.HTTPError):
                url = service.url("/public-inputs", "private")
                answer = httpx.post(url, params={"series": series}, content=body, auth=secret, timeout=_POST_TIMEOUT_S)
                if answer.status_code == 200:
                    self.posted[series][at] = value, time.time()
                    return
            self._stopped.wait(_PAUSE_S)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)


def possible_values(values: Mapping[int, tuple[int, float]], at: int, tile_s: float) -> set[int | None]:
    """What a tile may state of a series for an interval, if it was made after `tile_s` [s of UTC]."""
    possible: set[int | None] = set()
    for before in range(at, at - MAX_AGE_INTERVALS - 1, -1):
        if before in values:
            thousandths, acknowledged_s = values[before]
            possible.add(thousandths)
            if acknowledged_s < tile_s:
                return possible
    return possible | {None}
