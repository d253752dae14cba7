"""Release: add one draw of noise to each demand and price the result.

The noise is an argument of `protect`. The laboratory and the service call the same `aggregate` and the same `protect`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from murmurate.errors import PrivacyError, ReadingError, require_members
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution, NoiseSampler
from murmurate.types import Demand, Release
from murmurate.units import MICRO, IntArray, as_int64_array, raise_where


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
        noise: `SystemNoise()` for a price that is published, `SeededNoise(seed)` for tests and simulations, or your own
            `NoiseSampler`.
        distribution: Distribution of the noise.
        core_wh: Core of Huber noise, one number or one for each demand [Wh]; None for the other distributions.
        inelastic_wh: Public demand that is added after the noise, one number or one for each demand [Wh].

    Returns:
        The prices [ticks, release], with the noisy demand that they were computed from.

    Raises:
        ReadingError: A demand is not a whole number of Wh that fits in 64 bits.
        PrivacyError: A scale, core or noise has the wrong shape or is out of range, or a core is missing or
            superfluous.
        MurmurateError: `noise` lacks a method of `NoiseSampler`.
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
    require_members("noise", noise, "NoiseSampler", "test_only", "draw")
    drawn = as_int64_array(noise.draw(distribution, scales, cores), "noise", PrivacyError)
    if drawn.shape != demand.shape:
        raise PrivacyError("noise", f"shaped {drawn.shape}", f"must be one draw per demand: {demand.shape}")
    noisy_wh = demand + drawn
    return Release(
        price_ticks=curve.price_ticks(noisy_wh, inelastic_wh),
        tick=curve.tick,
        noisy_wh=noisy_wh,
        scale_wh=scales,
        test_only=noise.test_only,
    )


def fill_silent_meters(demand: Demand, share_micro: Any) -> IntArray:
    """Return the demand of each zone with its silent meters, each at a public share of its bound [Wh, zone].

    phi >= 0: Z + floor(phi B) with B the bounds of the silent meters. phi < 0: Z - floor(|phi| A) with A their export
    bounds. A meter of bounds (a, b) adds what lies between -a and b whether it reports or not, and floor keeps the
    order. So two worlds that differ in one household, in what its meters measured or in whether they reported, differ
    by its range at most: noise that hides its readings hides whether it reported.

    Args:
        demand: The demand of an interval.
        share_micro: phi, one number or one for each zone [millionths]. It must not depend on a reading.

    Returns:
        The sums that noise is added to [Wh, zone].

    Raises:
        PrivacyError: A share is below -1 or above 1.

    Example:
        >>> import murmurate as mm
        >>> demand = mm.aggregate([], mm.Meters.for_single_zone("harbour", bound_wh=[3000, 1000], export_bound_wh=10))
        >>> [fill_silent_meters(demand, share).tolist() for share in (0, 250_000, -1_000_000)]
        [[0], [1000], [-20]]
    """
    share = as_int64_array(share_micro, "share_micro", PrivacyError)
    raise_where(np.abs(share) > MICRO, "share_micro", share, "must lie between -1000000 and 1000000", PrivacyError)

    def take(total_wh: IntArray, part: IntArray) -> IntArray:
        whole, rest = np.divmod(total_wh, MICRO)  # the product of both would not fit in 64 bits
        return np.asarray(part * whole + part * rest // MICRO)

    drawn_wh = take(demand.silent_bound_wh, np.maximum(share, 0))
    return np.asarray(demand.energy_wh + drawn_wh - take(demand.silent_export_bound_wh, np.maximum(-share, 0)))


def _broadcast_to_demand(values: Any, shape: tuple[int, ...], name: str) -> Any:
    if values.shape not in {(), (1,), shape}:
        allowed = f"must be one {name}, or one per demand: {shape}"
        raise PrivacyError(f"{name}_wh", f"shaped {values.shape}", allowed)
    return np.broadcast_to(values, shape)
