"""From demand to price, exactly.

The cost of generation J(Z) = alpha/2 Z^2 + beta Z + gamma is least, given a rate r, where J'(Z) = r: the marginal rate
alpha Z + beta (paper, section II-A, Eq. 1). A :class:`RateCurve` is that line or any other piecewise-linear marginal
cost. It maps integer Wh to integer ticks with integer arithmetic alone, so the same demand gives the same price on
every machine, and whatever protects the demand protects the price.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import TariffError
from murmurate.quantities import IntArray, fraction, integers, kwh, per_wh

Exact = Fraction | int | str | float  # read exactly by `quantities.fraction`

_INT64_ROOM = 2**62


class Segment(NamedTuple):
    """A straight piece of a marginal-cost curve, from `from_wh` up to where the next piece begins."""

    from_wh: int
    price: Fraction  # at from_wh [money/kWh]
    slope: Fraction  # [money/kWh per kWh]


class _Line(NamedTuple):
    """ticks = floor((by * wh + plus) / over): one segment in whole numbers, rounding half up included."""

    by: int
    plus: int
    over: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """A marginal-cost curve on a grid of ticks, with an optional floor and cap.

    The first segment reaches down to minus infinity and the last up to infinity, because noise does. Prices are rounded
    to the nearest tick, halves upwards (floor(x + 1/2)), then clamped. `tick`, `floor` and `cap` are in money/kWh.

    >>> curve = RateCurve.affine(alpha=1, beta="62.5", tick="0.001")
    >>> int(curve.price_ticks(177_250)), str(curve.price(177_250))
    (239750, '959/4')
    """

    segments: tuple[Segment, ...]
    tick: Fraction
    floor: Fraction | None = None
    cap: Fraction | None = None
    _lines: tuple[_Line, ...] = field(init=False, repr=False, compare=False)

    @classmethod
    def affine(
        cls, *, alpha: Exact, beta: Exact, tick: Exact, floor: Exact | None = None, cap: Exact | None = None
    ) -> RateCurve:
        """The paper's rate r = alpha Z + beta, with Z in kWh (Eq. 1)."""
        return cls.through(
            [Segment(0, fraction(beta, "beta", TariffError), fraction(alpha, "alpha", TariffError))],
            tick=tick,
            floor=floor,
            cap=cap,
        )

    @classmethod
    def through(
        cls, segments: Iterable[Segment], *, tick: Exact, floor: Exact | None = None, cap: Exact | None = None
    ) -> RateCurve:
        """Any piecewise-linear marginal cost, steps (a merit order) included.

        >>> merit_order = [Segment(0, Fraction(3, 100), Fraction(0)), Segment(50_000, Fraction(9, 100), Fraction(0))]
        >>> RateCurve.through(merit_order, tick="0.0001").price_ticks([49_999, 50_000]).tolist()
        [300, 900]
        """
        pieces = [
            Segment(int(wh), fraction(price, "price", TariffError), fraction(slope, "slope", TariffError))
            for wh, price, slope in segments
        ]
        return cls(
            segments=tuple(pieces),
            tick=fraction(tick, "tick", TariffError),
            floor=None if floor is None else fraction(floor, "floor", TariffError),
            cap=None if cap is None else fraction(cap, "cap", TariffError),
        )

    @classmethod
    def between(
        cls, knots: Iterable[tuple[int, Exact]], *, tick: Exact, floor: Exact | None = None, cap: Exact | None = None
    ) -> RateCurve:
        """The continuous curve through (demand in Wh, price in money/kWh) knots, flat beyond the outer two.

        >>> RateCurve.between([(0, "0.10"), (1000, "0.20")], tick="0.01").price_ticks([-5, 500, 2000]).tolist()
        [10, 15, 20]
        """
        points = [(int(wh), fraction(price, f"knots[{n}]", TariffError)) for n, (wh, price) in enumerate(knots)]
        if not points or any(a[0] >= b[0] for a, b in pairwise(points)):
            raise TariffError("knots", [wh for wh, _ in points], "must be one or more, with rising demand")
        flat = Segment(points[0][0] - 1, points[0][1], Fraction(0))
        rising = [
            Segment(low, price, (higher - price) / kwh(high - low)) for (low, price), (high, higher) in pairwise(points)
        ]
        return cls.through([flat, *rising, Segment(*points[-1], Fraction(0))], tick=tick, floor=floor, cap=cap)

    def __post_init__(self) -> None:
        if self.tick <= 0:
            raise TariffError("tick", self.tick, "must be positive, for example 0.001 money/kWh")
        starts = [segment.from_wh for segment in self.segments]
        if not starts or starts != sorted(set(starts)):
            raise TariffError("segments", starts, "must be one or more, with rising from_wh")
        for name, limit in (("floor", self.floor), ("cap", self.cap)):
            if limit is not None and (limit / self.tick).denominator != 1:
                raise TariffError(name, limit, f"must be a whole number of ticks of {self.tick} money/kWh")
        if self.floor is not None and self.cap is not None and self.floor > self.cap:
            raise TariffError("floor", self.floor, f"must not be above the cap {self.cap}")
        object.__setattr__(self, "_lines", tuple(_line(segment, self.tick) for segment in self.segments))

    @property
    def alpha(self) -> Fraction:
        """The slope of an affine rate [money/kWh per kWh]; a curve of several pieces has none."""
        if len(self.segments) != 1:
            raise TariffError("segments", len(self.segments), "must be one: only an affine rate has one slope alpha")
        return self.segments[0].slope

    def price_ticks(self, demand_wh: Any, inelastic_wh: Any = 0) -> IntArray:
        """Price [ticks] at `demand_wh` [Wh] plus a public, inelastic demand [Wh]: Eq. 1, rounded half up, then clamped.

        >>> RateCurve.affine(alpha=1, beta=0, tick=1, floor=0).price_ticks([-700, 1500], inelastic_wh=999).tolist()
        [0, 2]
        """
        total = integers(demand_wh, "demand_wh", TariffError) + integers(inelastic_wh, "inelastic_wh", TariffError)
        wh = np.atleast_1d(total)
        starts = np.array([segment.from_wh for segment in self.segments[1:]], np.int64)
        piece = np.searchsorted(starts, wh, side="right")
        number = np.int64 if self._fits_int64(wh) else object
        by, plus, over = (np.array(column, number)[piece] for column in zip(*self._lines, strict=True))
        return self._clamp((by * wh.astype(number) + plus) // over).reshape(total.shape)

    def price(self, demand_wh: int, inelastic_wh: int = 0) -> Fraction:
        """The published price [money/kWh] of one demand, exactly."""
        return int(self.price_ticks(demand_wh, inelastic_wh)) * self.tick

    def marginal(self, demand_wh: int) -> Fraction:
        """The marginal cost itself [money/kWh]: before ticks, floor and cap."""
        piece = max((s for s in self.segments if s.from_wh <= demand_wh), default=self.segments[0])
        return piece.price + piece.slope * kwh(demand_wh - piece.from_wh)

    def _clamp(self, ticks: Any) -> IntArray:
        lowest = -(2**63) if self.floor is None else int(self.floor / self.tick)
        highest = 2**63 - 1 if self.cap is None else int(self.cap / self.tick)
        clamped: IntArray = np.minimum(np.maximum(ticks, lowest), highest).astype(np.int64)
        return clamped

    def _fits_int64(self, wh: IntArray) -> bool:
        largest = max(-int(wh.min(initial=0)), int(wh.max(initial=0)), 1)
        return all(abs(by) * largest + abs(plus) + over < _INT64_ROOM for by, plus, over in self._lines)


def _line(segment: Segment, tick: Fraction) -> _Line:
    """floor(price(wh)/tick + 1/2) over one common denominator."""
    by = per_wh(segment.slope) / tick
    plus = segment.price / tick - by * segment.from_wh + Fraction(1, 2)
    over = by.denominator * plus.denominator
    return _Line(int(by * over), int(plus * over), over)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticCost:
    """The cost of generation J(Z) = alpha/2 Z^2 + beta Z + gamma [money], Z in kWh (paper, section II-A).

    >>> cost = QuadraticCost(alpha=Fraction(1), beta=Fraction(125, 2))
    >>> str(cost.cost(2000)), str(cost.rate_curve(tick="0.001").price(2000))
    ('127', '129/2')
    """

    alpha: Fraction
    beta: Fraction
    gamma: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise TariffError("alpha", self.alpha, "must be positive, or the cost has no least point")

    def cost(self, demand_wh: int) -> Fraction:
        """J(Z) [money]."""
        z = kwh(demand_wh)
        return self.alpha / 2 * z * z + self.beta * z + self.gamma

    def rate_curve(self, *, tick: Exact, floor: Exact | None = None, cap: Exact | None = None) -> RateCurve:
        """The marginal rate r = J'(Z) = alpha Z + beta."""
        return RateCurve.affine(alpha=self.alpha, beta=self.beta, tick=tick, floor=floor, cap=cap)
