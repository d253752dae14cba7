"""One interval: demand becomes a release.

`protect` is a function of the demand and of the noise that is handed in. The laboratory and the service call `gather`
(`curator.gathering`) and `protect`, and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from murmurate.errors import PrivacyError, ReadingError
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import Noise, NoiseLaw
from murmurate.quantities import Release, integers


def protect(
    demand_wh: Any,
    *,
    scale_wh: Any,
    curve: RateCurve,
    noise: Noise,
    law: NoiseLaw = NoiseLaw.LAPLACE,
    core_wh: Any = None,
    inelastic_wh: Any = 0,
) -> Release:
    """Add one draw of noise to each demand [Wh] and price the result.

    r-hat = curve(Z + K), K noise of scale `scale_wh` (paper, Algorithm 1, lines 10-12: Laplace) and, for Huber noise
    alone, of core `core_wh`. For the affine rate it has the law of alpha Z + beta + alpha K. Pricing comes after the
    noise and is free: ticks, floor, cap and the public `inelastic_wh` cost no privacy.

    >>> from murmurate.privacy.noise import RehearsalNoise
    >>> curve = RateCurve.affine(alpha=1, beta="62.5", tick="0.001")
    >>> release = protect(np.array([177_250]), scale_wh=np.array([2000.0]), curve=curve, noise=RehearsalNoise(1))
    >>> release.rehearsal, release.price_ticks.tolist() == curve.price_ticks(release.noisy_wh).tolist()
    (True, True)
    """
    demand = integers(demand_wh, "demand_wh", ReadingError)
    scales = _one_per_demand(np.asarray(scale_wh, np.float64), demand.shape, "scale")
    cores = None
    if core_wh is not None:
        cores = _one_per_demand(integers(core_wh, "core_wh", PrivacyError), demand.shape, "core")
    noisy_wh = demand + noise.draw(law, scales, cores)
    return Release(
        price_ticks=curve.price_ticks(noisy_wh, inelastic_wh),
        tick=curve.tick,
        noisy_wh=noisy_wh,
        scale_wh=scales,
        rehearsal=noise.rehearsal,
    )


def _one_per_demand(values: Any, shape: tuple[int, ...], name: str) -> Any:
    if values.shape not in {(), (1,), shape}:
        allowed = f"must be one {name}, or one per demand: {shape}"
        raise PrivacyError(f"{name}_wh", f"shaped {values.shape}", allowed)
    return np.broadcast_to(values, shape)
