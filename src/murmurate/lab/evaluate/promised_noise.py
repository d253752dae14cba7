"""The least noise that keeps a promise, as the planner finds it, and its draws in a simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.lab.evaluate.public_knowledge import SLOTS
from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import Promise, WindowPromise, parse_promise
from murmurate.units import FloatArray

DEFAULT_PROMISES = (
    "any 24 h: epsilon 1, delta 1e-6; any moment: 1",
    "any 24 h: epsilon 2, delta 1e-6",
    "any 24 h: epsilon 4, delta 1e-6",
)
_GAUSSIAN_CORE = 10.0  # standard deviations


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """Huber noise in multiples of the bound, as a plan with given promises has it."""

    scale: float  # Laplace scale of its tails, over the bound
    core: float  # where the tails begin, over the bound

    @classmethod
    def gaussian(cls, sd: float) -> NoiseLaw:
        """Gaussian noise: its tails begin where there is nothing left. `sd` is in multiples of the bound."""
        return cls(scale=sd / _GAUSSIAN_CORE, core=sd * _GAUSSIAN_CORE)

    @property
    def sd(self) -> float:
        """Standard deviation over the bound: a Gaussian between -core and core, an exponential beyond."""
        x = np.linspace(0, self.core + 60 * self.scale, 200_001)
        weight = np.exp(-self._rho(x))
        return float(np.sqrt(np.sum(weight * x**2) / np.sum(weight)))

    def _rho(self, x: FloatArray) -> FloatArray:
        inner = x**2 / (2 * self.scale * self.core) if self.core > 0 else x / self.scale
        return np.asarray(np.where(x <= self.core, inner, x / self.scale - self.core / (2 * self.scale)))

    def draw(self, rng: np.random.Generator, bound_wh: float, shape: tuple[int, ...]) -> FloatArray:
        """Return noise for a simulation [Wh]. What is published is drawn exactly, by `murmurate.privacy`."""
        x = np.linspace(0, self.core + 60 * self.scale, 200_001)
        chance = np.cumsum(np.exp(-self._rho(x)))
        size = np.interp(rng.random(shape), chance / chance[-1], x)
        return np.asarray(np.rint(bound_wh * size * np.where(rng.random(shape) < 0.5, -1, 1)))


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
    promises = tuple(parse_promise(part, SLOTS) for part in text.split(";") if part.strip())
    if not promises:
        raise PrivacyError("promise", repr(text), f'must read like "{DEFAULT_PROMISES[0]}"')
    return promises


def plan_noise(text: str) -> PromisedNoise:
    """Return the least noise for a promise under `range`: all that a household uses, up to the bound, is hidden.

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
