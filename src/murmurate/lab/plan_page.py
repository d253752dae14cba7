"""`murmurate plan`: one page that a person can read, and a `plan.json` that a service can run."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from murmurate.audit.bound import auc_bound
from murmurate.curator.plan import Plan, make_plan
from murmurate.curator.utility import Cap, Errors, best_cap, utility
from murmurate.curator.zonefile import MeterSummary, parse_zone
from murmurate.errors import MeterError, MurmurateError, ReadingError, ZoneFileError
from murmurate.household.independence import IndependenceTest, independence_test
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.promise import IntervalPromise, MomentPromise
from murmurate.quantities import BoolArray, FloatArray, IntArray, refuse_where

ASSUMES = {
    Calibration.RANGE: "Assumes nothing about what a household uses below its bound, nor how that lasts.",
    Calibration.SHIFT: "Assumes that a household's rank among its own readings does not depend on who is home.",
    Calibration.ROBUST: "Assumes the laws of consumption up to a share eta, and no memory beyond occupancy and prices.",
    Calibration.EXACT: "Assumes the laws of consumption exactly, and no memory beyond occupancy and prices.",
}
NOT_COVERED = (
    "the operator, who sees every reading; bills and other channels",
    "a household in two zones, or moving between them within a window",
    "households that move together: k of them cost k times as much in an interval, more over time",
    "somebody who knows other hours of the same household: that makes one moment easier to guess",
    "models learnt from private data: use public, consented or privately learnt ones",
    "a reading above its bound, or a silent meter: the price is a little off, never the privacy",
)


def plan(zone_file: Path, out: Path, readings: Path | None) -> None:
    """Make the plan of a zone file, print its page, write `plan.json`."""
    text = zone_file.read_text(encoding="utf-8")
    sample = None if readings is None else read_sample(readings)
    try:
        zone = parse_zone(text, lambda name: read_meters(zone_file.parent / name), None)
        if sample is not None:
            period = np.arange(zone.intervals_per_day) * 4 // zone.intervals_per_day
            tested = independence_test(*sample, period)
            zone = parse_zone(text, lambda name: read_meters(zone_file.parent / name), tested)
    except ZoneFileError as error:
        error.file = str(zone_file)
        raise
    with Console(stderr=True).status("planning") as status:
        made = make_plan(zone, lambda what: status.update(f"planning: {what}"))
    out.write_text(made.to_json(), encoding="utf-8")
    console = Console(width=None if Console().is_terminal else 100, highlight=False)
    page(made, console)
    if sample is not None:
        print_sample(made, sample[0], zone.independence, console)
    console.print(f"\nWritten to {out}. Anybody can prove it again from that file alone.")


def page(made: Plan, console: Console) -> None:
    """The plan in words and numbers."""
    zone, cost = made.zone, utility(made)
    console.print(
        f"[bold]Plan for {zone.name}[/]: {zone.households:,} households, {zone.intervals_per_day} intervals a day"
    )
    promises = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, justify in (("promise", "left"), ("costs", "right"), ("an attacker's AUC is at most", "right")):
        promises.add_column(name, justify=justify)  # type: ignore[arg-type]
    for each in made.costs:
        pure = isinstance(each.promise, IntervalPromise | MomentPromise)
        promises.add_row(str(each.promise), f"{each.spent:.4g}", f"{auc_bound(each.spent):.3f}" if pure else "")
    console.print(promises)
    scales = np.unique(made.scale_wh)
    rms = np.sqrt(made.noise_variance) / 1000
    spread = f"{rms.min():.2f}" if len(scales) == 1 else f"{rms.min():.2f} to {rms.max():.2f}"
    console.print(
        f"Noise: discrete {made.law.value}, calibration {zone.calibration.value}, rms {spread} kWh an interval."
    )
    if len(scales) > 1:
        console.print(f"  rms in kWh, by hour from midnight: {' '.join(f'{v:.1f}' for v in _hourly(rms))}")
    mean = float(np.mean(zone.forecast.profile_wh)) / 1000
    made_from = (
        "filtered releases" if zone.filtered else "each release as it is; filter = true in the zone file smooths"
    )
    console.print(f"Prices are made from {made_from}.")
    console.print(f"Demand: {mean:,.1f} kWh an interval in the mean, by the public profile.\n")
    console.print(_errors(cost.right, cost.wrong))
    console.print(_verdict(cost.right, cost.wrong, filtered=zone.filtered))
    money = zone.currency
    off = f"{cost.price_error:.4f} (rms), {cost.price_error / cost.price:.1%}"
    console.print(f"Price: {cost.price:.4f} {money}/kWh in the mean, off by {off}.")
    console.print(f"Mispricing costs the zone {cost.misallocation:,.2f} {money} a year (alpha Var/2).")
    share = cost.bill_error / cost.bill if cost.bill > 0 else 0.0
    console.print(
        f"One household's year of {cost.bill:,.2f} {money} moves by {cost.bill_error:.2f} ({share:.2%}, rms).\n"
    )
    console.print(f"Stands on: {ASSUMES[zone.calibration]}")
    if any(isinstance(each.promise, MomentPromise) for each in made.costs):
        console.print("  A moment's leakage also takes the occupancy models of the zone file as true, and load that")
        console.print("  answers to earlier occupancy (a boiler reheating after a return) is not covered by it.")
    console.print("Does not cover:")
    for line in NOT_COVERED:
        console.print(f"  - {line}")


def _verdict(right: Errors, wrong: Errors, *, filtered: bool) -> str:
    """Whether the data are worth their leak: against a forecast that needs none."""
    if right.raw <= right.forecast:
        return "As published it beats the forecast, which needs no data.\n"
    if wrong.filtered < 0.9 * wrong.forecast:
        pays = (
            "The filter makes it pay" if filtered else "As published it is worse than the forecast; filtered, it pays"
        )
        return f"{pays} where the profile is wrong.\n"
    return "Worse than the forecast, filtered or not: publish the forecast, join zones, or promise less.\n"


def _hourly(rms: FloatArray) -> FloatArray:
    return rms[:: max(1, len(rms) // 24)]


def _errors(right: Errors, wrong: Errors) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rms error of the demand, in kWh")
    for name in ("as published", "filtered", "forecast only, no data"):
        table.add_column(name, justify="right")
    for name, errors in (("profile right", right), ("profile 10 % too low", wrong)):
        table.add_row(name, *(f"{value / 1000:.2f}" for value in errors))
    return table


def print_sample(made: Plan, energy_wh: IntArray, tested: IndependenceTest | None, console: Console) -> None:
    """What the sample says: memory, and the bound with the least error."""
    if tested is not None:
        verdict = "no memory found" if tested.passed else "readings remember: exact and robust are refused"
        console.print(
            f"\nSample: {verdict} (rank correlation {tested.correlation:+.3f}; "
            f"{tested.detectable:.3f} would have been seen in 99 %)."
        )
    bounds = np.array([max(kind.bound_wh for kind in kinds) for kinds in made.zone.protected])
    bound, per_bound = int(bounds.max()), float((made.scale_wh / bounds).max())
    cap: Cap = best_cap(energy_wh, made.zone.households, per_bound)
    console.print(
        f"The bound with the least error for readings like these: {cap.bound_wh:,} Wh "
        f"(noise {cap.noise / 1000:.2f} kWh, cut off {cap.bias / 1000:.2f} kWh); the largest in use is {bound:,} Wh."
    )


def read_meters(path: Path) -> MeterSummary:
    """Count and largest bound of a CSV with a column `bound_wh`, one row a meter."""
    (bounds,) = _whole_columns(path, ("bound_wh",), MeterError).T
    refuse_where(bounds < 1, "bound_wh", bounds, "must be at least 1 Wh", MeterError)
    return MeterSummary(len(bounds), int(bounds.max(initial=0)))


def read_sample(path: Path) -> tuple[IntArray, BoolArray]:
    """Readings with known occupancy from a CSV `interval,household,energy_wh,occupied`, one row each, none missing."""
    values = _whole_columns(path, ("interval", "household", "energy_wh", "occupied"), ReadingError)
    refuse_where(values < 0, str(path), values, "must be 0 or more", ReadingError)
    refuse_where(values[:, 3] > 1, "occupied", values[:, 3], "must be 0 or 1", ReadingError)
    shape = tuple(int(values[:, axis].max(initial=-1)) + 1 for axis in (0, 1))
    energy_wh, occupied = np.full(shape, -1, np.int64), np.zeros(shape, np.bool_)
    energy_wh[values[:, 0], values[:, 1]] = values[:, 2]
    occupied[values[:, 0], values[:, 1]] = values[:, 3] == 1
    if len(values) != energy_wh.size or (energy_wh < 0).any():
        allowed = f"must have one row for each of {shape[0]} intervals and {shape[1]} households"
        raise ReadingError(str(path), f"{len(values)} rows", allowed)
    return energy_wh, occupied


def _whole_columns(path: Path, columns: tuple[str, ...], error: type[MurmurateError]) -> IntArray:
    """Columns of a CSV as whole numbers [row, column]."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if not set(columns) <= set(rows.fieldnames or ()):
            raise error(str(path), f"with columns {rows.fieldnames}", f"must have the columns {', '.join(columns)}")
        try:
            values = [[int(row[column]) for column in columns] for row in rows]
        except (ValueError, TypeError):
            raise error(
                f"{path}:{rows.line_num}", "not readable", f"must be whole numbers: {', '.join(columns)}"
            ) from None
    return np.array(values, np.int64).reshape(-1, len(columns))
