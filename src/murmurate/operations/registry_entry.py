"""An entry of the OpenDP deployments registry: a YAML template filled with the numbers of a plan.

The registry lists deployments of differential privacy with their privacy unit, parameters and mechanism, in YAML files
of one form (`schemas/deployments-schema.yaml` in its repository, opendp/deployments-registry-data; here that of 2026).
What a plan does not know, such as the name of the company, is marked with `# fill in`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import numpy as np

from murmurate import __version__
from murmurate.operations.console import stderr, stdout
from murmurate.planning.plan import Plan
from murmurate.planning.promise_text import describe_promises
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest, format_range
from murmurate.planning.utility import plan_utility
from murmurate.planning.zone import Zone
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import IntervalPromise, MomentPromise, Promise, WindowPromise
from murmurate.translations.language import ENGLISH
from murmurate.units import FloatArray

NOISE_DESCRIPTIONS = {
    NoiseDistribution.LAPLACE: "Laplace noise",
    NoiseDistribution.GAUSSIAN: "Gaussian noise",
    NoiseDistribution.HUBER: "Huber noise (a Gaussian core with exponential tails)",
}
_NEW_LINE = "\n      "  # indented as the lists of the template


def write_registry_entry(plan: Plan, path: Path, *, as_json: bool = False) -> None:
    """Write the entry of a plan, and say what is left to fill in. A file that exists is not overwritten."""
    text = format_registry_entry(plan)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    open_lines = text.count("# fill in")
    console = stderr if as_json else stdout
    console.print(f"Entry for the OpenDP deployments registry written to {path}. {open_lines} lines say # fill in.")


def format_registry_entry(plan: Plan) -> str:
    """Return the entry of a plan as YAML, in the form of the registry."""
    zone, promise = plan.zone, main_promise(plan.zone.promises)
    words = describe_promises(ReleaseTerms.from_json(plan.to_json()), ENGLISH)
    promises = [f'Promise "{cost.promise}": the noise spends {cost.spent:.4g}.' for cost in plan.costs]
    habits = [
        f"Habits: a guess between any two from prices of {bound.days} d is right with a probability of at most "
        f"{bound.any_habits:.4f}, and 0.5 without prices."
        for bound in plan.habits
    ]
    learned = [
        f"The occupancy models {models.name} were learned from {models.households:,} households that agreed; each "
        f"spent epsilon {models.epsilon} on it."
        for models in zone.learned
    ]
    public_kinds = [
        f"Readings and occupancy of {kind.name}, "
        f"{'at all times' if kind.always_public else 'in its published opening hours'}."
        for kind in zone.kinds
        if any(kind.public)
    ]
    priced_demand = "the noised demand"
    if plan.prediction is not None:
        priced_demand = "the demand that is predicted from a public forecast and all noised demands so far"
    template = files("murmurate.operations").joinpath("registry_entry.yaml.template").read_text(encoding="utf-8")
    text = template.format(
        **_promise_values(promise, zone),
        zone=zone,
        utility=plan_utility(plan),
        slug=re.sub(r"\W+", "-", zone.name.lower()).strip("-"),
        zone_name=_one_line(zone.name),
        currency=_one_line(zone.currency),
        minutes=24 * 60 // zone.intervals_per_day,
        kinds=_bullets(
            f"{k.count:,} of the kind {k.name}, each {format_range(k.bound_wh, k.export_bound_wh)}" for k in zone.kinds
        ),
        public_kinds=_bullets(public_kinds),
        private_households=sum(kind.count for kind in zone.private_kinds),
        basis=" ".join(words.basis),
        promises=_bullets([*promises, *words.notes, *words.beyond[:1], *habits]),
        preprocessing=_bullets(learned),
        noise=NOISE_DESCRIPTIONS[plan.distribution],
        scale_wh=_format_range(plan.scale_wh, "Wh"),
        rms_kwh=_format_range(np.sqrt(plan.noise_variance) / 1000, "kWh"),
        version=__version__,
        priced_demand=priced_demand,
        not_covered=_bullets(words.limits),
        digest=compute_plan_digest(plan.to_document()),
    )
    return re.sub(r"\n +\n", "\n", text)  # without the lines of empty lists


def main_promise(promises: tuple[Promise, ...]) -> Promise:
    """Return the promise whose numbers head the entry: the longest window, or else an interval, or else a moment."""
    windows = [promise for promise in promises if isinstance(promise, WindowPromise)]
    if windows:
        return max(windows, key=lambda promise: promise.intervals)
    return next((promise for promise in promises if isinstance(promise, IntervalPromise)), promises[0])


def _promise_values(promise: Promise, zone: Zone) -> dict[str, str]:
    """Return what the main promise fills in.

    A variant is custom if the secret is the occupancy given a model (Blowfish and Pufferfish privacy), not any reading.
    The leakage of a moment is the epsilon of its secret.
    """
    variant, delta = "Pure DP", 0.0
    if isinstance(promise, MomentPromise):
        variant, epsilon, unit = "Custom", promise.leakage, "one moment"
        adjacency = (
            "The secret is whether a household is occupied at one moment. All prices, past and future, change the odds "
            "of it by at most e^epsilon for a reader who knows the habits of the household."
        )
    else:
        epsilon, unit, stretch = promise.epsilon, "one interval", "one interval"
        if isinstance(promise, WindowPromise):
            delta, unit, stretch = float(promise.delta), f"any {promise.duration}", f"any {promise.duration} together"
            variant = "Approximate DP" if delta else variant
        hidden = ", while it is not public by the plan" if any(any(kind.public) for kind in zone.kinds) else ""
        within = "within its bounds" if any(kind.export_bound_wh for kind in zone.kinds) else "up to its bound"
        adjacency = (
            f"Two data sets are adjacent if they differ in the readings ({within} in each interval) of one "
            f"household with all its meters in the zone{hidden}. The parameters bound what the releases of {stretch} "
            "tell about it, now and for ever."
        )
    parameters = {"epsilon": float(epsilon)} | ({"delta": delta} if delta else {})
    return {
        "variant": variant,
        "privacy_unit": unit,
        "adjacency": adjacency,
        "privacy_parameters": _NEW_LINE.join(  # never 1e-06, which would be read as a text
            f"{name}: {np.format_float_positional(value, trim='0')}" for name, value in parameters.items()
        ),
    }


def _format_range(day: FloatArray, unit: str) -> str:
    """Return the smallest and the largest value of a day, or the one that all have."""
    low, high = f"{day.min():,.2f}", f"{day.max():,.2f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}, by the time of day"


def _bullets(lines: Iterable[str]) -> str:
    return _NEW_LINE.join(f"- {_one_line(line)}" for line in lines)


def _one_line(text: str) -> str:
    """Return a text that can stand in a block of YAML as it is: a name in a zone file may have any character."""
    return "".join(character if character.isprintable() else " " for character in text)
