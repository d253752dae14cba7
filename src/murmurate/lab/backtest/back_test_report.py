"""What a back-test found, in sentences and tables."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from murmurate.lab.backtest.bill_statistics import change_percent, noise_deviation
from murmurate.lab.backtest.bills import Rate
from murmurate.lab.backtest.zone_back_test import ZoneBackTest, describe_curve

_OWNER_ONLY = 0o600
RATE_EXPLANATIONS = {
    Rate.FLAT: "one price at all times",
    Rate.FORECAST: "from the plan's public forecast; no meter is read",
    Rate.PRIVATE: "from the forecast and releases with the plan's noise",
    Rate.EXACT: "the same without noise; not private",
}
NOT_SHOWN = (
    "What people would have done. They are billed for what they used; prices change what people use.",
    "A forecast on days that it does not know, if the one of the plan was fitted on this period.",
    "Network charges, taxes and fixed charges: only energy at the rate curve is billed.",
    "A year, unless the file covers one. Homes that heat with electricity pay in winter.",
)


def source_sentence(test: ZoneBackTest, file: str) -> str:
    """Return what was billed."""
    readings, (first_day, last_day) = test.readings, test.period
    without = f" {readings.left_out:,} more were left out: over 10 % of their readings are missing." * bool(
        readings.left_out
    )
    filled = f" {readings.filled:,} missing readings were filled in." * bool(readings.filled)
    filled += " Each meter is taken for a household: the file names none." * readings.is_by_meter
    return (
        f"{readings.households:,} households, {first_day} to {last_day} ({int(test.bills.days.sum())} days), "
        f"{test.bills.energy_kwh.sum():,.0f} kWh, from {file}.{without}{filled}"
    )


def rules_sentences(test: ZoneBackTest) -> list[str]:
    """Return how bills were computed."""
    plan, currency, statistics = test.plan, test.currency, test.statistics
    curve = describe_curve(plan.terms.curve, currency)
    equal = (
        f"Each rate collects the same from all homes together, {statistics.revenue:,.2f} {currency}, which is what the "
        "private price collects; the prices of the others are multiplied by one number for that. The flat rate is "
        f"{statistics.flat_price:.4f} {currency}/kWh."
    )
    by_kind = test.readings.kinds and len(plan.bounds) > 1
    bounds = [f"{wh:,} Wh ({kind})" for kind, wh in plan.bounds.items()] if by_kind else [f"{plan.bound_wh:,} Wh"]
    clipped = f"In the demand that prices follow, a household counts up to {', '.join(bounds)}; it is billed in full."
    times = plan.scale_of(test.readings)
    scaled = (
        f" The demand is multiplied by {times:.3f}: the plan is made for {plan.households:,} households, and these are "
        f"readings of {test.readings.households:,}."
    )
    return [
        f"Rate curve: {curve}. A price is made {test.options.lead} intervals before it is paid.",
        equal,
        clipped + scaled * (times != 1),
    ]


def change_cells(test: ZoneBackTest) -> list[list[str]]:
    """Return a row of cells for each rate, below `change_columns`."""
    statistics = test.statistics
    rows = [[Rate.FLAT.value, "", f"{_median_flat(test):,.2f}", *[""] * 7]]
    for rate in (Rate.FORECAST, Rate.PRIVATE, Rate.EXACT):
        change = statistics.changes[rate.value]
        money = [_signed(value, 2) for value in change.money]
        percent = [_signed(value, 1) for value in change.percent]
        shown = [f"{statistics.factors[rate.value]:.3f}", f"{change.median_bill:,.2f}", *money, *percent]
        rows.append([rate.value, *shown, f"{change.households_above:,}"])
    return rows


def change_columns(test: ZoneBackTest) -> list[str]:
    """Return the names of the columns."""
    money, above = test.currency, test.statistics.above_percent
    changes = [f"{share}, {unit}" for unit in (money, "%") for share in ("lowest 5 %", "median", "highest 5 %")]
    return ["rate", "times", f"median bill, {money}", *changes, f"homes over {above:g} % more"]


def noise_sentences(test: ZoneBackTest) -> list[str]:
    """Return what the noise alone does to bills."""
    noise, currency = test.statistics.noise, test.currency
    months = dict.fromkeys(f"{end(noise.month_percent):.2f}" for end in (min, max))
    averaged = (
        f"Noise moves the price of an interval by {noise.interval_percent:.1f} % (standard deviation, beside the same "
        f"plan without noise). It averages out over time: the bill of a day moves by {noise.day_percent:.2f} %, of a "
        f"month by {' to '.join(months)} %, of the whole period by {noise.period_percent:.2f} % or "
        f"{noise.period_money:.2f} {currency} (median home), at most {noise.largest_period_percent:.2f} % (the home "
        "that it moves most)."
    )
    common = (
        "It does not average out between homes: all pay the same price, so the total moves too. Its mean over "
        f"{test.options.draws} draws is {noise.mean_percent:+.2f} % ± {noise.mean_percent_error:.2f} %."
    )
    return [averaged, common]


def month_cells(test: ZoneBackTest) -> tuple[list[str], list[list[str]]]:
    """Return names of columns, and a row for each month: the bill of the mean home."""
    names = ["month", "days", "kWh", *(f"{rate.value}, {test.currency}" for rate in Rate), "noise, ± %"]
    rows = [
        [
            each.month,
            str(each.days),
            f"{each.energy_kwh:,.0f}",
            *(f"{each.bills[rate.value]:,.2f}" for rate in Rate),
            f"{each.noise_percent:.2f}",
        ]
        for each in test.statistics.months
    ]
    return names, rows


def write_household_bills(test: ZoneBackTest, path: Path) -> None:
    """Write the bills of each household to a CSV file that only its owner may read."""
    bills, totals = test.bills, {rate: test.bills.totals(rate) for rate in Rate}
    names = ["household", "kwh", *(f"{rate.name.lower()}_{test.currency.lower()}" for rate in Rate)]
    names += ["private_change_percent", f"noise_sd_{test.currency.lower()}"]
    columns = [*totals.values(), change_percent(bills, Rate.PRIVATE), noise_deviation(bills)]
    path.unlink(missing_ok=True)  # one that others may read would keep its mode
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        for at, name in enumerate(test.readings.names):
            energy = f"{bills.energy_kwh[:, at].sum():.3f}"
            rows.writerow([name, energy, *(f"{column[at]:.4f}" for column in columns)])


def _median_flat(test: ZoneBackTest) -> float:
    return float(np.median(test.bills.totals(Rate.FLAT)))


def _signed(value: float, digits: int) -> str:
    """
    >>> _signed(-0.004, 2), _signed(12.345, 1)
    ('0.00', '+12.3')
    """
    rounded = round(value, digits)
    return f"{rounded:+,.{digits}f}" if rounded else f"{0:.{digits}f}"
