"""The noise that the promise of the example zone needs, for intervals of any length and households of any bound."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from murmurate.planning.plan import make_plan
from murmurate.planning.privacy_cost import NoiseSchedule
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import SeededNoise
from murmurate.units import FloatArray, IntArray

_EXAMPLE_BOUND_WH = 1000


@dataclass(frozen=True, slots=True, eq=False)
class ExampleNoise:
    """Noise of one interval that keeps the promises. It grows with the bound of a household."""

    promises: tuple[str, ...]
    schedule: NoiseSchedule  # of households with a bound of 1,000 Wh

    @classmethod
    def of_example(cls, interval_s: int) -> ExampleNoise:
        """Plan the example zone with intervals of this length. Calibration `range`: only the bound counts."""
        text = re.sub(r"interval_minutes = \d+", f"interval_minutes = {interval_s // 60}", EXAMPLE_ZONE_FILE)
        plan = make_plan(parse_zone(text))
        return cls(tuple(str(cost.promise) for cost in plan.costs), plan.noise)

    def sd_wh(self, bound_wh: int) -> float:
        """Return the standard deviation for households that use at most the bound [Wh]."""
        return float(np.sqrt(self.schedule.variance.max())) * bound_wh / _EXAMPLE_BOUND_WH

    def draw(self, bound_wh: int, shape: tuple[int, ...], seed: int | np.random.SeedSequence) -> IntArray:
        """Draw noise from a seed [Wh], by the sampler of the laboratory."""
        scaled = self.schedule.scaled_by(bound_wh / _EXAMPLE_BOUND_WH)
        scale_wh: FloatArray = np.full(shape, scaled.scale_wh.max())
        core_wh: IntArray = np.full(shape, scaled.core_wh.max())
        is_core = bool(core_wh.any())
        return SeededNoise(seed).draw(scaled.distribution, scale_wh, core_wh if is_core else None)
