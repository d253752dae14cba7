"""`murmurate plan`: a report that a person can read, and a `plan.json` that a service can run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from murmurate.errors import MurmurateError, ZoneFileError
from murmurate.extras import require_extra
from murmurate.files import read_text
from murmurate.operations.console import print_json, stderr
from murmurate.operations.options import AsJson, optional_imports
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone

with optional_imports():
    import numpy as np

    from murmurate.adversaries.adversary import auc_bound
    from murmurate.lab.report import Report, make_console
    from murmurate.operations.plan_files import load_plan_file, read_forecast_file, read_meter_summary
    from murmurate.operations.registry_entry import write_registry_entry
    from murmurate.planning.bound_choice import BoundChoice, choose_bound
    from murmurate.planning.plan import Plan, make_plan, prove_plan
    from murmurate.planning.plan_prediction import (
        A_YEAR,
        MIN_HOMES_FOR_A_YEAR,
        compare_promises,
        forecast_errors,
        recommended_promise,
        usual_day,
    )
    from murmurate.planning.privacy_cost import kind_events
    from murmurate.planning.promise_text import describe_promises
    from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
    from murmurate.planning.utility import DAYS_PER_YEAR, plan_utility
    from murmurate.prediction.zone_prediction import ZonePrediction
    from murmurate.privacy.accountant import PldAccountant, count_events
    from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
    from murmurate.translations.language import ENGLISH

MIN_USEFUL_SHARE = 0.2  # of what exact data add to a forecast
MIN_USEFUL_GAIN = 0.05  # by which releases lower the error of the forecast


def plan_zone(
    zone_file: Annotated[Path | None, typer.Argument(help="The zone file (TOML).", dir_okay=False)] = None,
    out: Annotated[Path, typer.Option(help="Where the plan is written.", dir_okay=False)] = Path("plan.json"),
    noise_plan_file: Annotated[
        Path | None,
        typer.Option(
            "--noise-of", help="Use the noise of this plan.json, not the least: to promise less now and change later."
        ),
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option(
            help="Also write an entry of the OpenDP deployments registry, such as harbour.yaml.", dir_okay=False
        ),
    ] = None,
    *,
    example: Annotated[bool, typer.Option("--example", help="Print a zone file to start from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a zone file, print the report, write `plan.json`."""
    if example:
        typer.echo(EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST, nl=False)
        return
    if zone_file is None:
        remedy = "murmurate plan --example > zone.toml writes one to begin with"
        raise MurmurateError("the zone file", "missing", remedy)
    require_extra("plan", "scipy", "opendp")
    if registry is not None and registry.exists():
        raise MurmurateError(str(registry), "there already", "it may hold what you filled in; name another file")
    text, choice = read_text(zone_file), None
    read_zone = partial(
        parse_zone,
        read_meters=lambda name, zone, kind: read_meter_summary(zone_file.parent / name, zone, kind),
        read_forecast=lambda name: read_forecast_file(zone_file.parent / name),
    )
    try:
        if noise_plan_file is None:
            with stderr.status("choosing a bound") as status:
                choice = choose_bound(text, read_zone, lambda what: status.update(f"choosing a bound: {what}"))
        zone = read_zone(text if choice is None else choice.zone_text)
    except ZoneFileError as error:
        error.file = str(zone_file)
        raise
    if registry is not None and zone.predicted is not None and not zone.predicted.read_meters:
        raise MurmurateError("--registry", "not possible", "this plan reads no meter: nothing about homes is released")
    if noise_plan_file is None:
        with stderr.status("planning") as status:
            made = make_plan(zone, lambda what: status.update(f"planning: {what}"))
    else:
        noise = load_plan_file(noise_plan_file).noise
        made = prove_plan(zone, noise.distribution, noise.scale_wh, noise.core_wh)
    out.write_text(made.to_json(), encoding="utf-8")
    if as_json:
        print_json(plan_numbers(made) | {"file": str(out)})
    else:
        console = make_console()
        make_plan_report(made, choice).print_brief(console)
        console.print(f"\nWritten to {out}. Anybody can prove it again from that file alone.", markup=False)
    if registry is not None:
        write_registry_entry(made, registry, as_json=as_json)


