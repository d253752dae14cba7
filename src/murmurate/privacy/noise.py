"""The noise: discrete Laplace, Gaussian or Huber on integer Wh. This is the only randomness in a release.

Pr[K = k] is proportional to e^(-|k|/b), to e^(-k^2/(2 b^2)), or to e^(-rho(k)) with rho(k) = k^2/(2 b c) for |k| <= c
and |k|/b - c/(2b) beyond, on the integers; b is the scale, c the core.
`SystemNoise` samples it exactly (`privacy.exact_noise`), from the operating system's random bytes. It has
no seed. `SeededNoise` samples the same distributions from a seed, for simulations. Its releases are marked `test_only`.
Proofs: `noise.md`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.privacy.exact_noise import draw_gaussian_noise, draw_huber_noise
from murmurate.units import FloatArray, IntArray, as_int64_array, raise_where

MIN_SCALE_WH = 1.0  # smaller noise would publish the exact demand most of the time
MAX_SCALE_WH = 2.0**40
MAX_CORE_WH = 2**40


class NoiseDistribution(Enum):
    """The distribution of the noise, on all whole numbers of Wh.

    Attributes:
        LAPLACE: Pr[K = k] proportional to e^(-|k|/b), with scale b.
        GAUSSIAN: Pr[K = k] proportional to e^(-k^2/(2 b^2)), with standard deviation b.
        HUBER: A Gaussian core of half-width c with exponential tails of scale b; a core of 0 is Laplace.

    Example:
        >>> import murmurate as mm
        >>> mm.NoiseDistribution("huber")
        <NoiseDistribution.HUBER: 'huber'>
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"
    HUBER = "huber"  # a Gaussian core with exponential tails; a core of 0 is Laplace


class NoiseSampler(Protocol):
    """A source of noise: one integer per scale."""

    @property
    def test_only(self) -> bool: ...

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        """One independent draw [Wh] per entry of `scale_wh` [Wh]; Huber noise takes a core [Wh] for each as well."""
        ...


class SystemNoise:
    """Exact noise from the randomness of the operating system, for prices that are published. It has no seed.

    Attributes:
        test_only: False.

    Example:
        >>> import murmurate as mm
        >>> mm.SystemNoise().test_only
        False
    """

    test_only = False

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        """Draw noise, independently for each scale.

        Args:
            distribution: Distribution of the noise.
            scale_wh: Scale b, any shape, from 1 to 2**40 [Wh].
            core_wh: Core c of Huber noise, one number or one for each scale [Wh]; None for the other distributions.

        Returns:
            One draw for each entry of `scale_wh` [Wh].

        Raises:
            PrivacyError: A scale or core is out of range, or a core is missing or superfluous.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.SystemNoise().draw(mm.NoiseDistribution.LAPLACE, np.array([2000.0, 4000.0])).shape
            (2,)
            >>> mm.SystemNoise().draw(mm.NoiseDistribution.LAPLACE, np.array([0.0]))  # doctest: +ELLIPSIS
            Traceback (most recent call last):
            murmurate.errors.PrivacyError: scale_wh[0] is 0.0: must be at least 1 Wh, or the exact demand ...
        """
        check_scales(scale_wh)
        cores = _checked_cores(distribution, scale_wh, core_wh)
        gaussian = distribution is NoiseDistribution.GAUSSIAN
        scales = scale_wh.ravel()
        drawn = draw_gaussian_noise(scales) if gaussian else draw_huber_noise(scales, cores.ravel())
        return drawn.reshape(scale_wh.shape)


class SeededNoise:
    """Noise from a seed, for tests and simulations. What is made with it is marked `test_only`.

    Laplace is floor(b E) - floor(b E') with standard exponentials E, E'. Two mechanisms under one seed share E and E'
    (common random numbers). Gaussian is Laplace of scale t = floor(b) + 1, kept with probability
    e^(-(|k| - b^2/t)^2/(2 b^2)) (Canonne, Kamath, Steinke 2020). Huber is Laplace, kept as in :class:`SystemNoise`;
    with a core of zero it is Laplace, draw by draw. A scale of zero gives no noise, as the paper's empty kappa does.

    Args:
        seed: A whole number, or a NumPy `SeedSequence`. Equal seeds give equal draws.

    Attributes:
        test_only: True.

    Example:
        >>> import murmurate as mm
        >>> import numpy as np
        >>> scale_wh = np.array([2000.0, 4000.0, 0.0])
        >>> first, second = (mm.SeededNoise(7).draw(mm.NoiseDistribution.LAPLACE, scale_wh).tolist() for _ in range(2))
        >>> first == second, first[2]
        (True, 0)
    """

    test_only = True

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(seed)

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        """Draw noise, independently for each scale.

        Args:
            distribution: Distribution of the noise.
            scale_wh: Scale b, any shape, from 0 to 2**40; 0 gives no noise [Wh].
            core_wh: Core c of Huber noise, one number or one for each scale [Wh]; None for the other distributions.

        Returns:
            One draw for each entry of `scale_wh` [Wh].

        Raises:
            PrivacyError: A scale or core is out of range, or a core is missing or superfluous.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.SeededNoise(7).draw(mm.NoiseDistribution.HUBER, np.array([0.0]), np.array([10])).tolist()
            [0]
        """
        check_scales(scale_wh, allow_zero=True)
        core = _checked_cores(distribution, scale_wh, core_wh)
        if distribution is NoiseDistribution.HUBER:
            return self._huber(scale_wh, core)
        return self._gaussian(scale_wh) if distribution is NoiseDistribution.GAUSSIAN else self._laplace(scale_wh)

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
            accepted = self._rng.random(len(scale)) < np.exp(
                -(((np.abs(proposed) - scale**2 / wider) / scale) ** 2) / 2
            )
            drawn[waiting] = np.where(accepted, proposed, 0)
            waiting[waiting] = ~accepted
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
            accepted = self._rng.random(len(scale)) < np.exp(-np.where(size <= core, near, far))
            waiting[waiting] = ~accepted
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


def check_scales(scale_wh: FloatArray, *, allow_zero: bool = False) -> None:
    """Raise PrivacyError unless each scale is at least 1 Wh (or 0 with `allow_zero`) and at most 2**40 Wh."""
    enough = (scale_wh >= 0) if allow_zero else (scale_wh >= MIN_SCALE_WH)
    allowed = f"must be {'0 or more' if allow_zero else 'at least 1 Wh, or the exact demand would be published'}"
    wrong = ~(enough & (scale_wh <= MAX_SCALE_WH))
    raise_where(wrong, "scale_wh", scale_wh, f"{allowed}, and at most 2**40 Wh", PrivacyError)


def _checked_cores(distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None) -> IntArray:
    """Return the core of each sample [Wh], 0 unless the noise is Huber. Raises PrivacyError if the cores do not fit."""
    if (core_wh is None) is (distribution is NoiseDistribution.HUBER):
        raise PrivacyError(
            "core_wh", "missing" if core_wh is None else "given", "must be given for Huber noise and no other"
        )
    core = as_int64_array(0 if core_wh is None else core_wh, "core_wh", PrivacyError)
    try:
        cores = np.broadcast_to(core, scale_wh.shape)
    except ValueError:
        allowed = f"must be one core, or one per scale: {scale_wh.shape}"
        raise PrivacyError("core_wh", f"shaped {core.shape}", allowed) from None
    wrong = (cores < 0) | (cores > MAX_CORE_WH)
    raise_where(wrong, "core_wh", cores, "must lie between 0 and 2**40 Wh", PrivacyError)
    return cores
