"""The noise: discrete Laplace on integer Wh. The only door through which randomness enters a release.

Pr[K = k] is proportional to e^(-|k| / b) on all whole numbers; b is the scale. :class:`SystemNoise` draws it exactly,
by OpenDP, from the operating system's randomness, and cannot be seeded. :class:`RehearsalNoise` draws the same law from
a seed for the laboratory; everything it touches is stamped as a rehearsal. Proofs: `noise.md`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.quantities import FloatArray, IntArray, refuse_where

os.environ.setdefault("RUST_BACKTRACE", "0")  # OpenDP would spend 100 ms on the trace of each error
import opendp.prelude as dp

LARGEST_SCALE_WH = 2.0**40
SMALLEST_SCALE_WH = 2.0**-6  # below it every draw is 0


class Noise(Protocol):
    """A source of discrete Laplace noise, one number per scale handed in."""

    @property
    def rehearsal(self) -> bool: ...

    def laplace(self, scale_wh: FloatArray) -> IntArray:
        """One independent draw [Wh] per entry of `scale_wh` [Wh]: Pr[k] ~ e^(-|k|/b)."""
        ...


class SystemNoise:
    """Exact discrete Laplace from the operating system's randomness: what a published rate stands on.

    A scale of zero would publish the exact demand and is refused.
    """

    rehearsal = False

    def laplace(self, scale_wh: FloatArray) -> IntArray:
        _refuse_scales(scale_wh, allow_zero=False)
        drawn = np.zeros(scale_wh.shape, np.int64)
        for scale in np.unique(scale_wh):
            same = scale_wh == scale
            drawn[same] = _measurement(float(scale))([0] * int(same.sum()))
        return drawn


@lru_cache(maxsize=1024)
def _measurement(scale: float) -> Any:
    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)


class RehearsalNoise:
    """The same law from a seed: floor(b E) - floor(b E') with standard exponentials E, E'.

    Two mechanisms rehearsed under one seed share E and E', so that their difference is not blurred by luck (common
    random numbers). A scale of zero gives no noise: only a rehearsal may look at the paper's empty kappa.

    >>> RehearsalNoise(7).laplace(np.array([2000.0, 4000.0, 0.0])).tolist() == RehearsalNoise(7).laplace(
    ...     np.array([2000.0, 4000.0, 0.0])).tolist()
    True
    """

    rehearsal = True

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(seed)

    def laplace(self, scale_wh: FloatArray) -> IntArray:
        _refuse_scales(scale_wh, allow_zero=True)
        up, down = self._rng.standard_exponential((2, *scale_wh.shape))
        drawn: IntArray = np.floor(scale_wh * up).astype(np.int64) - np.floor(scale_wh * down).astype(np.int64)
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


def _refuse_scales(scale_wh: FloatArray, *, allow_zero: bool) -> None:
    enough = (scale_wh >= 0) if allow_zero else (scale_wh >= SMALLEST_SCALE_WH)
    allowed = f"must be {'0 or more' if allow_zero else 'at least 1/64 Wh, or the exact demand would be published'}"
    wrong = ~(enough & (scale_wh <= LARGEST_SCALE_WH))
    refuse_where(wrong, "scale_wh", scale_wh, f"{allowed}, and at most 2**40 Wh", PrivacyError)
