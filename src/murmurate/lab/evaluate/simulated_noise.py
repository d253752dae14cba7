"""The noise of a plan in a simulation, and what the releases of a whole region show together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from murmurate.lab.evaluate.public_knowledge import SLOTS
from murmurate.lab.evaluate.region import Region
from murmurate.prediction.sensor import ClippedSensor
from murmurate.units import FloatArray

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


def pooled_deviation(
    region: Region,
    sensor: ClippedSensor,
    noise: NoiseLaw,
    zone_homes: int,
    rng: np.random.Generator,
    change: Callable[[FloatArray], FloatArray] = lambda demand: demand,
    forecast_factor: float = 1.0,
) -> tuple[FloatArray, float]:
    """Return the deviation that all releases of the region show together [interval], and its usual variance."""
    group = region.whole
    expected = forecast_factor * region.expected_sums_wh(group, sensor.bound_wh)[:, 0]
    zones = max(1, group.homes // zone_homes)
    noise_wh = noise.draw(rng, sensor.bound_wh, (len(expected), zones)).sum(axis=1)
    slot = np.arange(len(expected)) % SLOTS
    shown = sensor.read_deviation(change(group.sums_wh(sensor.bound_wh))[:, 0] + noise_wh, expected, slot)
    variance = zones * (noise.sd * sensor.bound_wh) ** 2 * np.mean(1 / (sensor.response[slot] * expected) ** 2)
    return shown, float(variance)
