"""The noise: discrete Laplace, Gaussian or Huber on integer Wh. The only door by which randomness enters a release.

Pr[K = k] is proportional to e^(-|k|/b), to e^(-k^2/(2 b^2)), or to e^(-rho(k)) with rho(k) = k^2/(2 b c) for |k| <= c
and |k|/b - c/(2b) beyond, on all whole numbers; b is the scale, c the core.
:class:`SystemNoise` draws it exactly, by OpenDP and `privacy.bernoulli`, from the operating system's randomness, and
cannot be seeded. :class:`RehearsalNoise` draws the same laws from a seed for the laboratory; everything it touches is
stamped as a rehearsal. Proofs: `noise.md`.
"""

from __future__ import annotations

import math
import os
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.privacy.bernoulli import bernoulli_exp
from murmurate.quantities import FloatArray, IntArray, integers, refuse_where

os.environ.setdefault("RUST_BACKTRACE", "0")  # OpenDP would spend 100 ms on the trace of each error
import opendp.prelude as dp

LEAST_SCALE_WH = 1.0  # noise below a Wh is none
LARGEST_SCALE_WH = 2.0**40
LARGEST_CORE_WH = 2**40


class NoiseLaw(Enum):
    """The shape of the noise."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"
    HUBER = "huber"  # a Gaussian core with exponential tails; a core of 0 is Laplace


class Noise(Protocol):
    """A source of noise, one number per scale handed in."""

    @property
    def rehearsal(self) -> bool: ...

    def draw(self, law: NoiseLaw, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        """One independent draw [Wh] per entry of `scale_wh` [Wh]; Huber noise takes a core [Wh] for each as well."""
        ...


class SystemNoise:
    """Exact noise from the operating system's randomness: what a published rate stands on.

    A scale of zero would publish the exact demand and is refused.
    """

    rehearsal = False

    def draw(self, law: NoiseLaw, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        refuse_scales(scale_wh)
        plain = NoiseLaw.LAPLACE if law is NoiseLaw.HUBER else law
        drawn = np.zeros(scale_wh.size, np.int64)
        for (scale, core), same in _groups(scale_wh, _cores(law, scale_wh, core_wh)).items():
            if core:
                drawn[same] = _draw_huber(scale, core, len(same))
            else:
                drawn[same] = measurement(plain, scale)([0] * len(same))
        return drawn.reshape(scale_wh.shape)


def _groups(scale_wh: FloatArray, core_wh: IntArray) -> dict[tuple[float, int], list[int]]:
    """The positions at which each pair of scale and core stands."""
    found: dict[tuple[float, int], list[int]] = {}
    for position, pair in enumerate(zip(scale_wh.ravel().tolist(), core_wh.ravel().tolist(), strict=True)):
        found.setdefault(pair, []).append(position)
    return found


def _draw_huber(scale: float, core: int, count: int) -> IntArray:
    """`count` exact draws of Huber noise: wider Laplace noise, each draw kept with the chance that it is too common."""
    wider = proposal_scale(scale, core)
    drawn = np.zeros(count, np.int64)
    waiting = np.arange(count)
    while len(waiting):
        proposed = measurement(NoiseLaw.LAPLACE, wider)([0] * len(waiting))
        numerators, denominator = huber_exponents(proposed, scale, core, wider)
        kept = np.array(bernoulli_exp(numerators, denominator, os.urandom))
        drawn[waiting[kept]] = np.array(proposed, np.int64)[kept]
        waiting = waiting[~kept]
    return drawn


def proposal_scale(scale: float, core: int) -> float:
    """The scale t [Wh] of the Laplace noise from which Huber noise is drawn: b, or about sqrt(b c) if that is more.

    At least half of all draws are kept, whatever the scale and the core.
    """
    return scale if core <= scale else float(math.isqrt(int(scale) * core) + 1)


def huber_exponents(noise_wh: list[int], scale: float, core: int, wider: float) -> tuple[list[int], int]:
    """Whole numbers n and d: Laplace noise k of scale t is kept with chance e^(-n/d) to make it Huber noise.

    n/d = rho(k) - |k|/t + b c/(2 t^2), which is (|k| - b c/t)^2/(2 b c) for |k| <= c. Doubles are read as the exact
    fractions that they are.
    """
    (p, q), (f, g) = scale.as_integer_ratio(), wider.as_integer_ratio()
    near, far = p * core * g, 2 * (q * f - p * g) * q * f
    edge = core * (p * p * g * g - q * q * f * f)
    sizes = [abs(k) for k in noise_wh]
    numerators = [(k * q * f - near) ** 2 if k <= core else core * (k * far + edge) for k in sizes]
    return numerators, 2 * p * q * core * f * f


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
    t = floor(b) + 1, kept with chance e^(-(|k| - b^2/t)^2/(2 b^2)) (Canonne, Kamath, Steinke 2020). Huber is Laplace
    likewise, kept as in :class:`SystemNoise`; with a core of zero it is Laplace, draw by draw. A scale of zero gives no
    noise: only a rehearsal may look at the paper's empty kappa.

    >>> scales = np.array([2000.0, 4000.0, 0.0])
    >>> one, other = (RehearsalNoise(7).draw(NoiseLaw.LAPLACE, scales).tolist() for _ in range(2))
    >>> one == other, one[2]
    (True, 0)
    """

    rehearsal = True

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(seed)

    def draw(self, law: NoiseLaw, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        refuse_scales(scale_wh, allow_zero=True)
        core = _cores(law, scale_wh, core_wh)
        if law is NoiseLaw.HUBER:
            return self._huber(scale_wh, core)
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

    def _huber(self, scale_wh: FloatArray, core_wh: IntArray) -> IntArray:
        wider = np.maximum(scale_wh, np.sqrt(scale_wh * core_wh))
        drawn = self._laplace(wider)
        waiting = (core_wh > 0) & (scale_wh > 0)
        while waiting.any():
            scale, core, wide = scale_wh[waiting], core_wh[waiting], wider[waiting]
            size = np.abs(drawn[waiting])
            near = (size - scale * core / wide) ** 2 / (2 * scale * core)
            far = size * (1 / scale - 1 / wide) - core / (2 * scale) + scale * core / (2 * wide**2)
            kept = self._rng.random(len(scale)) < np.exp(-np.where(size <= core, near, far))
            waiting[waiting] = ~kept
            drawn[waiting] = self._laplace(wider[waiting])
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
    enough = (scale_wh >= 0) if allow_zero else (scale_wh >= LEAST_SCALE_WH)
    allowed = f"must be {'0 or more' if allow_zero else 'at least 1 Wh, or the exact demand would be published'}"
    wrong = ~(enough & (scale_wh <= LARGEST_SCALE_WH))
    refuse_where(wrong, "scale_wh", scale_wh, f"{allowed}, and at most 2**40 Wh", PrivacyError)


def _cores(law: NoiseLaw, scale_wh: FloatArray, core_wh: IntArray | None) -> IntArray:
    """The core [Wh] of each draw, 0 for laws that have none; PrivacyError where one is missing or out of place."""
    if (core_wh is None) is (law is NoiseLaw.HUBER):
        raise PrivacyError("core_wh", "missing" if core_wh is None else "given", "must be given for Huber noise alone")
    core = integers(0 if core_wh is None else core_wh, "core_wh", PrivacyError)
    try:
        cores = np.broadcast_to(core, scale_wh.shape)
    except ValueError:
        allowed = f"must be one core, or one per scale: {scale_wh.shape}"
        raise PrivacyError("core_wh", f"shaped {core.shape}", allowed) from None
    wrong = (cores < 0) | (cores > LARGEST_CORE_WH)
    refuse_where(wrong, "core_wh", cores, "must lie between 0 and 2**40 Wh", PrivacyError)
    return cores
