"""Store the demand in the state, from where the publisher loads it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from murmurate.errors import PrivacyError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.publisher.desired_state import ZoneOpening
from murmurate.service.storage.state_store import PLANS_PER_PROGRESS, PostgresStateStore
from murmurate.types import Demand


def submit_demand(
    state: PostgresStateStore,
    interval_s: int,
    demands: Mapping[int, Demand],
    quorum: float = 0.0,
    terms: Mapping[str, ReleaseTerms | None] | None = None,
) -> dict[str, str]:
    """Store each demand until it is released, by the begin of its interval [s of UTC].

    Returns the zones whose demand cannot be used, with the reason.
    The demand of a zone in which less than `quorum` of the meters have reported is not used for that interval.
    `terms` are those of `terms_by_zone`, where they were read already.
    """
    terms, closed = terms_by_zone(state) if terms is None else terms, state.closed_zones()
    unusable: dict[str, str] = {}
    for start_s, demand in demands.items():
        releasable, reasons = releasable_demand(_without_zones(demand, closed), terms, interval_s, quorum)
        unusable |= reasons
        state.store_demand(start_s // interval_s, releasable)
    return unusable


def terms_by_zone(
    state: PostgresStateStore,
    on_progress: Callable[[], object] = lambda: None,
    zones: Mapping[str, tuple[str, ZoneOpening]] | None = None,
) -> dict[str, ReleaseTerms | None]:
    """The terms of the plan of each zone; None where it is not registered or damaged.

    After a start every plan is read, which may take minutes: `on_progress` is called at least each
    `PLANS_PER_PROGRESS` plans. `zones` are those of the state, where they were read already.
    """
    plans = state.plan_by_zone(zones)
    state.load_terms(plans.values(), on_progress)
    terms: dict[str, ReleaseTerms | None] = {}
    for number, (zone, plan) in enumerate(plans.items()):
        if number % PLANS_PER_PROGRESS == 0:  # one that is missing or damaged is asked for again
            on_progress()
        try:
            terms[zone] = state.terms_for_plan(plan)
        except PrivacyError:
            terms[zone] = None
    return terms


def releasable_demand(
    demand: Demand, terms: Mapping[str, ReleaseTerms | None], interval_s: int, quorum: float
) -> tuple[Demand, dict[str, str]]:
    """The demand of the zones that may be released from it, and the other zones, with the reason.

    The noise of a plan hides households of its kinds up to their bounds; one that may add more would not be hidden. A
    zone whose plan reads no meter is left out without a reason: none of its readings is used.
    """
    unread = {zone for zone, plan in terms.items() if plan is not None and not plan.reads_meters}
    demand = _without_zones(demand, unread)
    reasons = _below_quorum(demand, quorum)
    for row, zone in enumerate(demand.zones):
        plan = terms.get(zone)
        if plan is None:
            reasons[zone] = "is not open; murmurate zone open plan.json"
        elif plan.interval_s != interval_s:
            reasons[zone] = f"is planned for intervals of {plan.interval_s} s, not {interval_s} s"
        elif (reason := plan.not_hidden_reason(demand.bounds_at(row))) is not None:
            reasons[zone] = reason
    return _without_zones(demand, reasons), reasons


def _below_quorum(demand: Demand, quorum: float) -> dict[str, str]:
    reasons = {}
    for zone, reported, imputed in zip(demand.zones, demand.reported.tolist(), demand.imputed.tolist(), strict=True):
        if reported < quorum * (reported + imputed):
            reasons[zone] = f"{reported:,} of {reported + imputed:,} meters reported; the quorum is {quorum:g}"
    return reasons


def _without_zones(demand: Demand, left_out: Container[str]) -> Demand:
    kept = [row for row, zone in enumerate(demand.zones) if zone not in left_out]
    return Demand(
        zones=tuple(demand.zones[row] for row in kept),
        energy_wh=demand.energy_wh[kept],
        reported=demand.reported[kept],
        imputed=demand.imputed[kept],
        silent_bound_wh=demand.silent_bound_wh[kept],
        silent_export_bound_wh=demand.silent_export_bound_wh[kept],
        bounds=tuple(demand.bounds_at(row) for row in kept),
    )
