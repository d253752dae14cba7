"""What the public log says about a zone, ready to be written in any format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from murmurate.curator.terms import Terms
from murmurate.publication.record import Kind
from murmurate.service.settings import Sign


@dataclass(frozen=True, slots=True)
class Price:
    """What is decided about the price of one interval. It never changes."""

    interval: int  # the one that pays it, from interval * interval_s to (interval + 1) * interval_s [s of UTC]
    kind: Kind  # measured, forecast or withheld
    ticks: int | None  # none: withheld
    tick: Fraction  # [currency/kWh]
    scale_wh: float | None  # of the noise, where there is some
    taken_s: float  # when the log took it [s of UTC]
    core_wh: int = 0  # of Huber noise

    @property
    def value(self) -> float | None:
        """[currency/kWh], the double nearest to it."""
        return None if self.ticks is None else float(self.ticks * self.tick)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneView:
    """A zone as the log stands now."""

    zone: str
    sign: Sign
    currency: str
    tick: Fraction  # [currency/kWh]
    interval_s: int
    lead: int
    plan: str  # digest
    opening_key: str  # of whoever signed the first record: what a verifier must know from elsewhere
    key: str  # of whoever signs the next record
    seq: int  # of the last record
    opened_s: float  # when the log took the first record [s of UTC]
    first: int  # the first interval with a price
    decided: int  # the last interval whose price is decided; first - 1: none yet
    prices: Mapping[int, Price]  # by interval, without gaps from some recent one to `decided`
    expected_ticks: tuple[int, ...]  # [interval of the UTC day that pays] the plan's forecast
    total_epsilon_micro: int
    total_rho_micro: int
    terms: Terms | None = None  # what the plan says about each release

    def expected(self, interval: int) -> float:
        """What the plan expects the price of an interval to be [currency/kWh]; nobody has to pay it."""
        return float(self.expected_ticks[interval % len(self.expected_ticks)] * self.tick)

    def begin_s(self, interval: int) -> int:
        return interval * self.interval_s

    def at(self, now_s: float) -> int:
        """The interval of a moment."""
        return int(now_s // self.interval_s)


def rfc3339(at_s: float) -> str:
    """A moment in UTC, with seconds.

    >>> rfc3339(1_794_658_500)
    '2026-11-14T12:15:00Z'
    """
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
