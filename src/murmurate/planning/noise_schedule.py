"""The noise of a plan: one distribution, with its parameters for each interval of the day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.privacy.huber import huber_variance
from murmurate.privacy.noise import NoiseDistribution, check_scales
from murmurate.units import FloatArray, IntArray, as_int64_array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseSchedule:
    """A noise distribution and its parameters [interval of the day].

    `scale_wh` is the scale of Laplace noise, the standard deviation of Gaussian noise, or the scale of the exponential
    tails of Huber noise. `core_wh` is the half-width of the Gaussian core of Huber noise. It is 0 for the other
    distributions.
    """

    distribution: NoiseDistribution
    scale_wh: FloatArray
    core_wh: IntArray

    @classmethod
    def from_scales(cls, distribution: NoiseDistribution, scale_wh: Any, core_wh: Any = None) -> NoiseSchedule:
        """Check and build a schedule. Raises PrivacyError if a scale is too small or a core does not fit."""
        scales = np.asarray(scale_wh, np.float64)
        cores = (
            np.zeros(scales.shape, np.int64) if core_wh is None else as_int64_array(core_wh, "core_wh", PrivacyError)
        )
        check_scales(scales)
        if (
            cores.shape != scales.shape
            or (cores < 0).any()
            or (cores.any() and distribution is not NoiseDistribution.HUBER)
        ):
            allowed = "must be one core for each scale, 0 or more, and 0 unless the noise is huber"
            raise PrivacyError("core_wh", f"shaped {cores.shape}", allowed)
        return cls(distribution=distribution, scale_wh=scales, core_wh=cores)

    @property
    def is_pure(self) -> bool:
        """Whether the privacy loss of every output is bounded."""
        return self.distribution is not NoiseDistribution.GAUSSIAN

    @property
    def variance(self) -> FloatArray:
        """The variance of the noise [Wh^2, interval of the day]."""
        if self.distribution is NoiseDistribution.GAUSSIAN:
            return np.asarray(self.scale_wh**2)
        return huber_variance(self.scale_wh, self.core_wh)

    def scales_and_cores(self) -> list[tuple[float, int]]:
        """Return the (scale, core) of each interval of the day [Wh]."""
        return list(zip(self.scale_wh.tolist(), self.core_wh.tolist(), strict=True))

    def scaled_by(self, factor: float) -> NoiseSchedule:
        """Return the same noise with scales and cores multiplied by `factor`. Cores are rounded up."""
        cores = np.ceil(self.core_wh * factor).astype(np.int64)
        return NoiseSchedule.from_scales(self.distribution, self.scale_wh * factor, cores)
