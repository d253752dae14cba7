"""Bills of each household under several rates that collect the same, how they differ, and how much of that is noise.

The private price collects what it collects. The prices of every other rate are multiplied by one number, so that all
households together pay the same under each rate: what differs is who pays it. Sums are whole numbers of ticks times
Wh below 2^53, so they are exact until they are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import TariffError
from murmurate.readings.imported_file import PastReadings
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY, WH_PER_KWH, FloatArray, IntArray

_QUANTILES = (0.05, 0.5, 0.95)


class Rate(Enum):
    """Whether and how the price follows the demand."""

    FLAT = "flat rate"
    FORECAST = "forecast only"
    PRIVATE = "private price"
    EXACT = "exact data"


class ReplayedPrices(NamedTuple):
    """Prices of each interval [ticks]."""

    forecast: IntArray  # [interval] from public numbers alone
    exact: IntArray  # [interval] from releases without noise
    private: IntArray  # [interval, draw] from releases with noise


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
    start_s = (readings.first_interval + np.arange(readings.intervals)) * readings.interval_s
    offset_min = np.array([utc_offset_min(time_zone, at_s) for at_s in start_s.tolist()], np.int64)
    days = (start_s + 60 * offset_min) // SECONDS_PER_DAY  # local days, counted from 1970-01-01
    money, energy_wh, day_variance = _sum_by_month(readings, columns.astype(np.float64), days)
    money = money * float(tick / WH_PER_KWH)
    forecast, exact, private = money[..., 0], money[..., 1], money[..., 2]
    revenue = float(private.sum())
    if not min(revenue, float(forecast.sum()), float(exact.sum()), float(energy_wh.sum())) > 0:
        raise TariffError("revenue", "0 or less under one of the rates", "must be above 0, or rates cannot be compared")
    factors = {Rate.FLAT: revenue / float(energy_wh.sum() / WH_PER_KWH), Rate.PRIVATE: 1.0}
    factors |= {rate: revenue / float(each.sum()) for rate, each in ((Rate.FORECAST, forecast), (Rate.EXACT, exact))}
    as_charged = {Rate.FLAT: energy_wh / WH_PER_KWH, Rate.FORECAST: forecast, Rate.PRIVATE: private, Rate.EXACT: exact}
    months, lengths = np.unique(_months_of(np.unique(days)), return_counts=True)
    return Bills(
        months=tuple(str(month) for month in months),
        days=lengths.astype(np.int64),
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


def _months_of(day: IntArray) -> NDArray[np.datetime64]:
    return day.astype("datetime64[D]").astype("datetime64[M]")


@dataclass(frozen=True, slots=True)
class BillChange:
    """Change of bills compared with the flat rate, over households: 5 %, median, 95 %."""

    median_bill: float
    money: tuple[float, float, float]
    percent: tuple[float, float, float]
    households_above: int  # that pay more than the threshold more


@dataclass(frozen=True, slots=True)
class NoiseEffect:
    """What the noise alone does: the private price compared with the same plan without noise, as charged.

    Standard deviations are over draws of the noise. Those of bills are of the median household.
    """

    interval_percent: float  # of the price of an interval
    day_percent: float  # of the bill of a day
    month_percent: tuple[float, ...]  # of the bill of each month
    period_percent: float  # of the bill of the whole period
    period_money: float
    largest_period_percent: float  # the household that it moves most
    mean_percent: float  # of the mean over draws, of all bills together
    mean_percent_error: float  # its standard error


def change_percent(bills: Bills, rate: Rate) -> FloatArray:
    """Return by how many percent each household pays more than at the flat rate [household]; 0 without any use."""
    return _percent(bills.totals(rate) - bills.totals(Rate.FLAT), bills.totals(Rate.FLAT))


def noise_deviation(bills: Bills) -> FloatArray:
    """Return the standard deviation of each bill of the whole period that the noise alone makes [household]."""
    return np.asarray(bills.noise.sum(axis=1).std(axis=0, ddof=1))


def measure_change(bills: Bills, rate: Rate, above_percent: float) -> BillChange:
    """Return how bills differ from those at the flat rate. `above_percent` is how much more counts as much more."""
    change, percent = bills.totals(rate) - bills.totals(Rate.FLAT), change_percent(bills, rate)
    money, shares = (np.quantile(values, _QUANTILES).tolist() for values in (change, percent))
    return BillChange(
        median_bill=float(np.median(bills.totals(rate))),
        money=(money[0], money[1], money[2]),
        percent=(shares[0], shares[1], shares[2]),
        households_above=int((percent > above_percent).sum()),
    )


def measure_noise(bills: Bills, prices: ReplayedPrices) -> NoiseEffect:
    """Return what the noise alone does to prices and bills."""
    exact = bills.exact_as_charged
    period, by_month = noise_deviation(bills), bills.noise.std(axis=0, ddof=1)
    period_percent = _percent(period, exact.sum(axis=0))
    all_percent = 100 * bills.noise.sum(axis=(1, 2)) / exact.sum()
    price_difference = (prices.private - prices.exact[:, None]).astype(np.float64)
    return NoiseEffect(
        interval_percent=float(100 * np.sqrt(np.mean(price_difference**2)) / prices.exact.mean()),
        day_percent=float(np.median(_percent(np.sqrt(bills.day_noise_variance), exact.sum(axis=0) / bills.days.sum()))),
        month_percent=tuple(float(np.median(_percent(sd, bill))) for sd, bill in zip(by_month, exact, strict=True)),
        period_percent=float(np.median(period_percent)),
        period_money=float(np.median(period)),
        largest_period_percent=float(period_percent.max()),
        mean_percent=float(all_percent.mean()),
        mean_percent_error=float(all_percent.std(ddof=1) / np.sqrt(len(all_percent))),
    )


def _percent(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Parts of wholes in percent; 0 where there is no whole."""
    return np.asarray(100 * np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))
