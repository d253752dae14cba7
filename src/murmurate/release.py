"""Release: add one draw of noise to each demand and price the result.

The noise is an argument of `protect`. The laboratory and the service call the same `aggregate` and the same `protect`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from murmurate.errors import PrivacyError, ReadingError
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution, NoiseSampler
from murmurate.types import Release
from murmurate.units import as_int64_array


def protect(
    demand_wh: Any,
    *,
    scale_wh: Any,
    curve: RateCurve,
    noise: NoiseSampler,
    distribution: NoiseDistribution = NoiseDistribution.LAPLACE,
    core_wh: Any = None,
    inelastic_wh: Any = 0,
) -> Release:
    """Add one draw of noise to each demand and compute the price of the result.

    r-hat = curve(Z + K) with noise K (paper, Algorithm 1, lines 10-12: Laplace). For the affine rate it has the
    distribution of alpha Z + beta + alpha K. The price is computed from the noisy demand alone, so ticks, floor, cap
    and the public `inelastic_wh` cost no privacy.

    Args:
        demand_wh: Demand, whole numbers [Wh, release].
        scale_wh: Scale of the noise, one number or one for each demand [Wh]. `SystemNoise` needs at least 1 Wh.
        curve: The rate curve.
        noise: `SystemNoise()` for a price that is published, `SeededNoise(seed)` for tests and simulations.
        distribution: Distribution of the noise.
        core_wh: Core of Huber noise, one number or one for each demand [Wh]; None for the other distributions.
        inelastic_wh: Public demand that is added after the noise, one number or one for each demand [Wh].

    Returns:
        The prices [ticks, release], with the noisy demand that they were computed from.

    Raises:
        ReadingError: A demand is not a whole number of Wh that fits in 64 bits.
        PrivacyError: A scale or core has the wrong shape or is out of range, or a core is missing or superfluous.
        TariffError: `inelastic_wh` is not a whole number of Wh.

    Example:
        >>> import murmurate as mm
        >>> curve = mm.RateCurve.affine(alpha=1, beta="62.5", tick="0.001")
        >>> release = mm.protect([177_250], scale_wh=2000, curve=curve, noise=mm.SeededNoise(1))
        >>> release.test_only, release.price_ticks.tolist() == curve.price_ticks(release.noisy_wh).tolist()
        (True, True)
    """
    demand = as_int64_array(demand_wh, "demand_wh", ReadingError)
    scales = _broadcast_to_demand(np.asarray(scale_wh, np.float64), demand.shape, "scale")
    cores = None
    if core_wh is not None:
        cores = _broadcast_to_demand(as_int64_array(core_wh, "core_wh", PrivacyError), demand.shape, "core")
    noisy_wh = demand + noise.draw(distribution, scales, cores)
    return Release(
        price_ticks=curve.price_ticks(noisy_wh, inelastic_wh),
        tick=curve.tick,
        noisy_wh=noisy_wh,
        scale_wh=scales,
        test_only=noise.test_only,
    )


def _broadcast_to_demand(values: Any, shape: tuple[int, ...], name: str) -> Any:
    if values.shape not in {(), (1,), shape}:
        allowed = f"must be one {name}, or one per demand: {shape}"
        raise PrivacyError(f"{name}_wh", f"shaped {values.shape}", allowed)
    return np.broadcast_to(values, shape)
