"""Bugs that the product once had. Each is planted again, one at a time, and the check of the promises must find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np

from murmurate.errors import ReadingError
from murmurate.planning import local_hours, noise_schedule, plan_change, plan_history, privacy_cost, release_terms, zone
from murmurate.planning.hidden_households import HiddenHouseholds
from murmurate.privacy import leakage
from murmurate.privacy.accountant import PureDpAccountant
from murmurate.service.ingest.formats import text_lines
from tests.support import finite_leakage
from tests.whole_path import simulated_history


def moments_across_a_change_are_not_checked(plant: Callable[..., None]) -> None:
    """A2: a change of plan was checked for window promises only."""
    plant(plan_change, "check_moments_across_change", lambda *_: None)


def households_are_matched_by_name(plant: Callable[..., None]) -> None:
    """A3: a kind with another name counted as a new household."""

    def by_name(plans):
        for path in plan_history.kind_paths(plans):
            if len({kind.name for kind in path}) == 1:
                yield path

    plant(plan_change, "kind_paths", by_name)


def every_chain_begins_at_midnight(plant: Callable[..., None]) -> None:
    """A5: one prior for every first interval, and a proof for midnight only."""
    plant(zone, "with_periodic_prior", lambda chains: chains)
    plant(finite_leakage, "periodic_prior", lambda chains, _: chains.initial)
    plant(privacy_cost, "local_time_leakage", lambda chains, loss, *_: leakage.worst_leakage(chains, loss))


def public_hours_are_read_in_utc(plant: Callable[..., None]) -> None:
    """A6: the local time zone was ignored."""
    plant(local_hours.LocalHours, "holds_at_all_offsets", lambda _, local: tuple(bool(known) for known in local))


def the_largest_bound_of_the_plan_hides_every_household(plant: Callable[..., None]) -> None:
    """A7: at every hour and for every kind of household."""
    right = HiddenHouseholds.from_document

    def largest(document):
        hidden = right(document)
        bounds = [kind["bound_wh"] for kind in document["households"] if not all(kind["public"])]
        max_bound_wh = max(bounds, default=0)
        return HiddenHouseholds(
            by_kind=dict.fromkeys(hidden.by_kind, max_bound_wh),
            unknown_kind_wh=max_bound_wh,
            public_wh=hidden.public_wh,
        )

    plant(HiddenHouseholds, "from_document", staticmethod(largest))


def gaussian_noise_passes_for_pure(plant: Callable[..., None]) -> None:
    """A10: the largest loss on a finite grid counted as the largest loss."""

    def epsilon(_, events, delta):
        del delta
        return float(sum(min(event.max_loss, 1e9) * count for event, count in events))

    plant(PureDpAccountant, "epsilon", epsilon)


def no_noise_where_every_household_is_public(plant: Callable[..., None]) -> None:
    """A11: such intervals were published without noise."""
    plant(zone.Zone, "protected_intervals", lambda _, kind: tuple(not known for known in kind.public))
    plant(noise_schedule, "check_scales", lambda *_: None)
    plant(release_terms, "check_scales", lambda *_: None)


def a_meter_that_feeds_in_is_refused(plant: Callable[..., None]) -> None:
    """B3: the meter then counts as missing, and the quorum reveals it."""
    right = text_lines.floor_to_wh

    def refusing(field, value):
        if right(field, value) < 0:
            raise ReadingError(field, "negative", "must be 0 or more")
        return right(field, value)

    plant(text_lines, "floor_to_wh", refusing)


PLANTED_BUGS = {
    "A2": moments_across_a_change_are_not_checked,
    "A3": households_are_matched_by_name,
    "A5": every_chain_begins_at_midnight,
    "A6": public_hours_are_read_in_utc,
    "A7": the_largest_bound_of_the_plan_hides_every_household,
    "A10": gaussian_noise_passes_for_pure,
    "A11": no_noise_where_every_household_is_public,
    "B3": a_meter_that_feeds_in_is_refused,
}


@contextmanager
def plant_bug(name: str | None) -> Iterator[None]:
    """Run the block with one old bug, or without one. Raises AttributeError where a patched name does not exist."""
    with ExitStack() as stack:
        caches = (simulated_history.make_sample_plan, privacy_cost._cached_event, privacy_cost._loss_range)
        stack.callback(lambda: [cache.cache_clear() for cache in caches])
        for cache in caches:
            cache.cache_clear()
        if name is not None:
            PLANTED_BUGS[name](lambda where, what, how: stack.enter_context(patch.object(where, what, how)))
        with np.errstate(over="ignore", divide="ignore"):
            yield
