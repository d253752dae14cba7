"""Sums of readings that are clipped at several bounds, and what a sample of homes shows for each of them."""

from __future__ import annotations

import numpy as np

from murmurate.lab.evaluate.homes import MAX_READING_WH
from murmurate.lab.evaluate.random_stream import Float32Array
from murmurate.lab.evaluate.sample_moments import SampleMoments
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray

BOUNDS_WH = (300, 500, 700, 1000, 1500, 2100, 3000, MAX_READING_WH)  # the last one clips nothing
_LOW_BOUNDS = np.array(BOUNDS_WH[:-1], np.float32)[:, None]


def sum_clipped(used_wh: Float32Array, zones: int = 1) -> FloatArray:
    """Return the sum of readings of each zone, each at most a bound [zone, bound]. Zones are alike in size.

    >>> sum_clipped(np.array([100, 450, 4000], np.float32)).astype(int).tolist()
    [[700, 1050, 1250, 1550, 2050, 2650, 3550, 4550]]
    """
    total = used_wh.reshape(zones, -1).sum(axis=1).astype(np.float64)  # whole numbers below 2^24: exact
    if zones == 1:
        high = used_wh.compress(used_wh > BOUNDS_WH[0])
        over_by_zone = np.maximum(high - _LOW_BOUNDS, 0).sum(axis=1)[:, None]
    else:
        at = np.flatnonzero(used_wh > BOUNDS_WH[0])
        up_to = np.zeros((len(_LOW_BOUNDS), len(at) + 1))
        np.cumsum(np.maximum(used_wh[at] - _LOW_BOUNDS, 0), axis=1, out=up_to[:, 1:])
        edges = np.searchsorted(at, np.arange(zones + 1) * (len(used_wh) // zones))
        over_by_zone = np.diff(up_to[:, edges], axis=1)
    return np.concatenate([total[:, None] - over_by_zone.T, total[:, None]], axis=1)


class MomentSums:
    """Sums over homes of a sample from which its moments follow. Sums of several blocks of homes add up."""

    def __init__(self, intervals: int) -> None:
        shape = (intervals, len(BOUNDS_WH))
        self.total, self.below, self.square, self.cross = (np.zeros(shape) for _ in range(4))
        self.again = np.zeros((2, intervals))  # products with the reading of the day before, and that reading
        self.homes = 0

    def add_interval(self, t: int, used_wh: Float32Array, day_before_wh: Float32Array) -> None:
        """Add the readings of some homes in one interval."""
        high = used_wh.compress(used_wh >= BOUNDS_WH[0])
        excess = np.maximum(high - _LOW_BOUNDS, 0)
        reach = high * (high >= _LOW_BOUNDS)
        total, square = used_wh.sum(dtype=np.float64), np.dot(used_wh, used_wh)
        self.total[t] += np.append(total - excess.sum(axis=1), total)
        self.below[t] += np.append(total - reach.sum(axis=1), used_wh[used_wh < BOUNDS_WH[-1]].sum(dtype=np.float64))
        squares_over = ((high - excess) ** 2 - high**2).sum(axis=1)
        self.square[t] += np.append(square + squares_over, square)
        self.cross[t] += np.append(square - excess @ high, square)
        self.again[:, t] += np.dot(used_wh, day_before_wh), day_before_wh.sum(dtype=np.float64)

    def __add__(self, other: MomentSums) -> MomentSums:
        """The sums over the homes of both."""
        both = MomentSums(len(self.total))
        for name in ("total", "below", "square", "cross", "again"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        both.homes = self.homes + other.homes
        return both

    def to_moments(self) -> SampleMoments:
        """The moments of one home."""
        mean, later = self.total / self.homes, slice(QUARTER_HOURS_PER_DAY, None)
        lasting = (self.again[0, later] - self.again[1, later] * mean[later, -1]) / self.homes
        variance = self.square / self.homes - mean**2
        return SampleMoments(
            bounds_wh=BOUNDS_WH,
            households=self.homes,
            mean_wh=mean,
            below_wh=self.below / self.homes,
            variance=variance,
            covariance=self.cross / self.homes - mean * mean[:, -1:],
            lasting=float(lasting.mean() / variance[later, -1].mean()),
        )
