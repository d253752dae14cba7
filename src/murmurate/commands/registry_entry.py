"""An entry of the OpenDP deployments registry, written from a plan.

The registry lists deployments of differential privacy with their privacy unit, parameters and mechanism, in YAML files
of one form (`schemas/deployments-schema.yaml` in its repository, opendp/deployments-registry-data; here that of 2026).
Numbers come from the plan. What a plan does not know, such as the name of the company, is marked with `# fill in`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from murmurate import __version__
from murmurate.commands.plan import CALIBRATION_ASSUMPTIONS, CALIBRATION_COVERAGE, NOT_COVERED
from murmurate.commands.yaml_text import ValueToFillIn, format_yaml
from murmurate.planning.digest import compute_plan_digest
from murmurate.planning.plan import Plan
from murmurate.planning.utility import plan_utility
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import IntervalPromise, MomentPromise, Promise, WindowPromise
from murmurate.units import FloatArray

MINUTES_PER_DAY = 24 * 60
COMPLETE_TIER = 3  # of the registry: all of its fields
PAPER = {
    "author": "Mahrokh GhoddousiBoroujeni and Dominik Fay and Christos Dimitrakakis and Maryam Kamgarpour",
    "title": "Privacy of Real-Time Pricing in Smart Grid",
    "booktitle": "58th IEEE Conference on Decision and Control (CDC)",
    "year": 2019,
    "pages": "5162-5167",
}
NOISE_DESCRIPTIONS = {
    NoiseDistribution.LAPLACE: "Discrete Laplace noise",
    NoiseDistribution.GAUSSIAN: "Discrete Gaussian noise",
    NoiseDistribution.HUBER: "Discrete Huber noise (a Gaussian core with exponential tails)",
}


def write_registry_entry(plan: Plan, path: Path, *, as_json: bool = False) -> None:
    """Write the entry of a plan, and say what is left to fill in. A file that exists is not overwritten."""
    text = format_yaml(registry_entry(plan))
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    open_lines = text.count("# fill in")
    console = Console(stderr=as_json, highlight=False, soft_wrap=True, markup=False)
    console.print(f"Entry for the OpenDP deployments registry written to {path}. {open_lines} lines say # fill in.")


def registry_entry(plan: Plan) -> dict[str, Any]:
    """Return the entry of a plan in the form of the registry."""
    promise = main_promise(plan.zone.promises)
    return {
        "url_slug": ValueToFillIn(f"electricity-prices-{_slug(plan.zone.name)}", "append the curator and the year"),
        "deployment": {
            "basic": _basic_facts(plan.zone),
            "dp_variant": {
                "variant_name": _variant_name(plan.zone.calibration, promise),
                "data_domain": _data_domain(plan.zone),
                "unprotected_quantities": _unprotected_quantities(plan.zone),
            },
            "privacy_loss": _privacy_loss(plan, promise),
            "deployment_model": _deployment_model(plan.zone),
            "implementation": _implementation(plan),
            "administrative": {
                "evidence_sources": _evidence_sources(plan),
                "status": "Draft",
                "registry_authors": [ValueToFillIn("", "who completes this entry")],
                "tier": COMPLETE_TIER,
            },
        },
    }


def main_promise(promises: tuple[Promise, ...]) -> Promise:
    """Return the promise whose numbers head the entry: the longest window, or else an interval, or else a moment."""
    windows = [promise for promise in promises if isinstance(promise, WindowPromise)]
    if windows:
        return max(windows, key=lambda promise: promise.intervals)
    return next((promise for promise in promises if isinstance(promise, IntervalPromise)), promises[0])


def _slug(name: str) -> str:
    return re.sub(r"\W+", "-", name.lower()).strip("-")


def _bullets(*lines: str) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _interval_minutes(zone: Zone) -> int:
    return MINUTES_PER_DAY // zone.intervals_per_day


def _basic_facts(zone: Zone) -> dict[str, Any]:
    description = (
        f"A price of electricity for each interval of {_interval_minutes(zone)} minutes, made from the noised demand "
        f"of the {zone.household_count:,} households of the zone {zone.name}. Prices, their privacy cost and the plan "
        "stand in a signed public log that anyone can verify."
    )
    return {
        "name": f"Real-time electricity prices of {zone.name}",
        "data_curators": [
            {
                "data_curator_name": ValueToFillIn("", "who publishes the prices"),
                "data_curator_type": ValueToFillIn("Industry", "Government, Industry or Nonprofit"),
            }
        ],
        "description": description,
        "intended_use": "Households and their devices shift consumption to cheap intervals. "
        "Prices follow the demand of the zone and do not show when a household is occupied.",
        "data_product_type": "Summary statistics",
        "data_product_region": ValueToFillIn("", f"the region; its clocks are those of {zone.clock.name}"),
        "data_product_sector": "Energy",
        "publication_date": ValueToFillIn("1900-01-01", "the day of the first price"),
    }


def _variant_name(calibration: Calibration, promise: Promise) -> str:
    """Custom: secrets are about occupancy given a model (Blowfish and Pufferfish privacy), not about any reading."""
    if calibration is not Calibration.RANGE or isinstance(promise, MomentPromise):
        return "Custom"
    return "Approximate DP" if isinstance(promise, WindowPromise) and promise.delta else "Pure DP"


def _data_domain(zone: Zone) -> str:
    head = (
        f"Readings of each household in whole Wh for each interval of {_interval_minutes(zone)} minutes, without end. "
    )
    kinds = [f"{kind.count:,} of the kind {kind.name}, each up to {kind.bound_wh:,} Wh" for kind in zone.kinds]
    return f"{head}What a household uses above its bound is cut off. Households:\n\n{_bullets(*kinds)}"


def _unprotected_quantities(zone: Zone) -> str:
    public = [_public_kind(kind) for kind in zone.kinds if any(kind.public)]
    return _bullets(
        "Everything in the plan: number of households, bounds, tariff, promises, noise, occupancy models, forecast.",
        "Whether the price of an interval is measured, fallback or withheld. No value of a reading decides this.",
        *public,
    )


def _public_kind(kind: HouseholdKind) -> str:
    hours = "at all times" if kind.always_public else "in its published opening hours"
    return f"The occupancy of {kind.name}, {hours}."


def _privacy_loss(plan: Plan, promise: Promise) -> dict[str, Any]:
    return {
        "privacy_unit": _privacy_unit(promise),
        "privacy_unit_details": _privacy_unit_details(plan.zone.calibration, promise),
        "number_of_privacy_units": sum(kind.count for kind in plan.zone.private_kinds),
        "privacy_parameters": privacy_parameters(promise),
        "privacy_parameters_details": _bullets(*_promise_lines(plan), *_habit_lines(plan)),
    }


def _privacy_unit(promise: Promise) -> str:
    if isinstance(promise, WindowPromise):
        return f"Household, any {promise.duration}"
    return "Household, one interval" if isinstance(promise, IntervalPromise) else "Household, one moment"


def _privacy_unit_details(calibration: Calibration, promise: Promise) -> str:
    if isinstance(promise, MomentPromise):
        differ = (
            "The secret is whether a household is occupied at one moment. All prices, past and future, change the odds "
            "of it by at most e^epsilon for a reader who knows the habits of the household."
        )
    else:
        stretch = f"of any {promise.duration} together" if isinstance(promise, WindowPromise) else "of one interval"
        what = "readings (up to its bound in each interval)" if calibration is Calibration.RANGE else "occupancy"
        differ = (
            f"Two data sets are adjacent if they differ in the {what} of one household with all its meters in "
            f"the zone. The parameters bound what the releases {stretch} tell about it, now and for ever."
        )
    return f"{differ}\n\n{CALIBRATION_ASSUMPTIONS[calibration]}\n\nIt hides: {CALIBRATION_COVERAGE[calibration]}\n"


def privacy_parameters(promise: Promise) -> dict[str, float]:
    """Return epsilon, and delta where there is one, as promised. A moment's leakage is the epsilon of its secret."""
    if isinstance(promise, MomentPromise):
        return {"epsilon": float(promise.leakage)}
    if isinstance(promise, WindowPromise) and promise.delta:
        return {"epsilon": float(promise.epsilon), "delta": float(promise.delta)}
    return {"epsilon": float(promise.epsilon)}


