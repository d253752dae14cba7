"""One interval: readings become demand (`gather`), demand becomes a release (`protect`).

Both are pure. `gather` gives the same demand for any order and any partition of the readings; `protect` is a function
of the demand and of the noise that is handed in. The laboratory and the service call these two and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError, ReadingError
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import Noise, NoiseLaw
from murmurate.quantities import Demand, IntArray, Meters, Readings, Release, integers, refuse_where

_SILENT = -1


def gather(batches: Iterable[Readings], meters: Meters) -> Demand:
    """Sum what the meters of each zone report for one interval [Wh].

    A meter that reports twice counts once, with its largest value; a reading above `bound_wh` counts as the bound; a
    silent meter counts as `imputed_wh`. Each of the three is the same whatever the order and the batches.

    >>> meters = Meters.in_one_zone("harbour", bound_wh=[3000, 3000, 9000], imputed_wh=120)
    >>> late_first = [Readings.of(meter=[2], energy_wh=[10_000]), Readings.of(meter=[0, 0], energy_wh=[250, 250])]
    >>> gather(late_first, meters).of("harbour")
    9370
    """
    reading = np.full(len(meters), _SILENT, np.int64)
    for batch in batches:
        refuse_where(batch.meter >= len(meters), "meter", batch.meter, f"must be below {len(meters)}", ReadingError)
        np.maximum.at(reading, batch.meter, batch.energy_wh)
    reported = reading != _SILENT
    energy_wh = np.where(reported, np.minimum(reading, meters.bound_wh), meters.imputed_wh)
    return Demand(
        zones=meters.zones,
        energy_wh=_sum_by_zone(energy_wh, meters),
        reported=_sum_by_zone(reported.astype(np.int64), meters),
        imputed=_sum_by_zone((~reported).astype(np.int64), meters),
    )


def _sum_by_zone(values: IntArray, meters: Meters) -> IntArray:
    """Integer sums, exact in any order; a float never touches them."""
    total = np.zeros(len(meters.zones), np.int64)
    if len(total) == 1:
        total += values.sum()
    else:
        np.add.at(total, meters.zone, values)
    return total


def protect(
    demand_wh: Any,
    *,
    scale_wh: Any,
    curve: RateCurve,
    noise: Noise,
    law: NoiseLaw = NoiseLaw.LAPLACE,
    inelastic_wh: Any = 0,
) -> Release:
    """Add one draw of noise to each demand [Wh] and price the result.

    r-hat = curve(Z + K), K noise of scale `scale_wh` (paper, Algorithm 1, lines 10-12: Laplace). For the affine rate
    it has the law of alpha Z + beta + alpha K. Pricing comes after the noise and is free: ticks, floor, cap and the
    public `inelastic_wh` cost no privacy.

    >>> from murmurate.privacy.noise import RehearsalNoise
    >>> curve = RateCurve.affine(alpha=1, beta="62.5", tick="0.001")
    >>> release = protect(np.array([177_250]), scale_wh=np.array([2000.0]), curve=curve, noise=RehearsalNoise(1))
    >>> release.rehearsal, release.price_ticks.tolist() == curve.price_ticks(release.noisy_wh).tolist()
    (True, True)
    """
    demand = integers(demand_wh, "demand_wh", ReadingError)
    scales = np.asarray(scale_wh, np.float64)
    if scales.shape not in {(), (1,), demand.shape}:
        raise PrivacyError(
            "scale_wh", f"shaped {scales.shape}", f"must be one scale, or one per demand: {demand.shape}"
        )
    scales = np.broadcast_to(scales, demand.shape)
    noisy_wh = demand + noise.draw(law, scales)
    return Release(
        price_ticks=curve.price_ticks(noisy_wh, inelastic_wh),
        tick=curve.tick,
        noisy_wh=noisy_wh,
        scale_wh=scales,
        rehearsal=noise.rehearsal,
    )
