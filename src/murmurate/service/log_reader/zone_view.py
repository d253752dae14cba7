"""What the public log says about a zone, ready to be written in any format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.record import RecordKind
from murmurate.service.settings import ZoneDisplay


@dataclass(frozen=True, slots=True)
class Price:
    """What is decided about the price of one interval. It never changes."""

    interval: int  # the one that pays it, from interval * interval_s to (interval + 1) * interval_s [s of UTC]
    kind: RecordKind  # measured, forecast or withheld
    ticks: int | None  # none: withheld
    tick: Fraction  # [currency/kWh]
    scale_wh: float | None  # of the noise, where there is some
    logged_s: float  # when the log took it [s of UTC]
    core_wh: int = 0  # of Huber noise

    @property
    def value(self) -> float | None:
        """[currency/kWh], the double nearest to it."""
        return None if self.ticks is None else float(self.ticks * self.tick)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneView:
    """A zone as the log stands now."""

    zone: str
    display: ZoneDisplay
    currency: str
    tick: Fraction  # [currency/kWh]
    interval_s: int
    lead_intervals: int
    plan_digest: str  # digest
    opening_key: str  # signed the first record; a verifier must know it from another source
    key: str  # signs the next record
    seq: int  # of the last record
    opened_s: float  # when the log took the first record [s of UTC]
    first_priced: int  # the first interval with a price
    last_decided: int  # the last interval whose price is decided; first - 1: none yet
    prices: Mapping[int, Price]  # by interval, without gaps from some recent one to `decided`
    expected_ticks: tuple[int, ...]  # [interval of the UTC day that pays] the plan's forecast
    total_epsilon_micro: int
    total_rho_micro: int
    terms: ReleaseTerms | None = None  # what the plan says about each release

    def expected_price(self, interval: int) -> float:
        """What the plan expects the price of an interval to be [currency/kWh]; it is not billed."""
        return float(self.expected_ticks[interval % len(self.expected_ticks)] * self.tick)

    def start_s(self, interval: int) -> int:
        return interval * self.interval_s

    def interval_at(self, now_s: float) -> int:
        """The interval of a moment."""
        return int(now_s // self.interval_s)


def format_rfc3339(at_s: float) -> str:
    """A moment in UTC, with seconds.

    >>> format_rfc3339(1_794_658_500)
    '2026-11-14T12:15:00Z'
    """
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
