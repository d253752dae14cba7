"""The report of `murmurate backtest`: what homes would have paid, and how much of that is noise."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from murmurate.lab.backtest.bills import Rate, change_percent, noise_deviation
from murmurate.lab.backtest.zone_back_test import ZoneBackTest, describe_curve
from murmurate.lab.plot_style import MUTED_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title, style_axes
from murmurate.lab.report import Report

_OWNER_ONLY = 0o600
_LOOKS = {
    Rate.FORECAST: (MUTED_COLOR, "--", 1.6),
    Rate.EXACT: (TEXT_COLOR, ":", 2.2),
    Rate.PRIVATE: (PRIVATE_COLOR, "-", 2.2),
}
_RATE_EXPLANATIONS = {
    Rate.FLAT: "one price at all times",
    Rate.FORECAST: "from the plan's public forecast; no meter is read",
    Rate.PRIVATE: "from the forecast and releases with the plan's noise",
    Rate.EXACT: "the same without noise; not private",
}
_NOT_SHOWN = (
    "What people would have done. They are billed for what they used; prices change what people use.",
    "A forecast on days that it does not know, if the one of the plan was fitted on this period.",
    "Public inputs, such as a temperature: all weather is taken as usual.",
    "Network charges, taxes and fixed charges: only energy at the rate curve is billed.",
    "A year, unless the file covers one. Homes that heat with electricity pay in winter.",
)


def make_back_test_report(test: ZoneBackTest, file: str) -> Report:
    """Return the report of a back-test. `file` is the name of the readings."""
    money, numbers = test.currency, test.to_document()
    report = Report(f"What homes of {test.plan.terms.zone} would have paid", numbers)
    report.add_text(_describe_source(test, file))
    report.add_list(_describe_rules(test))
    described = "Change of bills over homes, and noise over longer and longer periods"
    report.add_figure("bills", draw_bills_figure(test), described)
    report.add_heading("Bills compared with a flat rate")
    changes = [f"{share}, {unit}" for unit in (money, "%") for share in ("lowest 5 %", "median", "highest 5 %")]
    columns = ["rate", "times", f"median bill, {money}", *changes, f"homes over {test.options.above_percent:g} % more"]
    median_flat = float(np.median(test.bills.totals(Rate.FLAT)))
    rows = [[Rate.FLAT.value, "", f"{median_flat:,.2f}", *[""] * 7]]
    for rate, change in test.changes.items():
        changed = [format_signed(value, 2) for value in change.money]
        changed += [format_signed(value, 1) for value in change.percent]
        shown = [f"{test.bills.factors[rate]:.3f}", f"{change.median_bill:,.2f}", *changed]
        rows.append([rate.value, *shown, f"{change.households_above:,}"])
    report.add_table(columns, rows, kinds=["", "", "private", ""])
    report.add_list([f"{rate.value}: {text}." for rate, text in _RATE_EXPLANATIONS.items()], brief=False)
    explained = (
        "times: what the prices of the rate are multiplied by. Lowest and highest 5 %: one home in twenty is below "
    )
    report.add_text(f"{explained}or above.", brief=False, muted=True)
    report.add_heading("What the noise alone does to a bill")
    report.add_list(_describe_noise(test))
    report.add_heading("By month")
    explained = "The bill of the mean home. Noise: standard deviation of a month's bill, median home."
    report.add_text(explained, brief=False, muted=True)
    columns = ["month", "days", "kWh", *(f"{rate.value}, {money}" for rate in Rate), "noise, ± %"]
    rows = []
    for month in numbers["months"]:
        bills = [f"{bill:,.2f}" for bill in month["bills"].values()]
        energy, noise = f"{month['energy_kwh']:,.0f}", f"{month['noise_percent']:.2f}"
        rows.append([month["month"], str(month["days"]), energy, *bills, noise])
    report.add_table(columns, rows, brief=False)
    report.add_heading("What this does not show")
    report.add_list(_NOT_SHOWN, brief=False)
    warning = "This page comes from readings without any protection. Do not publish it without thought."
    report.add_text(warning, brief=False, muted=True)
    return report


def _describe_source(test: ZoneBackTest, file: str) -> str:
    """Return what was billed."""
    readings, (first_day, last_day) = test.readings, test.period
    said = (
        f"{readings.households:,} households, {first_day} to {last_day} ({int(test.bills.days.sum())} days), "
        f"{test.bills.energy_kwh.sum():,.0f} kWh, from {file}."
    )
    if readings.left_out:
        said += f" {readings.left_out:,} more were left out: over 10 % of their readings are missing."
    if readings.filled:
        said += f" {readings.filled:,} missing readings were filled in."
    return said + " Each meter is taken for a household: the file names none." * readings.is_by_meter


def _describe_rules(test: ZoneBackTest) -> list[str]:
    """Return how bills were computed."""
    plan, currency, bills = test.plan, test.currency, test.bills
    equal = (
        f"Each rate collects the same from all homes together, {bills.revenue:,.2f} {currency}, which is what the "
        "private price collects; the prices of the others are multiplied by one number for that. The flat rate is "
        f"{bills.factors[Rate.FLAT]:.4f} {currency}/kWh."
    )
    by_kind = test.readings.kinds and len(plan.bounds) > 1
    bounds = [f"{wh:,} Wh ({kind})" for kind, wh in plan.bounds.items()] if by_kind else [f"{plan.bound_wh:,} Wh"]
    counts = "up to" if not any(plan.export_bounds.values()) else "within its bounds, up to"
    clipped = (
        f"In the demand that prices follow, a household counts {counts} {', '.join(bounds)}; it is billed in full."
    )
    times = plan.scale_of(test.readings)
    scaled = (
        f" The demand is multiplied by {times:.3f}: the plan is made for {plan.households:,} households, and these are "
        f"readings of {test.readings.households:,}."
    )
    curve = describe_curve(plan.terms.curve, currency)
    return [
        f"Rate curve: {curve}. A price is made {test.options.lead} intervals before it is paid.",
        equal,
        clipped + scaled * (times != 1),
    ]


def _describe_noise(test: ZoneBackTest) -> list[str]:
    """Return what the noise alone does to bills."""
    noise, currency = test.noise, test.currency
    months = dict.fromkeys(f"{end(noise.month_percent):.2f}" for end in (min, max))
    averaged = (
        f"Noise moves the price of an interval by {noise.interval_percent:.1f} % (standard deviation, compared with "
        f"the same plan without noise). It averages out over time: the bill of a day moves by {noise.day_percent:.2f} "
        f"%, of a month by {' to '.join(months)} %, of the whole period by {noise.period_percent:.2f} % or "
        f"{noise.period_money:.2f} {currency} (median home), at most {noise.largest_period_percent:.2f} % (the home "
        "that it moves most)."
    )
    common = (
        "It does not average out between homes: all pay the same price, so the total moves too. Its mean over "
        f"{test.options.draws} draws is {noise.mean_percent:+.2f} % ± {noise.mean_percent_error:.2f} %."
    )
    return [averaged, common]


def draw_bills_figure(test: ZoneBackTest) -> Figure:
    """Draw homes by the change of their bill, and the noise in a price, a day, a month and the period."""
    drawn = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(1.35, 1))
    share = 100 * (np.arange(test.readings.households) + 0.5) / test.readings.households
    for rate, (color, style, width) in _LOOKS.items():
        left.plot(np.sort(change_percent(test.bills, rate)), share, color=color, ls=style, lw=width, label=rate.value)
    left.axvline(0, color=TEXT_COLOR, lw=0.8)
    left.set_ylim(0, 100)
    left.grid(color="#e6eaee", lw=0.8)
    left.set_xlabel("change of the bill compared with a flat rate, %")
    left.set_ylabel("% of homes with this change or less")
    left.legend(frameon=False, loc="lower right", fontsize=9, labelcolor=TEXT_COLOR)
    subtitle = "all rates collect the same; right of 0: more than at the flat rate"
    set_axes_title(left, "Who pays more, who pays less", subtitle)
    noise = test.noise
    values = {
        "price of an\ninterval": noise.interval_percent,
        "bill of\na day": noise.day_percent,
        "bill of\na month": float(np.average(noise.month_percent, weights=test.bills.days)),
        f"bill of {int(test.bills.days.sum())}\ndays": noise.period_percent,
    }
    bars = right.bar(range(len(values)), list(values.values()), color=PRIVATE_COLOR, width=0.6)
    right.bar_label(bars, [f"{value:.2g} %" for value in values.values()], padding=3, color=TEXT_COLOR, fontsize=9)
    right.set_xticks(range(len(values)), list(values), fontsize=9)
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    right.margins(y=0.12)
    right.set_ylabel("standard deviation, %")
    set_axes_title(right, "What the noise alone does", "compared with the same plan without noise; bills: median home")
    for axes in (left, right):
        style_axes(axes)
    return drawn


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


def format_signed(value: float, digits: int) -> str:
    """Return a change with its sign; without one if it is 0 after rounding.

    >>> format_signed(-0.004, 2), format_signed(12.345, 1)
    ('0.00', '+12.3')
    """
    rounded = round(value, digits)
    return f"{rounded:+,.{digits}f}" if rounded else f"{0:.{digits}f}"
