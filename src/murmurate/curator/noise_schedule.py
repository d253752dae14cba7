"""The noise of a plan: one law, with its parameters for each interval of the day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.privacy.huber import huber_variance
from murmurate.privacy.noise import NoiseLaw, refuse_scales
from murmurate.quantities import FloatArray, IntArray, integers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseSchedule:
    """Law and parameters [interval of the day].

    `scale_wh` is the scale of Laplace noise, the deviation of Gaussian noise, and the scale of the exponential tails of
    Huber noise. `core_wh` is how far the Gaussian core of Huber noise reaches; it is 0 for the other laws.
    """

    law: NoiseLaw
    scale_wh: FloatArray
    core_wh: IntArray

    @classmethod
    def of(cls, law: NoiseLaw, scale_wh: Any, core_wh: Any = None) -> NoiseSchedule:
        """Raises PrivacyError unless there is noise in every interval, and a core where the law has one."""
        scales = np.asarray(scale_wh, np.float64)
        cores = np.zeros(scales.shape, np.int64) if core_wh is None else integers(core_wh, "core_wh", PrivacyError)
        refuse_scales(scales)
        if cores.shape != scales.shape or (cores < 0).any() or (cores.any() and law is not NoiseLaw.HUBER):
            allowed = "must be one core for each scale, 0 or more, of huber noise only"
            raise PrivacyError("core_wh", f"shaped {cores.shape}", allowed)
        return cls(law=law, scale_wh=scales, core_wh=cores)

    @property
    def is_pure(self) -> bool:
        """Whether no single output tells more than a bounded amount."""
        return self.law is not NoiseLaw.GAUSSIAN

    @property
    def variance(self) -> FloatArray:
        """[Wh^2, interval of the day]"""
        if self.law is NoiseLaw.GAUSSIAN:
            return np.asarray(self.scale_wh**2)
        return huber_variance(self.scale_wh, self.core_wh)

    def slots(self) -> list[tuple[float, int]]:
        """(scale, core) of each interval of the day."""
        return list(zip(self.scale_wh.tolist(), self.core_wh.tolist(), strict=True))

    def times(self, factor: float) -> NoiseSchedule:
        """The same noise, so many times as wide; cores are rounded up."""
        cores = np.ceil(self.core_wh * factor).astype(np.int64)
        return NoiseSchedule.of(self.law, self.scale_wh * factor, cores)
