"""Compute the price of a demand, exactly.

The cost of generation J(Z) = alpha/2 Z^2 + beta Z + gamma is least, given a rate r, where J'(Z) = r: the marginal rate
alpha Z + beta (paper, section II-A, Eq. 1). A :class:`RateCurve` is that line or any other piecewise-linear marginal
cost. It maps integer Wh to integer ticks with integer arithmetic, so the same demand gives the same price on every
machine. The price is a function of the noisy demand, so it costs no further privacy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import TariffError
from murmurate.units import IntArray, as_int64_array, parse_fraction, per_kwh_to_per_wh, wh_to_kwh

ExactNumber = Fraction | int | str | float  # parsed exactly by `units.parse_fraction`

_MAX_INT64_INTERMEDIATE = 2**62


class Segment(NamedTuple):
    """A straight piece of a marginal-cost curve, from `from_wh` up to where the next piece begins."""

    from_wh: int
    price: Fraction  # at from_wh [money/kWh]
    slope: Fraction  # [money/kWh per kWh]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """A marginal-cost curve on a grid of ticks, with an optional floor and cap.

    The first segment reaches down to minus infinity and the last up to infinity, because noise does. Prices are rounded
    to the nearest tick, halves upwards (floor(x + 1/2)), then clamped. Arithmetic is exact.

    Attributes:
        segments: Straight pieces (from_wh [Wh], price [money/kWh], slope [money/kWh per kWh]), with rising from_wh.
        tick: Smallest price step, positive [money/kWh].
        floor: Lowest price, a whole number of ticks [money/kWh]; None: no floor.
        cap: Highest price, a whole number of ticks [money/kWh]; None: no cap.

    Raises:
        TariffError: The tick is not positive, the segments do not rise, a limit is not a whole number of ticks, or the
            floor is above the cap.

    Example:
        >>> import murmurate as mm
        >>> curve = mm.RateCurve.affine(alpha=1, beta="62.5", tick="0.001")
        >>> int(curve.price_ticks(177_250)), str(curve.price(177_250))
        (239750, '959/4')
    """

    segments: tuple[Segment, ...]
    tick: Fraction
    floor: Fraction | None = None
    cap: Fraction | None = None
    _integer_segments: tuple[tuple[int, int, int], ...] = field(init=False, repr=False, compare=False)

    @classmethod
    def affine(
        cls,
        *,
        alpha: ExactNumber,
        beta: ExactNumber,
        tick: ExactNumber,
        floor: ExactNumber | None = None,
        cap: ExactNumber | None = None,
    ) -> RateCurve:
        """Return the paper's rate r = alpha Z + beta, with the demand Z in kWh (Eq. 1).

        Numbers are read exactly: `"0.08"`, `"1/3"`, 2, a fraction, or the shortest decimal of a float.

        Args:
            alpha: Slope [money/kWh per kWh].
            beta: Price at zero demand [money/kWh].
            tick: Smallest price step, positive [money/kWh].
            floor: Lowest price, a whole number of ticks [money/kWh]; None: no floor.
            cap: Highest price, a whole number of ticks [money/kWh]; None: no cap.

        Returns:
            The rate curve, with one segment.

        Raises:
            TariffError: A number cannot be read, or a limit does not fit the tick.

        Example:
            >>> import murmurate as mm
            >>> str(mm.RateCurve.affine(alpha="0.001", beta="0.08", tick="0.00001", floor=0).price(100_000))
            '9/50'
        """
        return cls.from_segments(
            [Segment(0, parse_fraction(beta, "beta", TariffError), parse_fraction(alpha, "alpha", TariffError))],
            tick=tick,
            floor=floor,
            cap=cap,
        )

    @classmethod
    def from_segments(
        cls,
        segments: Iterable[tuple[int, ExactNumber, ExactNumber]],
        *,
        tick: ExactNumber,
        floor: ExactNumber | None = None,
        cap: ExactNumber | None = None,
    ) -> RateCurve:
        """Return the curve of any piecewise-linear marginal cost, including steps (a merit order).

        Args:
            segments: Triples of from_wh [Wh], price there [money/kWh] and slope [money/kWh per kWh], from_wh rising.
            tick: Smallest price step, positive [money/kWh].
            floor: Lowest price, a whole number of ticks [money/kWh]; None: no floor.
            cap: Highest price, a whole number of ticks [money/kWh]; None: no cap.

        Returns:
            The rate curve.

        Raises:
            TariffError: A number cannot be read, the segments do not rise, or a limit does not fit the tick.

        Example:
            >>> import murmurate as mm
            >>> merit_order = [(0, "0.03", 0), (50_000, "0.09", 0)]
            >>> mm.RateCurve.from_segments(merit_order, tick="0.0001").price_ticks([49_999, 50_000]).tolist()
            [300, 900]
        """
        pieces = [
            Segment(int(wh), parse_fraction(price, "price", TariffError), parse_fraction(slope, "slope", TariffError))
            for wh, price, slope in segments
        ]
        return cls(
            segments=tuple(pieces),
            tick=parse_fraction(tick, "tick", TariffError),
            floor=None if floor is None else parse_fraction(floor, "floor", TariffError),
            cap=None if cap is None else parse_fraction(cap, "cap", TariffError),
        )

    @classmethod
    def from_knots(
        cls,
        knots: Iterable[tuple[int, ExactNumber]],
        *,
        tick: ExactNumber,
        floor: ExactNumber | None = None,
        cap: ExactNumber | None = None,
    ) -> RateCurve:
        """Return the continuous curve through the knots; it is flat outside of them.

        Args:
            knots: Pairs of demand [Wh] and price [money/kWh], one or more, with rising demand.
            tick: Smallest price step, positive [money/kWh].
            floor: Lowest price, a whole number of ticks [money/kWh]; None: no floor.
            cap: Highest price, a whole number of ticks [money/kWh]; None: no cap.

        Returns:
            The rate curve.

        Raises:
            TariffError: There is no knot, the demand does not rise, or a limit does not fit the tick.

        Example:
            >>> import murmurate as mm
            >>> curve = mm.RateCurve.from_knots([(0, "0.10"), (1000, "0.20")], tick="0.01")
            >>> curve.price_ticks([-5, 500, 2000]).tolist()
            [10, 15, 20]
        """
        points = [(int(wh), parse_fraction(price, f"knots[{n}]", TariffError)) for n, (wh, price) in enumerate(knots)]
        if not points or any(a[0] >= b[0] for a, b in pairwise(points)):
            raise TariffError("knots", [wh for wh, _ in points], "must be one or more, with rising demand")
        flat = Segment(points[0][0] - 1, points[0][1], Fraction(0))
        rising = [
            Segment(low, price, (higher - price) / wh_to_kwh(high - low))
            for (low, price), (high, higher) in pairwise(points)
        ]
        return cls.from_segments([flat, *rising, Segment(*points[-1], Fraction(0))], tick=tick, floor=floor, cap=cap)

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
        integers = []  # of each segment: ticks = floor((multiplier wh + offset) / divisor), rounded half up
        for segment in self.segments:
            by = per_kwh_to_per_wh(segment.slope) / self.tick
            plus = segment.price / self.tick - by * segment.from_wh + Fraction(1, 2)
            over = by.denominator * plus.denominator
            integers.append((int(by * over), int(plus * over), over))
        object.__setattr__(self, "_integer_segments", tuple(integers))

    @property
    def alpha(self) -> Fraction:
        """The slope of an affine rate [money/kWh per kWh]. Raises TariffError for a curve of several segments."""
        if len(self.segments) != 1:
            raise TariffError("segments", len(self.segments), "must be one: only an affine rate has one slope alpha")
        return self.segments[0].slope

    @property
    def falls(self) -> bool:
        """Whether the price is lower at some larger demand."""
        ends = [
            before.price + before.slope * wh_to_kwh(after.from_wh - before.from_wh) > after.price
            for before, after in pairwise(self.segments)
        ]
        return any(ends) or any(segment.slope < 0 for segment in self.segments)

    def price_ticks(self, demand_wh: Any, inelastic_wh: Any = 0) -> IntArray:
        """Return prices in ticks: Eq. 1, rounded half up, then clamped to floor and cap.

        Args:
            demand_wh: Demand, whole numbers, any shape [Wh].
            inelastic_wh: Public demand that is added, one number or the same shape [Wh].

        Returns:
            Prices, in the shape of `demand_wh` [ticks].

        Raises:
            TariffError: A demand is not a whole number of Wh that fits in 64 bits.

        Example:
            >>> import murmurate as mm
            >>> curve = mm.RateCurve.affine(alpha=1, beta=0, tick=1, floor=0)
            >>> curve.price_ticks([-700, 1500], inelastic_wh=999).tolist()
            [0, 2]
        """
        total = as_int64_array(demand_wh, "demand_wh", TariffError) + as_int64_array(
            inelastic_wh, "inelastic_wh", TariffError
        )
        wh = np.atleast_1d(total)
        starts = np.array([segment.from_wh for segment in self.segments[1:]], np.int64)
        piece = np.searchsorted(starts, wh, side="right")
        largest = max(-int(wh.min(initial=0)), int(wh.max(initial=0)), 1)
        sizes = (abs(by) * largest + abs(plus) + over for by, plus, over in self._integer_segments)
        number = np.int64 if max(sizes) < _MAX_INT64_INTERMEDIATE else object
        by, plus, over = (np.array(column, number)[piece] for column in zip(*self._integer_segments, strict=True))
        lowest = -(2**63) if self.floor is None else int(self.floor / self.tick)
        highest = 2**63 - 1 if self.cap is None else int(self.cap / self.tick)
        ticks = (by * wh.astype(number) + plus) // over
        clamped: IntArray = np.minimum(np.maximum(ticks, lowest), highest).astype(np.int64)
        return clamped.reshape(total.shape)

    def price(self, demand_wh: int, inelastic_wh: int = 0) -> Fraction:
        """Return the price of one demand as an exact fraction, after ticks, floor and cap.

        Args:
            demand_wh: Demand, a whole number [Wh].
            inelastic_wh: Public demand that is added [Wh].

        Returns:
            The price [money/kWh].

        Raises:
            TariffError: A demand is not a whole number of Wh that fits in 64 bits.

        Example:
            >>> import murmurate as mm
            >>> str(mm.RateCurve.affine(alpha=1, beta="62.5", tick="0.001").price(177_250))
            '959/4'
        """
        return int(self.price_ticks(demand_wh, inelastic_wh)) * self.tick

    def marginal_cost(self, demand_wh: int) -> Fraction:
        """Return the marginal cost of one demand as an exact fraction, before ticks, floor and cap.

        Args:
            demand_wh: Demand, a whole number [Wh].

        Returns:
            The marginal cost [money/kWh].

        Example:
            >>> import murmurate as mm
            >>> str(mm.RateCurve.affine(alpha=1, beta=0, tick=1).marginal_cost(1500))
            '3/2'
        """
        piece = max((s for s in self.segments if s.from_wh <= demand_wh), default=self.segments[0])
        return piece.price + piece.slope * wh_to_kwh(demand_wh - piece.from_wh)
