"""Bugs that the product once had, to be planted again one at a time: the law must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np

from murmurate.curator import change, history, local_hours, noise_schedule, spending, terms, zone
from murmurate.curator.hiding import HiddenHouseholds
from murmurate.errors import ReadingError
from murmurate.privacy import leakage
from murmurate.privacy.accountant import PureAccountant
from murmurate.service.doors import formats
from tests.whole_path import life


def moments_across_a_change_are_not_looked_at(plant: Callable[..., None]) -> None:
    """A2: windows alone were held against a change of plan."""
    plant(change, "refuse_moments", lambda *_: None)


def households_are_followed_by_name(plant: Callable[..., None]) -> None:
    """A3: a kind with another name was a new household."""

    def by_name(plans):
        for path in history.paths(plans):
            if len({kind.name for kind in path}) == 1:
                yield path

    plant(change, "paths", by_name)


def every_chain_begins_at_midnight(plant: Callable[..., None]) -> None:
    """A5: one prior for whatever interval comes first, and a proof for midnight alone."""
    plant(zone, "begun_periodically", lambda chains: chains)
    plant(leakage, "prior_at", lambda chains, _: chains.initial)
    plant(spending, "clock_leakage", lambda chains, loss, *_: leakage._worst(chains, loss))


def public_hours_are_read_in_utc(plant: Callable[..., None]) -> None:
    """A6."""
    plant(local_hours.LocalHours, "at_all_offsets", lambda _, local: tuple(bool(known) for known in local))


def the_largest_bound_of_the_plan_hides_everybody(plant: Callable[..., None]) -> None:
    """A7: at every hour, whoever it is."""
    right = HiddenHouseholds.of

    def largest(document):
        found = right(document)
        bounds = [kind["bound_wh"] for kind in document["households"] if not all(kind["public"])]
        most = max(bounds, default=0)
        return HiddenHouseholds(by_kind=dict.fromkeys(found.by_kind, most), unnamed_wh=most, public_wh=found.public_wh)

    plant(HiddenHouseholds, "of", staticmethod(largest))


def gaussian_noise_passes_for_pure(plant: Callable[..., None]) -> None:
    """A10: the largest loss on a finite grid was taken for the largest loss."""

    def epsilon(_, events, delta):
        del delta
        return float(sum(min(event.reach, 1e9) * count for event, count in events))

    plant(PureAccountant, "epsilon", epsilon)


def no_noise_where_everybody_is_public(plant: Callable[..., None]) -> None:
    """A11."""
    plant(zone.Zone, "is_protected", lambda _, kind: tuple(not known for known in kind.public))
    plant(noise_schedule, "refuse_scales", lambda *_: None)
    plant(terms, "refuse_scales", lambda *_: None)


def a_meter_that_feeds_in_is_refused(plant: Callable[..., None]) -> None:
    """B3: and therefore silent, which the quorum shows."""
    right = formats.floored_wh

    def refusing(field, value):
        if right(field, value) < 0:
            raise ReadingError(field, "negative", "must be 0 or more")
        return right(field, value)

    plant(formats, "floored_wh", refusing)


BUGS = {
    "A2": moments_across_a_change_are_not_looked_at,
    "A3": households_are_followed_by_name,
    "A5": every_chain_begins_at_midnight,
    "A6": public_hours_are_read_in_utc,
    "A7": the_largest_bound_of_the_plan_hides_everybody,
    "A10": gaussian_noise_passes_for_pure,
    "A11": no_noise_where_everybody_is_public,
    "B3": a_meter_that_feeds_in_is_refused,
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The product with one of its old bugs, or as it is."""
    with ExitStack() as stack:
        caches = (life.plan_of, spending._event, spending._loss)
        stack.callback(lambda: [cache.cache_clear() for cache in caches])
        for cache in caches:
            cache.cache_clear()
        if name is not None:
            BUGS[name](lambda where, what, how: stack.enter_context(patch.object(where, what, how)))
        with np.errstate(over="ignore", divide="ignore"):
            yield