def _promise_lines(plan: Plan) -> list[str]:
    return [f'Promise "{cost.promise}": the noise spends {cost.spent:.4g}.' for cost in plan.costs]


def _habit_lines(plan: Plan) -> list[str]:
    return [
        f"Habits: a guess between any two from prices of {bound.days} d is right with a probability of at most "
        f"{bound.any_habits:.4f}, and 0.5 without prices."
        for bound in plan.habits
    ]


def _deployment_model(zone: Zone) -> dict[str, Any]:
    return {
        "model_name": "Central",
        "model_name_details": "The curator reads the meters, adds the noise, and publishes what follows from the sum.",
        "trust_assumptions": "The curator sees every reading and is trusted with it. A reader of prices is not trusted "
        "and may know what all other households used, how noise is drawn, and every price.",
        "actors": _bullets(
            "Households, whose occupancy is protected.",
            "The curator, who operates the meters and the service.",
            "Readers: residents, their devices, and any observer, with any outside knowledge about other households.",
            "Verifiers, who check the public log against the plan, from public data alone.",
        ),
        "release_type": "Many releases",
        "release_type_details": f"One release every {_interval_minutes(zone)} minutes, without end. "
        "No budget is reset: a promise about a window holds for every window. An interval is released once.",
        "data_source_type": "Dynamic",
        "data_source_type_details": "New readings arrive in every interval.",
        "access_type": "Non-interactive",
        "access_type_details": "Readers get published prices and send no queries.",
    }


