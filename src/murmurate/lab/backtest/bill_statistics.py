"""How bills change from one rate to another, and how much of that is noise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from murmurate.lab.backtest.bills import Bills, Rate
from murmurate.lab.backtest.replayed_prices import ReplayedPrices
from murmurate.units import FloatArray

_QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True, slots=True)
class BillChange:
    """Change of bills beside the flat rate, over households: 5 %, median, 95 %."""

    median_bill: float
    money: tuple[float, float, float]
    percent: tuple[float, float, float]
    households_above: int  # that pay more than the threshold more


@dataclass(frozen=True, slots=True)
class NoiseEffect:
    """What the noise alone does: the private price beside the same plan without noise, as charged.

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


@dataclass(frozen=True, slots=True)
class MonthBill:
    """The bill of the mean household in one month."""

    month: str
    days: int
    energy_kwh: float
    bills: dict[str, float]  # by rate
    noise_percent: float


@dataclass(frozen=True, slots=True)
class BillStatistics:
    """All that a back-test reports."""

    revenue: float
    flat_price: float
    factors: dict[str, float]
    above_percent: float  # the threshold
    changes: dict[str, BillChange]  # by rate, without the flat rate
    noise: NoiseEffect
    months: tuple[MonthBill, ...]

    def to_document(self) -> dict[str, Any]:
        """Return the members of a JSON document."""
        return asdict(self)


def measure_bills(bills: Bills, prices: ReplayedPrices, above_percent: float) -> BillStatistics:
    """Return the statistics of some bills. `above_percent` is how much more counts as much more."""
    noise = _noise_effect(bills, prices)
    return BillStatistics(
        revenue=bills.revenue,
        flat_price=bills.factors[Rate.FLAT],
        factors={rate.value: bills.factors[rate] for rate in Rate if rate is not Rate.FLAT},
        above_percent=above_percent,
        changes={rate.value: _bill_change(bills, rate, above_percent) for rate in Rate if rate is not Rate.FLAT},
        noise=noise,
        months=tuple(
            MonthBill(
                month=month,
                days=int(bills.days[at]),
                energy_kwh=float(bills.energy_kwh[at].mean()),
                bills={rate.value: float(bills.by_rate[rate][at].mean()) for rate in Rate},
                noise_percent=noise.month_percent[at],
            )
            for at, month in enumerate(bills.months)
        ),
    )


def change_percent(bills: Bills, rate: Rate) -> FloatArray:
    """Return by how many percent each household pays more than at the flat rate [household]; 0 without any use."""
    return _percent(bills.totals(rate) - bills.totals(Rate.FLAT), bills.totals(Rate.FLAT))


def noise_deviation(bills: Bills) -> FloatArray:
    """Return the standard deviation of each bill of the whole period that the noise alone makes [household]."""
    return np.asarray(bills.noise.sum(axis=1).std(axis=0, ddof=1))


def _bill_change(bills: Bills, rate: Rate, above_percent: float) -> BillChange:
    percent = change_percent(bills, rate)
    return BillChange(
        median_bill=float(np.median(bills.totals(rate))),
        money=_quantiles(bills.totals(rate) - bills.totals(Rate.FLAT)),
        percent=_quantiles(percent),
        households_above=int((percent > above_percent).sum()),
    )


def _noise_effect(bills: Bills, prices: ReplayedPrices) -> NoiseEffect:
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


def _quantiles(values: FloatArray) -> tuple[float, float, float]:
    low, median, high = np.quantile(values, _QUANTILES).tolist()
    return low, median, high
