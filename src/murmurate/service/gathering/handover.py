"""Hand the demand over to the state, from where the publisher takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
        fit, unfit_here = fit_for_release(one.demand, terms, interval_s, quorum)
        aside |= unfit_here
        state.remember(one.start_s // interval_s, fit)
    return aside


def fit_for_release(
    demand: Demand, terms: Mapping[str, Terms | None], interval_s: int, quorum: float
) -> tuple[Demand, dict[str, str]]:
    """The demand of the zones that may be released from it, and the other zones, with the reason."""
    aside = _too_few(demand, quorum) | unfit(demand, terms, interval_s)
    return _without(demand, aside), aside


def unfit(demand: Demand, terms: Mapping[str, Terms | None], interval_s: int) -> dict[str, str]:
    """Zones whose demand the publisher must not get, and why.

    The noise of a plan hides households of its kinds up to their bounds; one that may add more would not be hidden.
    """
    found = {}
    for place, zone in enumerate(demand.zones):
        plan = terms.get(zone)
        if plan is None:
            found[zone] = "is not open; murmurate open plan.json"
        elif plan.interval_s != interval_s:
            found[zone] = f"is planned for intervals of {plan.interval_s} s, not {interval_s} s"
        elif (why := plan.refusal(demand.bounds_at(place))) is not None:
            found[zone] = why
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
        bounds=tuple(demand.bounds_at(place) for place in kept),
    )
