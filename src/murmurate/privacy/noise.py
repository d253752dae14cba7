"""The noise: discrete Laplace or Gaussian on integer Wh. The only door by which randomness enters a release.

Pr[K = k] is proportional to e^(-|k|/b), or to e^(-k^2/(2 b^2)), on all whole numbers; b is the scale.
:class:`SystemNoise` draws it exactly, by OpenDP, from the operating system's randomness, and cannot be seeded.
:class:`RehearsalNoise` draws the same laws from a seed for the laboratory; everything it touches is stamped as a
rehearsal. Proofs: `noise.md`.
"""

from __future__ import annotations

import os
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.quantities import FloatArray, IntArray, refuse_where

os.environ.setdefault("RUST_BACKTRACE", "0")  # OpenDP would spend 100 ms on the trace of each error
import opendp.prelude as dp

LARGEST_SCALE_WH = 2.0**40
SMALLEST_SCALE_WH = 2.0**-6  # below it every draw is 0


class NoiseLaw(Enum):
    """The shape of the noise."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


class Noise(Protocol):
    """A source of noise, one number per scale handed in."""

    @property
    def rehearsal(self) -> bool: ...

    def draw(self, law: NoiseLaw, scale_wh: FloatArray) -> IntArray:
        """One independent draw [Wh] per entry of `scale_wh` [Wh]."""
        ...


class SystemNoise:
    """Exact noise from the operating system's randomness: what a published rate stands on.

    A scale of zero would publish the exact demand and is refused.
    """

    rehearsal = False

    def draw(self, law: NoiseLaw, scale_wh: FloatArray) -> IntArray:
        refuse_scales(scale_wh)
        drawn = np.zeros(scale_wh.shape, np.int64)
        for scale in np.unique(scale_wh):
            same = scale_wh == scale
            drawn[same] = measurement(law, float(scale))([0] * int(same.sum()))
        return drawn


@lru_cache(maxsize=1024)
def measurement(law: NoiseLaw, scale: float) -> Any:
    """OpenDP's own measurement, whose `check` says what it promises: epsilon for Laplace, rho (zCDP) for Gaussian."""
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if law is NoiseLaw.GAUSSIAN:
        return dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=scale)
    return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)


class RehearsalNoise:
    """The same laws from a seed.

    Laplace is floor(b E) - floor(b E') with standard exponentials E, E': two mechanisms rehearsed under one seed share
    E and E', so that their difference is not blurred by luck (common random numbers). Gaussian is Laplace of scale
    t = floor(b) + 1, kept with chance e^(-(|k| - b^2/t)^2/(2 b^2)) (Canonne, Kamath, Steinke 2020). A scale of zero
    gives no noise: only a rehearsal may look at the paper's empty kappa.

    >>> scales = np.array([2000.0, 4000.0, 0.0])
    >>> one, other = (RehearsalNoise(7).draw(NoiseLaw.LAPLACE, scales).tolist() for _ in range(2))
    >>> one == other, one[2]
    (True, 0)
    """

    rehearsal = True

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(seed)

    def draw(self, law: NoiseLaw, scale_wh: FloatArray) -> IntArray:
        refuse_scales(scale_wh, allow_zero=True)
        return self._gaussian(scale_wh) if law is NoiseLaw.GAUSSIAN else self._laplace(scale_wh)

    def _laplace(self, scale_wh: FloatArray) -> IntArray:
        up, down = self._rng.standard_exponential((2, *scale_wh.shape))
        drawn: IntArray = np.floor(scale_wh * up).astype(np.int64) - np.floor(scale_wh * down).astype(np.int64)
        return drawn

    def _gaussian(self, scale_wh: FloatArray) -> IntArray:
        drawn = np.zeros(scale_wh.shape, np.int64)
        waiting = scale_wh > 0
        while waiting.any():
            scale = scale_wh[waiting]
            wider = np.floor(scale) + 1
            proposed = self._laplace(wider)
            kept = self._rng.random(len(scale)) < np.exp(-(((np.abs(proposed) - scale**2 / wider) / scale) ** 2) / 2)
            drawn[waiting] = np.where(kept, proposed, 0)
            waiting[waiting] = ~kept
        return drawn


def laplace_log_pmf(noise_wh: Any, scale_wh: float) -> FloatArray:
    """log Pr[K = k] = -|k|/b + log tanh(1/(2b)); all the mass at 0 where b is 0.

    >>> bool(np.isclose(np.exp(laplace_log_pmf(np.arange(-200, 201), 3.0)).sum(), 1))
    True
    """
    distance = np.abs(np.asarray(noise_wh, np.float64))
    if scale_wh == 0:
        return np.where(distance == 0, 0.0, -np.inf)
    log_pmf: FloatArray = -distance / scale_wh + np.log(np.tanh(1 / (2 * scale_wh)))
    return log_pmf


def refuse_scales(scale_wh: FloatArray, *, allow_zero: bool = False) -> None:
    """Raise PrivacyError unless each scale [Wh] can be drawn exactly; zero is for rehearsals."""
    enough = (scale_wh >= 0) if allow_zero else (scale_wh >= SMALLEST_SCALE_WH)
    allowed = f"must be {'0 or more' if allow_zero else 'at least 1/64 Wh, or the exact demand would be published'}"
    wrong = ~(enough & (scale_wh <= LARGEST_SCALE_WH))
    refuse_where(wrong, "scale_wh", scale_wh, f"{allowed}, and at most 2**40 Wh", PrivacyError)
