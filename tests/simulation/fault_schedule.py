"""The probability of each fault, the count of each fault, and the trace of a run."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NoReturn


class ResponseLost(Exception):  # noqa: N818 - a simulated event, not an error of the simulator
    """No response arrived. The client does not know whether the request was carried out."""


class Violation(AssertionError):  # noqa: N818
    """A rule of the protocol was broken."""

    def __init__(self, kind: str, facts: str) -> None:
        super().__init__(f"{kind}: {facts}")
        self.kind = kind


def violation(kind: str, *facts: object) -> NoReturn:
    """Raise a violation of this kind."""
    raise Violation(kind, " ".join(map(str, facts)))


STEP_RATES = {
    "crash before a step": 0.016,
    "crash after a step": 0.016,
    "dead publisher holds locks": 0.4,  # of the crashes
    "state unreachable": 0.03,
    "log unreachable": 0.04,
    "stale read of the log": 0.08,
    "head read before the tiles": 0.15,
    "few tiles read": 0.3,
    "commit failed": 0.06,
    "commit acknowledgement lost": 0.1,
    "append lost": 0.1,
    "append delayed": 0.12,
    "append duplicated": 0.25,
    "append response lost": 0.25,
    "append skipped a shard": 0.15,
    "claim lost": 0.08,
    "claim delayed": 0.1,
    "claim response lost": 0.12,
    "create lost": 0.06,  # of an object, as each of the next two
    "create delayed": 0.07,
    "create response lost": 0.1,
    "read failed": 0.004,  # of each object
}


class FaultSchedule:
    """The only source of randomness in a run. No fault occurs while it is disabled."""

    def __init__(self, rng: Random, trace: list[str] | None) -> None:
        self.rng = rng
        self.trace_lines = trace
        self.disabled = False
        self.counts: Counter[str] = Counter()
        self.intensity = 0.5 + 1.3 * rng.random()

    def occurs(self, fault: str, subject: object = "") -> bool:
        """Return whether the fault occurs now, and count it."""
        if self.disabled or self.rng.random() >= STEP_RATES[fault] * self.intensity:
            return False
        self.record(fault, subject)
        return True

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def below(self, number: int) -> int:
        """Return a random integer from 0 to number - 1."""
        return int(self.rng.random() * number)

    def record(self, fault: str, *facts: object) -> None:
        self.counts[fault] += 1
        self.trace("FAULT", fault, *facts)

    def trace(self, *facts: object) -> None:
        if self.trace_lines is not None:
            self.trace_lines.append(" ".join(map(str, facts)))
