"""`murmurate plan`: one page that a person can read, and a `plan.json` that a service can run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from murmurate.audit.auc_bound import auc_bound
from murmurate.commands.bound_page import print_bound_choice
from murmurate.commands.json_output import print_json
from murmurate.commands.plan_documents import load_plan_file
from murmurate.commands.plan_numbers import plan_numbers
from murmurate.commands.zone_inputs import read_forecast_file, read_meter_summary
from murmurate.errors import ZoneFileError
from murmurate.household.model_fit import MIN_COMMON_CORRELATION, MIN_SINGLE_CORRELATION
from murmurate.lab.sample_file import LabeledSample, read_sample, with_tested_distributions
from murmurate.planning.bound_choice import BoundChoice, choose_bound
from murmurate.planning.plan import Plan, make_plan, prove_plan
from murmurate.planning.plan_prediction import PredictionErrors, forecast_errors, usual_day
from murmurate.planning.privacy_cost import kind_events
from murmurate.planning.utility import ClippingBound, Utility, best_clipping_bound, plan_utility
from murmurate.planning.zone import Zone
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.privacy.accountant import PldAccountant, count_events
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.promise import HabitGuessBound, IntervalPromise, MomentPromise, WindowPromise
from murmurate.text_files import read_text
from murmurate.units import FloatArray

CALIBRATION_ASSUMPTIONS = {
    Calibration.RANGE: "Assumes nothing about what a household uses below its bound, nor how that lasts.",
    Calibration.SHIFT: "Assumes that a household's rank among its own readings does not depend on who is home.",
    Calibration.ROBUST: "Assumes the laws of consumption up to a share eta, no memory, and no answer to prices.",
    Calibration.EXACT: "Assumes the laws of consumption exactly, no memory, and no answer to prices.",
}
CALIBRATION_COVERAGE = {
    Calibration.RANGE: "occupancy, and whether a household is in the zone at all (joining and leaving).",
    Calibration.SHIFT: "occupancy, not whether a household is in the zone: joining and leaving may show.",
    Calibration.ROBUST: "occupancy, not whether a household is in the zone: joining and leaving may show.",
    Calibration.EXACT: "occupancy, not whether a household is in the zone: joining and leaving may show.",
}
LONG_WINDOW_DAYS = 30
MIN_USEFUL_SHARE = 0.2  # of what exact data add to a forecast
NOT_COVERED = (
    "habits, beyond what windows bound: prices teach them over months",
    "the operator, who sees every reading; bills and other channels",
    "a household in two zones, or moving between them within a window",
    "households that move together: k of them cost k times as much in an interval, more over time",
    "an attacker who knows other hours of the same household: that makes one moment easier to guess",
    "models learnt from private data: use public, consented or privately learnt ones",
    "a reading above its bound, or a silent meter: the price is a little off, never the privacy",
)


def plan_zone(
    zone_file: Path, out: Path, readings: Path | None, noise_of: Path | None = None, *, as_json: bool = False
) -> Plan:
    """Return the plan of a zone file. Print its page, write `plan.json`. `noise_of` is a plan whose noise to take."""
    sample = None if readings is None else read_sample(readings)
    zone, choice = _read_zone(zone_file, may_choose=noise_of is None)
    if sample is not None and zone.calibration.needs_independence:
        zone = with_tested_distributions(zone, sample)
    with Console(stderr=True).status("planning") as status:
        if noise_of is None:
            made = make_plan(zone, lambda what: status.update(f"planning: {what}"))
        else:
            noise = load_plan_file(noise_of).noise
            made = prove_plan(zone, noise.distribution, noise.scale_wh, noise.core_wh)
    out.write_text(made.to_json(), encoding="utf-8")
    if as_json:
        print_json(plan_numbers(made) | {"file": str(out)})
        return made
    console = Console(width=None if Console().is_terminal else 100, highlight=False)
    if choice is not None:
        print_bound_choice(choice, console)
    print_plan(made, console)
    if sample is not None:
        print_sample_results(made, sample, console)
    console.print(f"\nWritten to {out}. Anybody can prove it again from that file alone.")
    return made


def _read_zone(zone_file: Path, *, may_choose: bool) -> tuple[Zone, BoundChoice | None]:
    """Return the zone of a file, and how its bound was chosen if the file asks for that."""
    text = read_text(zone_file)
    read_zone = partial(
        parse_zone,
        read_meters=lambda name: read_meter_summary(zone_file.parent / name),
        read_forecast=lambda name: read_forecast_file(zone_file.parent / name),
    )
    try:
        choice = None
        if may_choose:
            with Console(stderr=True).status("choosing a bound") as status:
                choice = choose_bound(text, read_zone, lambda what: status.update(f"choosing a bound: {what}"))
        return read_zone(text if choice is None else choice.zone_text), choice
    except ZoneFileError as error:
        error.file = str(zone_file)
        raise


def print_plan(plan: Plan, console: Console) -> None:
    """The plan in words and numbers."""
    zone, cost = plan.zone, plan_utility(plan)
    console.print(
        f"[bold]Plan for {zone.name}[/]: {zone.household_count:,} households, {zone.intervals_per_day} intervals a day"
    )
    promises = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, justify in (("promise", "left"), ("costs", "right"), ("an attacker's AUC is at most", "right")):
        promises.add_column(name, justify=justify)  # type: ignore[arg-type]
    for each in plan.costs:
        pure = isinstance(each.promise, IntervalPromise | MomentPromise)
        promises.add_row(str(each.promise), f"{each.spent:.4g}", f"{auc_bound(each.spent):.3f}" if pure else "")
    console.print(promises)
    if plan.habits:
        print_habit_risks(plan, console)
    _print_noise(plan, console)
    if plan.prediction is not None:
        print_prediction(plan, plan.prediction, console)
    else:
        _print_echo(plan, cost, console)
    _print_prices_and_bills(cost, zone.currency, console)
    _print_scope(plan, console)


def _print_echo(plan: Plan, cost: Utility, console: Console) -> None:
    """How good prices are that are made from each release alone."""
    mean_kwh = float(np.mean(plan.zone.forecast_moments[0])) / 1000
    console.print("Prices are made from each release as it is; [forecast] in the zone file predicts.")
    console.print(f"Demand: {mean_kwh:,.1f} kWh an interval in the mean, by the occupancy models.")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rms error of the demand")
    table.add_column("kWh", justify="right")
    table.add_row("each release", f"{cost.release_error_wh / 1000:.2f}")
    table.add_row("forecast only, no data", f"{cost.forecast_error_wh / 1000:.2f}")
    table.add_row("forecast only, 10 % too low", f"{cost.wrong_forecast_error_wh / 1000:.2f}")
    console.print(table)
    if cost.release_error_wh <= cost.forecast_error_wh:
        console.print("Each release beats the forecast, which needs no data.\n")
    else:
        console.print("Worse than the forecast: predict prices, publish the forecast, join zones, or promise less.\n")


def print_prediction(plan: Plan, prediction: ZonePrediction, console: Console) -> None:
    """How good predicted prices are, beside a forecast that reads no meter."""
    public = prediction.model.public
    usual_wh = prediction.scale * float(usual_day(public.demand).mean())
    errors = forecast_errors(plan.zone, prediction, plan.noise)
    console.print("Prices are predicted for the interval that pays, from the forecast and all releases so far.")
    console.print(f"Forecast: {public.source}; {usual_wh / 1000:,.1f} kWh an interval in the mean.")
    if public.error is None:
        console.print("Its error was not measured: deviations are taken as usual.")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rms error of the demand that is priced")
    table.add_column("% of the mean", justify="right")
    table.add_column("kWh", justify="right")
    for name, error in zip(("forecast only, no data", "this plan", "exact data, predicted"), errors, strict=True):
        table.add_row(name, f"{100 * error:.1f}", f"{error * usual_wh / 1000:,.1f}")
    console.print(table)
    console.print(_prediction_verdict(errors))


def _prediction_verdict(errors: PredictionErrors) -> str:
    """What the releases add to a forecast, as a share of what exact data would add."""
    share = (errors.forecast**2 - errors.private**2) / max(errors.forecast**2 - errors.exact**2, 1e-12)
    if share >= MIN_USEFUL_SHARE:
        return f"It pays: the releases add {100 * share:.0f} % of what exact data would add to the forecast.\n"
    return (
        f"The releases add {100 * share:.0f} % of what exact data would add: publish the forecast, join zones, "
        "promise less, or take a lower bound.\n"
    )


def _print_noise(plan: Plan, console: Console) -> None:
    scales = np.unique(plan.scale_wh)
    rms = np.sqrt(plan.noise_variance) / 1000
    spread = f"{rms.min():.2f}" if len(scales) == 1 else f"{rms.min():.2f} to {rms.max():.2f}"
    console.print(
        f"Noise: discrete {plan.distribution.value}, calibration {plan.zone.calibration.value}, "
        f"rms {spread} kWh an interval."
    )
    if len(scales) > 1:
        console.print(f"  rms in kWh, by hour from midnight: {' '.join(f'{v:.1f}' for v in _hourly(rms))}")


def _print_prices_and_bills(cost: Utility, currency: str, console: Console) -> None:
    off = f"{cost.price_error:.4f} (rms), {cost.price_error / cost.mean_price:.1%}"
    console.print(f"Price: {cost.mean_price:.4f} {currency}/kWh in the mean, off by {off}.")
    console.print(f"Mispricing costs the zone {cost.misallocation:,.2f} {currency} a year (alpha Var/2).")
    share = cost.bill_error / cost.bill if cost.bill > 0 else 0.0
    console.print(
        f"One household's year of {cost.bill:,.2f} {currency} moves by {cost.bill_error:.2f} ({share:.2%}, rms).\n"
    )


def _print_scope(plan: Plan, console: Console) -> None:
    """What the plan stands on, what it hides, and what it does not cover."""
    zone = plan.zone
    console.print(f"Stands on: {CALIBRATION_ASSUMPTIONS[zone.calibration]}")
    console.print(f"Hides: {CALIBRATION_COVERAGE[zone.calibration]}")
    if plan.habits:
        console.print("  A moment's leakage also takes the occupancy models of the zone file as true, and load that")
        console.print("  answers to earlier occupancy (a boiler reheating after a return) is not covered by it.")
    for learned in zone.learned:
        support = "" if learned.proven else " That bound is tested on random models, not proven."
        console.print(
            f"Habits {learned.name}: learned from {learned.households:,} households that agreed. Each of them spent "
            f"epsilon {learned.epsilon} on it. Their common habits are within the bound with a chance of "
            f"{learned.confidence:.4g}.{support}"
        )
    if any(any(kind.public) and not kind.always_public for kind in zone.kinds):
        console.print(f"Public hours are those of {zone.clock.name}; where clocks change, only hours public under")
        console.print("  every offset from UTC count, so an hour at either end stays protected.")
    console.print("Does not cover:")
    for line in NOT_COVERED:
        console.print(f"  - {line}")


def print_habit_risks(plan: Plan, console: Console) -> None:
    """What prices may teach about habits, and the promise to make about it."""
    console.print("The promise about a moment assumes an attacker who knows the household's habits already.")
    console.print("Prices may teach the habits themselves. Who guesses between two of them is right at most:")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("from prices of")
    for name in ("home from 08:00 to 16:00 or not", "any two habits"):
        table.add_column(name, justify="right")
    for found in plan.habits:
        table.add_row(_format_days(found), _format_percent_up(found.home_by_day), _format_percent_up(found.any_habits))
    console.print(table)
    longest = max((p.intervals for p in plan.zone.promises if isinstance(p, WindowPromise)), default=0)
    if longest < LONG_WINDOW_DAYS * plan.zone.intervals_per_day:
        console.print("No promise here bounds that over months. Add a long window to the zone file; this noise keeps")
        console.print(f'  "any 365 d: epsilon {year_window_epsilon(plan):g}, delta 1e-6"\n')


def _format_percent_up(chance: float) -> str:
    """
    >>> _format_percent_up(0.5301), _format_percent_up(0.53), _format_percent_up(1.0)
    ('53.1%', '53.0%', '100.0%')
    """
    return f"{np.ceil(round(1000 * chance, 6)) / 10:.1f}%"


def _format_days(habits: HabitGuessBound) -> str:
    return {1: "a day", 7: "a week", 365: "a year"}.get(habits.days, f"{habits.days} days")


def year_window_epsilon(plan: Plan) -> float:
    """The epsilon that a year of this noise keeps at delta 1e-6, rounded up."""
    zone = plan.zone
    days = [count_events(kind_events(zone, plan.noise, kind)) for kind in zone.private_kinds]
    spent = [PldAccountant(grid_points=40).epsilon([(event, 365 * n) for event, n in day], 1e-6) for day in days]
    return float(np.ceil(1.02 * max(spent, default=0.0)))


def _hourly(rms: FloatArray) -> FloatArray:
    return rms[:: max(1, len(rms) // 24)]


def print_sample_results(plan: Plan, sample: LabeledSample, console: Console) -> None:
    """What the sample says: whether the laws hold, and the bound with the least error."""
    energy_wh = sample.energy_wh
    console.print(f"\nSample: {energy_wh.shape[1]:,} households that agreed, {len(energy_wh):,} intervals.")
    if plan.zone.tested:
        console.print(
            "It follows the declared laws, and no memory was found. A rank correlation of "
            f"{MIN_COMMON_CORRELATION} in all households, or of {MIN_SINGLE_CORRELATION} in one of them, would have "
            "been seen with a chance of 99 %. How households answer to prices was not tested."
        )
    bounds = np.array([max(kind.bound_wh for kind in kinds) for kinds in plan.zone.protected_kinds])
    bound, per_bound = int(bounds.max()), float((plan.scale_wh / bounds).max())
    cap: ClippingBound = best_clipping_bound(energy_wh, plan.zone.household_count, per_bound)
    console.print(
        f"The bound with the least error for readings like these: {cap.bound_wh:,} Wh "
        f"(noise {cap.noise / 1000:.2f} kWh, cut off {cap.bias / 1000:.2f} kWh); the largest in use is {bound:,} Wh."
    )
