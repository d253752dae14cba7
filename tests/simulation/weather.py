"""How often each fault strikes, how often it did, and the story of a run."""

from __future__ import annotations

from collections import Counter
from random import Random


class Lost(Exception):  # noqa: N818 - what happened, not an error of ours
    """An answer that never came. Whether the request was carried out is not known to whoever asked."""


class Violation(AssertionError):  # noqa: N818
    """Something happened that must never happen."""

    def __init__(self, kind: str, facts: str) -> None:
        super().__init__(f"{kind}: {facts}")
        self.kind = kind


STEP_RATES = {
    "crash before a step": 0.016,
    "crash after a step": 0.016,
    "dead publisher holds locks": 0.4,  # of the crashes
    "state unreachable": 0.03,
    "log unreachable": 0.04,
    "stale read of the log": 0.08,
    "head read before the lines": 0.15,
    "few lines read": 0.3,
    "commit failed": 0.06,
    "commit acknowledgement lost": 0.1,
    "append lost": 0.1,
    "append delayed": 0.12,
    "append duplicated": 0.25,
    "append answer lost": 0.25,
    "append passed over a zone": 0.15,
}


class Weather:
    """The one source of chance of a run. Calm weather brings no faults."""

    def __init__(self, rng: Random, story: list[str] | None) -> None:
        self.rng = rng
        self.story = story
        self.calm = False
        self.counts: Counter[str] = Counter()
        self.force = 0.5 + 1.3 * rng.random()

    def strikes(self, fault: str, who: object = "") -> bool:
        if self.calm or self.rng.random() >= STEP_RATES[fault] * self.force:
            return False
        self.count(fault, who)
        return True

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def below(self, number: int) -> int:
        return int(self.rng.random() * number)

    def count(self, fault: str, *facts: object) -> None:
        self.counts[fault] += 1
        self.tell("FAULT", fault, *facts)

    def tell(self, *facts: object) -> None:
        if self.story is not None:
            self.story.append(" ".join(map(str, facts)))
