"""The numbers of a plan's page, for scripts."""

from __future__ import annotations

import numpy as np

from murmurate.audit.adversary import auc_bound
from murmurate.planning.plan import Plan
from murmurate.planning.plan_prediction import compare_promises, forecast_errors
from murmurate.planning.release_terms import compute_plan_digest
from murmurate.planning.utility import plan_utility
from murmurate.privacy.promise import IntervalPromise, MomentPromise


def plan_numbers(plan: Plan) -> dict[str, object]:
    """Return promises, noise, errors and money. Keys are those of docs/reference/json-output.md."""
    zone, cost = plan.zone, plan_utility(plan)
    rms_wh = np.sqrt(plan.noise_variance)
    errors = None if plan.prediction is None else forecast_errors(zone, plan.prediction, plan.noise)
    return {
        "zone": zone.name,
        "digest": compute_plan_digest(plan.to_document()),
        "households": zone.household_count,
        "intervals_per_day": zone.intervals_per_day,
        "currency": zone.currency,
        "promises": [_promise_members(plan, number) for number in range(len(plan.costs))],
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


def _promise_members(plan: Plan, number: int) -> dict[str, object]:
    cost = plan.costs[number]
    is_pure = isinstance(cost.promise, IntervalPromise | MomentPromise)
    spent = float(cost.spent)
    return {
        "promise": str(cost.promise),
        "spent": spent,
        "above_epsilon": cost.above_epsilon,
        "right_guesses": cost.right_guesses,
        "auc_bound": float(auc_bound(spent)) if is_pure else None,
    }
