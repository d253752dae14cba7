"""`murmurate plan`: one page that a person can read, and a `plan.json` that a service can run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from murmurate.commands.bound_page import print_bound_choice
from murmurate.commands.json_output import print_json
from murmurate.commands.plan_documents import load_plan_file
from murmurate.commands.plan_numbers import plan_numbers
from murmurate.commands.zone_inputs import read_forecast_file, read_meter_summary
from murmurate.errors import ZoneFileError
from murmurate.files import read_text
from murmurate.planning.bound_choice import BoundChoice, choose_bound
from murmurate.planning.plan import Plan, make_plan, prove_plan
from murmurate.planning.plan_prediction import (
    A_YEAR,
    MIN_HOMES_FOR_A_YEAR,
    PredictionErrors,
    compare_promises,
    forecast_errors,
    recommended_promise,
    usual_day,
)
from murmurate.planning.privacy_cost import kind_events
from murmurate.planning.promise_text import PromiseText, describe_promises
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.utility import DAYS_PER_YEAR, Utility, plan_utility
from murmurate.planning.zone import Zone
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.privacy.accountant import PldAccountant, count_events
from murmurate.privacy.promise import WindowPromise
from murmurate.translations.language import ENGLISH
from murmurate.units import FloatArray

MIN_USEFUL_SHARE = 0.2  # of what exact data add to a forecast


def plan_zone(zone_file: Path, out: Path, noise_of: Path | None = None, *, as_json: bool = False) -> Plan:
    """Return the plan of a zone file. Print its page, write `plan.json`. `noise_of` is a plan whose noise to take."""
    zone, choice = _read_zone(zone_file, may_choose=noise_of is None)
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
    console.print(f"\nWritten to {out}. Anybody can prove it again from that file alone.")
    return made


def _read_zone(zone_file: Path, *, may_choose: bool) -> tuple[Zone, BoundChoice | None]:
    """Return the zone of a file, and how its bound was chosen if the file asks for that."""
    text = read_text(zone_file)
    read_zone = partial(
        parse_zone,
        read_meters=lambda name, zone, kind: read_meter_summary(zone_file.parent / name, zone, kind),
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
    text = describe_promises(ReleaseTerms.from_json(plan.to_json()), ENGLISH)
    _print_promises(text, console)
    _print_noise(plan, console)
    if plan.prediction is not None:
        print_prediction(plan, plan.prediction, console)
    else:
        _print_echo(plan, cost, console)
    _print_recommendation(plan, console)
    _print_prices_and_bills(cost, zone.currency, console)
    _print_scope(plan, text, console)


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
    compared = compare_promises(plan.zone)
    rows = {"forecast only, no data": errors.forecast, **compared, "this plan": errors.private}
    for name, error in (rows | {"exact data, predicted": errors.exact}).items():
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
    console.print(f"Noise: discrete {plan.distribution.value}, rms {spread} kWh an interval.")
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


def _print_promises(text: PromiseText, console: Console) -> None:
    """The rows and notes of the plan's public page."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(ENGLISH.plain("plan.promise_scope"), no_wrap=True)
    table.add_column(ENGLISH.plain("plan.promise_guess"), justify="right")
    table.add_column(ENGLISH.plain("plan.promise_number"), no_wrap=True)
    table.add_column(ENGLISH.plain("plan.promise_spent"), no_wrap=True)
    for row in text.rows:
        table.add_row(row.scope, row.guesses, row.promised, row.spent)
    console.print(table)
    for note in text.notes:
        console.print(note)


def _print_scope(plan: Plan, text: PromiseText, console: Console) -> None:
    """What the plan stands on, what it hides, and what it does not cover."""
    for sentence in (f"Stands on: {text.basis[0]}", *text.basis[1:]):
        console.print(sentence, markup=False)
    if any(any(kind.public) and not kind.always_public for kind in plan.zone.kinds):
        console.print(f"Public hours are those of {plan.zone.clock.name}; where clocks change, only hours public under")
        console.print("  every offset from UTC count, so an hour at either end stays protected.")
    console.print("Does not cover:")
    for line in text.limits:
        console.print(f"  - {line}")


def _print_recommendation(plan: Plan, console: Console) -> None:
    """A year's window, for zones that are large enough, alone or in a pool."""
    zone = plan.zone
    longest = max((p.intervals for p in zone.promises if isinstance(p, WindowPromise)), default=0)
    if longest >= DAYS_PER_YEAR * zone.intervals_per_day:
        return
    homes = zone.household_count + (0 if zone.predicted is None else zone.predicted.pool_homes)
    console.print("A year's window bounds what prices tell about habits and holidays. A shorter one says little about")
    console.print(f'  them: a year of this noise keeps "any 365 d: epsilon {year_window_epsilon(plan):g}, delta 1e-6".')
    if recommended_promise(homes) == A_YEAR:
        console.print(f'  Recommended for {homes:,} homes: promise = ["{A_YEAR}"]\n', markup=False)
    else:
        least = f"{MIN_HOMES_FOR_A_YEAR:,}"
        console.print(f'  From {least} homes on, with those of pool_homes, "{A_YEAR}" is recommended.\n', markup=False)


def year_window_epsilon(plan: Plan) -> float:
    """The epsilon that a year of this noise keeps at delta 1e-6, rounded up."""
    zone = plan.zone
    days = [count_events(kind_events(zone, plan.noise, kind)) for kind in zone.private_kinds]
    spent = [PldAccountant(grid_points=40).epsilon([(event, 365 * n) for event, n in day], 1e-6) for day in days]
    return float(np.ceil(1.02 * max(spent, default=0.0)))


def _hourly(rms: FloatArray) -> FloatArray:
    return rms[:: max(1, len(rms) // 24)]
