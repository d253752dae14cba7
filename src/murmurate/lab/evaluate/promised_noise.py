"""The least noise that keeps a promise, as the planner finds it, in multiples of the bound."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from murmurate.errors import PrivacyError
from murmurate.lab.evaluate.simulated_noise import NoiseLaw
from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import Promise, WindowPromise, parse_promise
from murmurate.units import QUARTER_HOURS_PER_DAY

DEFAULT_PROMISES = (
    "any 24 h: epsilon 1, delta 1e-6; any moment: 1",
    "any 24 h: epsilon 2, delta 1e-6",
    "any 24 h: epsilon 4, delta 1e-6",
)
_SEPARATOR = ";"


class PromisedNoise(NamedTuple):
    """A promise and its noise."""

    promise: str
    law: NoiseLaw
    epsilon: float | None  # of a window, if the promise has one

    @property
    def short(self) -> str:
        """The promise in as few words as a figure has room for: without deltas."""
        return " + ".join(part.split(", delta")[0].replace(", habits known", "") for part in self.promise.split("; "))


def parse_promises(text: str) -> tuple[Promise, ...]:
    """Return the promises of a text, separated by semicolons.

    >>> [str(promise) for promise in parse_promises("any 24 h: epsilon 2, delta 1e-6; any moment: 1")]
    ['any 24 h: epsilon 2, delta 1e-06', 'any moment, habits known: 1']
    """
    promises = tuple(parse_promise(part, QUARTER_HOURS_PER_DAY) for part in text.split(_SEPARATOR) if part.strip())
    if not promises:
        raise PrivacyError("promise", repr(text), f'must read like "{DEFAULT_PROMISES[0]}"')
    return promises


def plan_noise(text: str) -> PromisedNoise:
    """Return the least noise for a promise under `range`: whatever a household uses, up to the bound, is hidden.

    The occupancy that a promise about a moment needs is that of the example zone file.
    """
    promises = parse_promises(text)
    zone = parse_zone(EXAMPLE_ZONE_FILE)
    homes = next(kind for kind in zone.kinds if not kind.always_public)
    plan = make_plan(replace(zone, kinds=(homes,), promises=promises))
    scale, core = float(plan.noise.scale_wh[0]) / homes.bound_wh, float(plan.noise.core_wh[0]) / homes.bound_wh
    law = NoiseLaw.gaussian(scale) if plan.distribution is NoiseDistribution.GAUSSIAN else NoiseLaw(scale, core)
    windows = [float(promise.epsilon) for promise in promises if isinstance(promise, WindowPromise)]
    return PromisedNoise("; ".join(str(promise) for promise in promises), law, min(windows, default=None))
