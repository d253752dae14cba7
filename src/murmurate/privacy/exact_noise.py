"""Exact noise of any scale, with few calls of OpenDP: draw wider noise, keep some draws, repeat the others.

OpenDP's sampler takes a millisecond to set up and microseconds to draw, and each zone has a scale of its own. So draws
are proposed at the scale rounded up to 7 significant bits, which many zones share, and kept with the probability that
makes the kept ones noise of the exact scale. Proofs: `noise.md`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from murmurate.extras import require_extra
from murmurate.privacy.bernoulli import bernoulli_exp
from murmurate.units import FloatArray, IntArray

_PROPOSAL_BITS = 7  # significant bits of a proposal's scale: 64 scales in each octave, at most 1/64 too wide


def draw_huber_noise(scale_wh: FloatArray, core_wh: IntArray) -> IntArray:
    """Return one independent sample of Huber noise for each scale and core [Wh]. A core of 0 makes Laplace noise."""
    scales, cores = scale_wh.tolist(), core_wh.tolist()
    wider = [proposal_scale(scale, core) for scale, core in zip(scales, cores, strict=True)]
    return _keep_some(opendp_laplace, wider, lambda at, k: huber_exponent(k, scales[at], cores[at], wider[at]))


def draw_gaussian_noise(scale_wh: FloatArray) -> IntArray:
    """Return one independent sample of Gaussian noise for each scale [Wh]."""
    scales = scale_wh.tolist()
    wider = [proposal_scale(scale) for scale in scales]
    return _keep_some(opendp_gaussian, wider, lambda at, k: gaussian_exponent(k, scales[at], wider[at]))


def _keep_some(
    measurement: Callable[[float], Any], wider: list[float], exponent: Callable[[int, int], tuple[int, int]]
) -> IntArray:
    """Return one kept proposal for each scale of `wider`; k is kept at a position with probability e^(-n/d)."""
    drawn = np.zeros(len(wider), np.int64)
    waiting = list(range(len(wider)))
    while waiting:
        proposed = _draw_proposals(measurement, [wider[at] for at in waiting])
        kept = bernoulli_exp([exponent(at, k) for at, k in zip(waiting, proposed, strict=True)], os.urandom)
        for at, k, keep in zip(waiting, proposed, kept, strict=True):
            if keep:
                drawn[at] = k
        waiting = [at for at, keep in zip(waiting, kept, strict=True) if not keep]
    return drawn


def proposal_scale(scale: float, core: int = 0) -> float:
    """Return the scale t [Wh] of the proposals: at least b, and near sqrt(b c) for Huber noise with a core above b.

    >>> proposal_scale(2000.0), proposal_scale(2000.1), proposal_scale(1000.0, 4000)
    (2000.0, 2016.0, 2016.0)
    """
    enough = scale if core <= scale else float(math.isqrt(int(scale) * core) + 1)
    mantissa, exponent = math.frexp(enough)
    return math.ldexp(math.ceil(math.ldexp(mantissa, _PROPOSAL_BITS)), exponent - _PROPOSAL_BITS)


def huber_exponent(noise_wh: int, scale: float, core: int, wider: float) -> tuple[int, int]:
    """Return integers n and d: a Laplace proposal k of scale t is kept with probability e^(-n/d), for Huber noise.

    n/d = rho(k) - |k|/t + b c/(2 t^2), which is (|k| - b c/t)^2/(2 b c) for |k| <= c, and |k| (1/b - 1/t) without a
    core, where Huber noise is Laplace noise. A double is an exact fraction here.
    """
    (p, q), (f, g) = scale.as_integer_ratio(), wider.as_integer_ratio()
    size = abs(noise_wh)
    if core == 0:
        return size * (q * f - p * g), p * f
    denominator = 2 * p * q * core * f * f
    if size <= core:
        return (size * q * f - p * core * g) ** 2, denominator
    return core * (2 * size * (q * f - p * g) * q * f + core * (p * p * g * g - q * q * f * f)), denominator


def gaussian_exponent(noise_wh: int, scale: float, wider: float) -> tuple[int, int]:
    """Return integers n and d: a Gaussian proposal k of scale t is kept with probability e^(-n/d), for Gaussian noise.

    n/d = k^2 (1/(2 b^2) - 1/(2 t^2)).
    """
    (p, q), (f, g) = scale.as_integer_ratio(), wider.as_integer_ratio()
    return noise_wh * noise_wh * ((q * f) ** 2 - (p * g) ** 2), 2 * (p * f) ** 2


def _draw_proposals(measurement: Callable[[float], Any], scales: list[float]) -> list[int]:
    """Return one draw of OpenDP for each scale: one call for each different scale."""
    positions: dict[float, list[int]] = {}
    for position, scale in enumerate(scales):
        positions.setdefault(scale, []).append(position)
    drawn = [0] * len(scales)
    for scale, same in positions.items():
        for position, k in zip(same, measurement(scale)([0] * len(same)), strict=True):
            drawn[position] = k
    return drawn


def _load_opendp() -> Any:
    """Import OpenDP when the first noise is drawn: it takes longer than all other imports of most commands."""
    os.environ.setdefault("RUST_BACKTRACE", "0")  # OpenDP needs 100 ms for the backtrace of each error
    require_extra("plan", "opendp")
    import opendp.prelude as dp  # noqa: PLC0415

    dp.enable_features("contrib")
    return dp


@lru_cache(maxsize=4096)
def opendp_laplace(scale: float) -> Any:
    """Return OpenDP's measurement with Laplace noise. Its `check` bounds epsilon."""
    dp = _load_opendp()
    return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)


@lru_cache(maxsize=4096)
def opendp_gaussian(scale: float) -> Any:
    """Return OpenDP's measurement with Gaussian noise. Its `check` bounds rho (zCDP)."""
    dp = _load_opendp()
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64"), scale=scale)
