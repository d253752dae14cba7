"""Bills of each household under several rates that collect the same, and what the noise alone does to them.

The private price collects what it collects. The prices of every other rate are multiplied by one number, so that all
households together pay the same under each rate: what differs is who pays it. Sums are whole numbers of ticks times
Wh below 2^53, so they are exact until they are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import TariffError
from murmurate.lab.backtest.past_readings import PastReadings
from murmurate.lab.backtest.replayed_prices import ReplayedPrices
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY, WH_PER_KWH, FloatArray, IntArray


class Rate(Enum):
    """Whether and how the price follows the demand."""

    FLAT = "flat rate"
    FORECAST = "forecast only"
    PRIVATE = "private price"
    EXACT = "exact data"


@dataclass(frozen=True, slots=True, eq=False)
class Bills:
    """What households pay for their energy."""

    months: tuple[str, ...]  # such as 2025-11, in local time
    days: IntArray  # [month] local days with readings
    energy_kwh: FloatArray  # [month, household]
    by_rate: dict[Rate, FloatArray]  # [month, household] in the currency; every rate collects the same
    factors: dict[Rate, float]  # by which the prices of a rate were multiplied for that; a flat rate: the price itself
    noise: FloatArray  # [draw, month, household] private less exact, as charged: before prices are multiplied
    day_noise_variance: FloatArray  # [household] of the same for one day, mean over days
    exact_as_charged: FloatArray  # [month, household]

    @property
    def revenue(self) -> float:
        """What all pay together, under each rate."""
        return float(self.by_rate[Rate.PRIVATE].sum())

    def totals(self, rate: Rate) -> FloatArray:
        """Return the bill of the whole period [household]."""
        return np.asarray(self.by_rate[rate].sum(axis=0))


def make_bills(readings: PastReadings, prices: ReplayedPrices, tick: Fraction, time_zone: str) -> Bills:
    """Return the bills of past readings. The first draw of noise is the private price that is billed."""
    columns = np.concatenate([prices.forecast[:, None], prices.exact[:, None], prices.private], axis=1)
    days = _local_days(readings, time_zone)
    money, energy_wh, day_variance = _sum_by_month(readings, columns.astype(np.float64), days)
    money = money * float(tick / WH_PER_KWH)
    forecast, exact, private = money[..., 0], money[..., 1], money[..., 2]
    revenue = float(private.sum())
    if not min(revenue, float(forecast.sum()), float(exact.sum()), float(energy_wh.sum())) > 0:
        raise TariffError("revenue", "0 or less under one of the rates", "must be above 0, or rates cannot be compared")
    factors = {Rate.FLAT: revenue / float(energy_wh.sum() / WH_PER_KWH), Rate.PRIVATE: 1.0}
    factors |= {rate: revenue / float(each.sum()) for rate, each in ((Rate.FORECAST, forecast), (Rate.EXACT, exact))}
    as_charged = {Rate.FLAT: energy_wh / WH_PER_KWH, Rate.FORECAST: forecast, Rate.PRIVATE: private, Rate.EXACT: exact}
    names, lengths = _count_days(days)
    return Bills(
        months=names,
        days=lengths,
        energy_kwh=energy_wh / WH_PER_KWH,
        by_rate={rate: factors[rate] * as_charged[rate] for rate in Rate},
        factors=factors,
        noise=np.moveaxis(money[..., 2:] - exact[..., None], 2, 0),
        day_noise_variance=day_variance * float(tick / WH_PER_KWH) ** 2,
        exact_as_charged=exact,
    )


def _sum_by_month(
    readings: PastReadings, prices: FloatArray, day: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums of ticks times Wh [month, household, column], of Wh [month, household], and the variance of a day's noise.

    The variance [household] is over draws, in (ticks times Wh)^2, and a mean over days.
    """
    starts = np.flatnonzero(np.diff(day, prepend=day[0] - 1))
    ends = [*starts[1:].tolist(), len(day)]
    _, number = np.unique(_months_of(day[starts]), return_inverse=True)
    money = np.zeros((int(number[-1]) + 1, readings.households, prices.shape[1]))
    energy = np.zeros(money.shape[:2])
    variance = np.zeros(readings.households)
    for month, start, end in zip(number.tolist(), starts.tolist(), ends, strict=True):
        used = readings.energy_wh[start:end].astype(np.float64)
        of_day = used.T @ prices[start:end]
        money[month] += of_day
        energy[month] += used.sum(axis=0)
        variance += (of_day[:, 2:] - of_day[:, 1:2]).var(axis=1, ddof=1)
    return money, energy, variance / len(starts)


def _local_days(readings: PastReadings, time_zone: str) -> IntArray:
    """The local day of each interval, counted from 1970-01-01."""
    start_s = (readings.first_interval + np.arange(readings.intervals)) * readings.interval_s
    offset_min = np.array([utc_offset_min(time_zone, at_s) for at_s in start_s.tolist()], np.int64)
    return np.asarray((start_s + 60 * offset_min) // SECONDS_PER_DAY)


def _months_of(day: IntArray) -> NDArray[np.datetime64]:
    return day.astype("datetime64[D]").astype("datetime64[M]")


def _count_days(day: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """The names of the months, and how many days of each there are."""
    month, count = np.unique(_months_of(np.unique(day)), return_counts=True)
    return tuple(str(each) for each in month), count.astype(np.int64)
