"""The noise: discrete Laplace, Gaussian or Huber on integer Wh. This is the only randomness in a release.

Pr[K = k] is proportional to e^(-|k|/b), to e^(-k^2/(2 b^2)), or to e^(-rho(k)) with rho(k) = k^2/(2 b c) for |k| <= c
and |k|/b - c/(2b) beyond, on the integers; b is the scale, c the core.
`SystemNoise` samples it exactly, from the operating system's random bytes. It has no seed. `SeededNoise` samples the
same distributions from a seed, for simulations. Its releases are marked `test_only`.

OpenDP's sampler takes a millisecond to set up and microseconds to draw, and each zone has another scale. So draws are
proposed at the scale rounded up to 7 significant bits, which many zones share, and kept with the probability that makes
the kept ones noise of the exact scale; the others are repeated. Proofs: `noise.md`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.extras import require_extra
from murmurate.units import FloatArray, IntArray, as_int64_array, raise_where

MIN_SCALE_WH = 1.0  # smaller noise would publish the exact demand most of the time
MAX_SCALE_WH = 2.0**40
MAX_CORE_WH = 2**40
_PROPOSAL_BITS = 7  # significant bits of a proposal's scale: 64 scales in each octave, at most 1/64 too wide
_WORD_BYTES = 4  # bytes of a uniform number per draw
_HALVINGS = 6  # the series of e^-y is summed at arguments below 2**-6
_GUARD_BITS = 12  # bits beyond the requested ones

RandomBytes = Callable[[int], bytes]  # n -> n uniform random bytes


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
    """A source of noise: `protect` takes any object like it. `SystemNoise` and `SeededNoise` are two.

    A plan is proven for the distributions of `NoiseDistribution`. `audit` attacks any noise, and proves none.

    Attributes:
        test_only: Whether the noise can be repeated, from a seed for example. Such a release must not be published.

    Example:
        >>> import murmurate as mm
        >>> import numpy as np
        >>> class NoNoise:
        ...     test_only = True
        ...
        ...     def draw(self, distribution, scale_wh, core_wh=None):
        ...         return np.zeros(scale_wh.shape, np.int64)
        >>> curve = mm.RateCurve.affine(alpha="0.001", beta="0.08", tick="0.00001")
        >>> mm.protect([177_250], scale_wh=6000, curve=curve, noise=NoNoise()).noisy_wh.tolist()
        [177250]
    """

    @property
    def test_only(self) -> bool:
        """Whether the noise can be repeated. Such a release must not be published."""
        ...

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        """Draw noise, independently for each scale.

        Args:
            distribution: Distribution that the plan asks for.
            scale_wh: Scale b, any shape [Wh].
            core_wh: Core c of Huber noise, in the same shape [Wh]; None for the other distributions.

        Returns:
            Whole numbers, one for each entry of `scale_wh` [Wh].

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.SeededNoise(7).draw(mm.NoiseDistribution.LAPLACE, np.array([2000.0, 4000.0])).shape
            (2,)
        """
        ...


class _CheckedNoise:
    """Checks what is asked of a source of noise."""

    test_only: bool

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        """Draw noise, independently for each scale.

        Args:
            distribution: Distribution of the noise.
            scale_wh: Scale b, any shape, from 1 to 2**40; `SeededNoise` also takes 0, which gives no noise [Wh].
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
            >>> mm.SeededNoise(7).draw(mm.NoiseDistribution.HUBER, np.array([0.0]), np.array([10])).tolist()
            [0]
        """
        check_scales(scale_wh, allow_zero=self.test_only)
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
        return self._draw(distribution, scale_wh, cores)

    def _draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray) -> IntArray:
        raise NotImplementedError


class SystemNoise(_CheckedNoise):
    """Exact noise from the randomness of the operating system, for prices that are published. It has no seed.

    Attributes:
        test_only: False.

    Example:
        >>> import murmurate as mm
        >>> mm.SystemNoise().test_only
        False
    """

    test_only = False

    def _draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray) -> IntArray:
        gaussian, scales = distribution is NoiseDistribution.GAUSSIAN, scale_wh.ravel()
        drawn = draw_gaussian_noise(scales) if gaussian else draw_huber_noise(scales, core_wh.ravel())
        return drawn.reshape(scale_wh.shape)


class SeededNoise(_CheckedNoise):
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

    def _draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray) -> IntArray:
        if distribution is NoiseDistribution.HUBER:
            return self._huber(scale_wh, core_wh)
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
        by_scale: dict[float, list[int]] = {}  # one call of OpenDP for each different scale
        for at in waiting:
            by_scale.setdefault(wider[at], []).append(at)
        draws = {
            at: int(k)
            for scale, same in by_scale.items()
            for at, k in zip(same, measurement(scale)([0] * len(same)), strict=True)
        }
        proposed = [draws[at] for at in waiting]
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


def bernoulli_exp(
    exponents: Sequence[tuple[int, int]], random_bytes: RandomBytes, word_bytes: int = _WORD_BYTES
) -> list[bool]:
    """Draw one independent bit for each (n, d) of `exponents`: True with probability e^(-n/d), exactly.

    A uniform real number V in [0, 1) is drawn bit by bit until V < e^(-n/d) is decided, by random bits and integers
    only (`noise.md`). The first `word_bytes` bytes of all samples come from one call of `random_bytes`. A sample that
    is still undecided draws as many bytes again.

    >>> import os
    >>> bernoulli_exp([(0, 1), (10**9, 1)], os.urandom)
    [True, False]
    """
    if any(numerator < 0 or denominator < 1 for numerator, denominator in exponents):
        raise PrivacyError("chance", "e^(-n/d)", "must have integers n >= 0 and d >= 1")
    words = random_bytes(word_bytes * len(exponents))
    found = []
    for i, (numerator, denominator) in enumerate(exponents):
        drawn = words[word_bytes * i : word_bytes * (i + 1)]
        while True:
            bits, value = 8 * len(drawn), int.from_bytes(drawn)
            certain = (value + 1) * denominator <= (denominator - numerator) << bits  # e^(-n/d) >= 1 - n/d
            low, high = (value + 1, value + 1) if certain else exp_bounds(numerator, denominator, bits)
            if not low <= value < high:
                break
            drawn += random_bytes(word_bytes)
        found.append(value < low)
    return found


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Return integers low <= e^(-n/d) 2^bits <= high. They nearly always differ by 1.

    With y = n/(d 2^m) < 2^-6: the alternating series of e^-y, then m squarings, in fixed point, each rounded outwards.

    >>> exp_bounds(1, 1, 16), round(2**16 * 0.36787944117, 3)
    ((24109, 24110), 24109.347)
    """
    if numerator == 0:
        return 1 << bits, 1 << bits
    if numerator >= bits * denominator:
        return 0, 1  # e^-bits < 2^-bits
    squarings = (numerator // denominator).bit_length() + _HALVINGS
    point = bits + squarings + _GUARD_BITS
    unit = 1 << point
    y = (numerator << (point - squarings)) // denominator
    power, total, terms = unit, unit, 0
    while power:
        terms += 1
        power = (power * y >> point) // terms
        total += -power if terms % 2 else power
    low, high = total - 2 * terms - 2, min(total + 2 * terms + 2, unit)
    for _ in range(squarings):
        low, high = low * low >> point, (high * high >> point) + 1
    return low >> (point - bits), -(-high >> (point - bits))