def _implementation(plan: Plan) -> dict[str, Any]:
    zone = plan.zone
    return {
        "preprocessing_and_hyperparameter_tuning": _preprocessing(zone),
        "mechanisms": _mechanisms(plan),
        "composition": _bullets(
            "Windows: privacy loss distributions of the releases of a household are composed numerically and bounded "
            "from above, for each kind of household; without a delta, epsilons are added.",
            "Moments: exact leakage of all releases about one moment under the occupancy models.",
            "One household is in one zone, so zones compose in parallel.",
        ),
        "post_processing": _post_processing(plan),
        "justification": "The noise was chosen to keep all promises under the calibration "
        f"{zone.calibration.value}, and proven to do so. "
        "The proof is repeated from plan.json whenever it is read, and by every verifier.",
        "utility": _utility(plan),
        "additional_information": "Not covered:\n\n" + _bullets(*NOT_COVERED),
    }


def _post_processing(plan: Plan) -> str:
    demand = "the noised demand"
    if plan.prediction is not None:
        demand = "the demand that is predicted from a public forecast and all noised demands so far"
    return f"The tariff turns {demand} into a price, rounded to a tick and kept between floor and cap."


def _preprocessing(zone: Zone) -> str:
    learned = [
        f"The occupancy models {each.name} were learned from {each.households:,} households that agreed; each spent "
        f"epsilon {each.epsilon} on it."
        for each in zone.learned
    ]
    tested = ["The declared distributions were tested on readings of households that agreed."] if zone.tested else []
    return _bullets(
        "Readings are clipped to a bound which is public and was chosen without private data.", *learned, *tested
    )


def _mechanisms(plan: Plan) -> str:
    scale, rms = _format_range(plan.scale_wh, "Wh"), _format_range(np.sqrt(plan.noise_variance) / 1000, "kWh")
    return _bullets(
        f"{NOISE_DESCRIPTIONS[plan.distribution]}, added to the sum of clipped readings in whole Wh; scale {scale}, "
        f"rms {rms}.",
        "Noise is drawn exactly with OpenDP, in integer and rational arithmetic, from the randomness of the operating "
        "system. So there are no floating-point errors.",
        "Releases leave in fixed time slots, which hides how long a draw takes.",
        "A draw is stored before it is published, and drawn once: a crash or a restore publishes no second value.",
        "The process that serves the public is given the public log alone.",
        f"Software: murmurate {__version__}.",
    )


def _format_range(day: FloatArray, unit: str) -> str:
    """Return the smallest and the largest value of a day, or the one that all have."""
    low, high = f"{day.min():,.2f}", f"{day.max():,.2f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}, by the time of day"


def _utility(plan: Plan) -> str:
    utility, currency = plan_utility(plan), plan.zone.currency
    return _bullets(
        f"Mean price {utility.mean_price:.4f} {currency}/kWh; the noise moves it by {utility.price_error:.4f} (rms).",
        f"Mispricing costs the zone {utility.misallocation:.2f} {currency} a year.",
        f"A household's yearly bill of {utility.bill:.2f} {currency} moves by {utility.bill_error:.2f} (rms).",
    )


def _evidence_sources(plan: Plan) -> dict[str, Any]:
    digest = compute_plan_digest(plan.to_document())
    return {
        "plan": {
            "evidence_source_type": "Formal publication by the deploying organization",
            "misc": {
                "title": f"plan.json of {plan.zone.name}",
                "note": f"SHA-256 {digest}",
                "url": ValueToFillIn("", "where the plan is published"),
            },
        },
        "paper": {"evidence_source_type": "Peer-reviewed publication", "inproceedings": PAPER},
    }