def plan_numbers(plan: Plan) -> dict[str, object]:
    """Return promises, noise, errors and money. Keys are those of docs/reference/json-output.md."""
    zone, cost = plan.zone, plan_utility(plan)
    rms_wh = np.sqrt(plan.noise_variance)
    errors = None if plan.prediction is None else forecast_errors(zone, plan.prediction, plan.noise)
    promises = []
    for each in plan.costs:
        is_pure = isinstance(each.promise, IntervalPromise | MomentPromise)
        promises.append(
            {
                "promise": str(each.promise),
                "spent": float(each.spent),
                "above_epsilon": each.above_epsilon,
                "right_guesses": each.right_guesses,
                "auc_bound": float(auc_bound(float(each.spent))) if is_pure else None,
            }
        )
    return {
        "zone": zone.name,
        "digest": compute_plan_digest(plan.to_document()),
        "households": zone.household_count,
        "intervals_per_day": zone.intervals_per_day,
        "currency": zone.currency,
        "reads_meters": plan.reads_meters,
        "promises": promises,
        "absence": {"days": plan.absence.days, "right_guesses": float(plan.absence.right_guesses)},
        "habits": [
            {"days": each.days, "home_by_day": float(each.home_by_day), "any_habits": float(each.any_habits)}
            for each in plan.habits
        ],
        "noise": {
            "distribution": plan.distribution.value,
            "min_rms_kwh": float(rms_wh.min()) / 1000,
            "max_rms_kwh": float(rms_wh.max()) / 1000,
        },
        "prediction_error": None
        if errors is None
        else {name: float(share) for name, share in errors._asdict().items()},
        "compared_promises": [
            {"promise": text, "prediction_error": float(error)} for text, error in compare_promises(zone).items()
        ],
        "price": {"mean": float(cost.mean_price), "rms_error": float(cost.price_error)},
        "mispricing_per_year": float(cost.misallocation),
        "bill_per_year": {"amount": float(cost.bill), "rms_error": float(cost.bill_error)},
    }


def make_plan_report(plan: Plan, choice: BoundChoice | None = None) -> Report:
    """Return the plan in words and numbers, for a terminal. `choice` is how its bound was chosen, if it was."""
    zone, cost = plan.zone, plan_utility(plan)
    title = f"Plan for {zone.name}: {zone.household_count:,} households, {zone.intervals_per_day} intervals a day"
    report = Report(title, {})
    if choice is not None:
        _add_bound_choice(report, choice)
    text = describe_promises(ReleaseTerms.from_json(plan.to_json()), ENGLISH)
    is_public = not plan.reads_meters
    for sentence in text.sentences if is_public else ():
        report.add_text(sentence)
    names = ("plan.promise_scope", "plan.promise_guess", "plan.promise_number", "plan.promise_spent")
    rows = [(row.scope, row.guesses, row.promised, row.spent) for row in text.rows]
    report.add_table([ENGLISH.plain(name) for name in names], rows)
    for note in text.notes:
        report.add_text(note)
    if not is_public:
        _add_noise(report, plan)
    if plan.prediction is None:
        _add_echo(report, plan)
    else:
        _add_prediction(report, plan, plan.prediction)
    if not is_public:
        _add_recommendation(report, plan)
    off = f"{cost.price_error:.4f} (rms), {cost.price_error / cost.mean_price:.1%}"
    report.add_text(f"Price: {cost.mean_price:.4f} {zone.currency}/kWh in the mean, off by {off}.")
    report.add_text(f"Mispricing costs the zone {cost.misallocation:,.2f} {zone.currency} a year (alpha Var/2).")
    share = cost.bill_error / cost.bill if cost.bill > 0 else 0.0
    moves = f"moves by {cost.bill_error:.2f} ({share:.2%}, rms)"
    report.add_text(f"One household's year of {cost.bill:,.2f} {zone.currency} {moves}.\n")
    for sentence in (f"Stands on: {text.basis[0]}", *text.basis[1:]):
        report.add_text(sentence)
    if any(any(kind.public) and not kind.always_public for kind in zone.kinds):
        report.add_text(
            f"Public hours are those of {zone.clock.name}; where clocks change, only hours public under every offset "
            "from UTC count, so an hour at either end stays protected."
        )
    report.add_text("Does not cover:")
    report.add_list(text.limits)
    return report


