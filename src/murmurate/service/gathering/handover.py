"""Hand the demand over to the state, from where the publisher takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from murmurate.curator.terms import Terms
from murmurate.quantities import Demand
from murmurate.service.gathering.job import Gathered
from murmurate.service.state import PostgresState


def hand_over(
    state: PostgresState, interval_s: int, gathered: Sequence[Gathered], quorum: float = 0.0
) -> dict[str, str]:
    """Remember each demand until it is released. Returns the zones that were set aside, and why.

    A zone in which less than `quorum` of the meters have reported is set aside for that interval.
    """
    terms = {zone: state.terms(plan) for zone, plan in state.plans().items()}
    aside: dict[str, str] = {}
    for one in gathered:
        aside |= unfit(one.demand, terms, interval_s)
    silent: dict[str, str] = {}
    for one in gathered:
        few = _too_few(one.demand, quorum)
        silent |= few
        state.remember(one.start_s // interval_s, _without(one.demand, aside | few))
    return silent | aside


def unfit(demand: Demand, terms: Mapping[str, Terms | None], interval_s: int) -> dict[str, str]:
    """Zones whose demand the publisher must not get, and why.

    The noise of a plan is measured by its largest bound: a meter that may add more would not be hidden.
    """
    found = {}
    largest = demand.largest_bound_wh if demand.largest_bound_wh is not None else np.zeros(len(demand.zones), np.int64)
    for zone, bound_wh in zip(demand.zones, largest.tolist(), strict=True):
        plan = terms.get(zone)
        if plan is None:
            found[zone] = "is not open; murmurate open plan.json"
        elif plan.interval_s != interval_s:
            found[zone] = f"is planned for intervals of {plan.interval_s} s, not {interval_s} s"
        elif bound_wh > plan.bound_wh:
            found[zone] = f"has a protected meter with bound_wh {bound_wh}; its plan protects up to {plan.bound_wh}"
    return found


def _too_few(demand: Demand, quorum: float) -> dict[str, str]:
    found = {}
    for zone, reported, imputed in zip(demand.zones, demand.reported.tolist(), demand.imputed.tolist(), strict=True):
        if reported < quorum * (reported + imputed):
            found[zone] = f"{reported:,} of {reported + imputed:,} meters reported; the quorum is {quorum:g}"
    return found


def _without(demand: Demand, aside: Mapping[str, str]) -> Demand:
    kept = [place for place, zone in enumerate(demand.zones) if zone not in aside]
    return Demand(
        zones=tuple(demand.zones[place] for place in kept),
        energy_wh=demand.energy_wh[kept],
        reported=demand.reported[kept],
        imputed=demand.imputed[kept],
        largest_bound_wh=None if demand.largest_bound_wh is None else demand.largest_bound_wh[kept],
    )
