"""Zones that are predicted as the service predicts them, many at once and in floating point."""

from __future__ import annotations

import numpy as np

from murmurate.planning.bound_choice import TriedBound
from murmurate.prediction.corrections import (
    CORRECTIONS,
    MIN_USE,
    STATES,
    SUN,
    correct,
    fading,
    make_loadings,
    plan_corrections,
    weigh,
)
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.units import FloatArray

QUORUM = 0.9  # share of households that must report, or nothing is released: the default of the service


class CorrectedZones:
    """A public forecast of zones of one size, and corrections by their releases.

    Readings count from minus the bound to the bound. Use is without what the sun adds, as in `CalendarForecast`.
    """

    def __init__(
        self, public: PublicForecast, bound_wh: int, *, homes: int, noise_sd_wh: float, lead: int, scale: FloatArray
    ) -> None:
        """`scale` is how many households of the forecast each zone is like [zone]; `lead` is in intervals."""
        known = public.with_range(bound_wh, bound_wh)
        clipped, self._lead, self._homes, self._bound_wh = known.clip_demand(), lead, homes, bound_wh
        self._plan = plan_corrections(
            known.demand,
            clipped,
            known.spread,
            households=homes,
            scale=homes,
            noise_variance=noise_sd_wh**2,
            lead=lead,
        )
        self._mean_wh, self._keep = known.mean_use_wh(), fading(known.demand.slots_per_day)[:, None]
        self._shown, self._slots_per_day = known.mean_use_wh(clipped) / self._mean_wh, known.demand.slots_per_day
        self._scale, self._states = scale, np.zeros((STATES, len(scale)))
        self.tried = TriedBound(bound_wh, noise_sd_wh, self._plan.error)

    def observe(
        self,
        use_wh: float,
        hour: int,
        sums_wh: FloatArray,
        deviation: float = 0.0,
        *,
        sun_wh: float = 0.0,
        paid: FloatArray | float = 1.0,
        silent: FloatArray | float = 0,
    ) -> None:
        """Take in releases [zone]. `use_wh` and `sun_wh` are what was expected of a clipped reading.

        `paid` is what the price did to the demand [zone], and `silent` how many households the sums lack [zone]: each
        of them counts as what is expected of it.
        """
        self._states[:CORRECTIONS] *= self._keep
        loading = make_loadings(use_wh, sun_wh, self._mean_wh, hour)
        expected = use_wh + sun_wh + self._mean_wh * (self._shown * deviation + weigh(self._states, loading))
        each_wh = np.minimum(np.maximum(expected * self._scale / self._homes, -self._bound_wh), self._bound_wh)
        found = (sums_wh + silent * each_wh) / np.where(expected < 0, 1.0, paid)
        surprise, square = (found / self._scale - expected) / self._mean_wh, self._plan.surprise_square
        gain = self._plan.gain[:, None]
        after = correct(self._states, loading, gain, surprise, np.asarray(square), self._slots_per_day)
        self._states = np.where(self._homes - np.asarray(silent) >= QUORUM * self._homes, after, self._states)

    def predict(self, use_wh: float, hour: int, deviation: float = 0.0, *, sun_wh: float = 0.0) -> FloatArray:
        """Return the demand `lead` intervals later [Wh, zone]. `use_wh`, `sun_wh`: expected of a household then."""
        faded = self._states[:CORRECTIONS] * self._keep**self._lead
        loading = make_loadings(use_wh, 0.0, self._mean_wh, hour)
        found = use_wh + self._mean_wh * (deviation + weigh(faded, loading))
        return np.asarray(self._scale * (np.maximum(found, MIN_USE * use_wh) + sun_wh * (1 + faded[SUN])))