def _add_noise(report: Report, plan: Plan) -> None:
    rms_kwh = np.sqrt(plan.noise_variance) / 1000
    is_level = len(np.unique(plan.scale_wh)) == 1
    spread = f"{rms_kwh.min():.2f}" if is_level else f"{rms_kwh.min():.2f} to {rms_kwh.max():.2f}"
    report.add_text(f"Noise: discrete {plan.distribution.value}, rms {spread} kWh an interval.")
    if not is_level:
        by_hour = " ".join(f"{value:.1f}" for value in rms_kwh[:: max(1, len(rms_kwh) // 24)])
        report.add_text(f"  rms in kWh, by hour from midnight: {by_hour}")


def _add_bound_choice(report: Report, choice: BoundChoice) -> None:
    """Add the bounds that were tried, the one that was chosen and why, and where else it must stand."""
    chosen, kind = choice.chosen, choice.kind
    report.add_text(f"Bound of {kind}: {chosen.bound_wh:,} Wh, chosen by the plan.")
    names = ("bound, Wh", "noise, rms kWh", "predicted error of the demand that is priced, %", "")
    rows = [
        (
            f"{each.bound_wh:,}",
            f"{each.noise_sd_wh / 1000:,.2f}",
            f"{100 * each.predicted_error:.2f}",
            "chosen" if each == chosen else "",
        )
        for each in choice.tried
    ]
    report.add_table(names, rows)
    report.add_text(
        "A lower bound needs less noise and cuts off more of the demand. The predicted error counts both, what is "
        f"cut off as far as releases are believed, and is least at {chosen.bound_wh:,} Wh. It is computed from the "
        "zone file and the forecast file alone, which are public: no reading is used."
    )
    report.add_text(
        f"Put bound_wh = {chosen.bound_wh} into the meter table for each {kind}. Where one has several meters, their "
        f"bounds must add up to {chosen.bound_wh} or less. The zone file in the plan has that number too.\n"
    )


def _add_echo(report: Report, plan: Plan) -> None:
    """Add how good prices are that are made from each release alone."""
    cost, mean_kwh = plan_utility(plan), float(np.mean(plan.zone.forecast_moments[0])) / 1000
    report.add_text("Prices are made from each release as it is; [forecast] in the zone file predicts.")
    report.add_text(f"Demand: {mean_kwh:,.1f} kWh an interval in the mean, by the occupancy models.")
    errors = {
        "each release": cost.release_error_wh,
        "forecast only, no data": cost.forecast_error_wh,
        "forecast only, 10 % too low": cost.wrong_forecast_error_wh,
    }
    rows = [(name, f"{error_wh / 1000:.2f}") for name, error_wh in errors.items()]
    report.add_table(("rms error of the demand", "kWh"), rows)
    report.add_text(
        "Each release beats the forecast, which needs no data.\n"
        if cost.release_error_wh <= cost.forecast_error_wh
        else "Worse than the forecast: predict prices, publish the forecast, join zones, or promise less.\n"
    )


def _add_prediction(report: Report, plan: Plan, prediction: ZonePrediction) -> None:
    """Add how good predicted prices are, compared with a forecast that reads no meter."""
    public, reads_meters = prediction.model.public, prediction.read_meters
    usual_wh = prediction.scale * float(usual_day(public.demand).mean())
    errors = forecast_errors(plan.zone, prediction, plan.noise)
    made_from = "the forecast and all releases so far" if reads_meters else "the forecast alone"
    report.add_text(f"Prices are predicted for the interval that pays, from {made_from}.")
    report.add_text(f"Forecast: {public.source}; {usual_wh / 1000:,.1f} kWh an interval in the mean.")
    if public.error is None:
        report.add_text("Its error was not measured: deviations are taken as usual.")
    shown = {
        "forecast only, no data" if reads_meters else "this plan: forecast only, no data": errors.forecast,
        **compare_promises(plan.zone),
        **({"this plan": errors.private} if reads_meters else {}),
        "exact data, predicted": errors.exact,
    }
    rows = [(name, f"{100 * error:.1f}", f"{error * usual_wh / 1000:,.1f}") for name, error in shown.items()]
    report.add_table(("rms error of the demand that is priced", "% of the mean", "kWh"), rows)
    if not reads_meters:
        return
    share = (errors.forecast**2 - errors.private**2) / max(errors.forecast**2 - errors.exact**2, 1e-12)
    added = f"releases add {100 * share:.0f} % of what exact data would add"
    remedy = "Publish the forecast (read_meters = false in [forecast]), join zones, promise less, or lower the bound"
    is_useful = share >= MIN_USEFUL_SHARE and errors.private <= (1 - MIN_USEFUL_GAIN) * errors.forecast
    report.add_text(f"It pays: the {added} to the forecast.\n" if is_useful else f"The {added}. {remedy}.\n")


def _add_recommendation(report: Report, plan: Plan) -> None:
    """Add a year's window, which is recommended for zones that are large enough."""
    zone = plan.zone
    longest = max((p.intervals for p in zone.promises if isinstance(p, WindowPromise)), default=0)
    if longest >= DAYS_PER_YEAR * zone.intervals_per_day:
        return
    days = [count_events(kind_events(zone, plan.noise, kind)) for kind in zone.private_kinds]
    spent = [PldAccountant(grid_points=40).epsilon([(event, 365 * n) for event, n in day], 1e-6) for day in days]
    kept = np.ceil(1.02 * max(spent, default=0.0))
    homes = zone.household_count
    report.add_text(
        "A year's window bounds what prices tell about habits and holidays. A shorter one says little about them: "
        f'a year of this noise keeps "any 365 d: epsilon {kept:g}, delta 1e-6".'
    )
    report.add_text(
        f'Recommended for {homes:,} homes: promise = ["{A_YEAR}"]\n'
        if recommended_promise(homes) == A_YEAR
        else f'From {MIN_HOMES_FOR_A_YEAR:,} homes on, "{A_YEAR}" is recommended.\n'
    )
