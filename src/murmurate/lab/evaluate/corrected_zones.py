"""Zones that are predicted as the service predicts them, many at once and in floating point."""

from __future__ import annotations

import numpy as np

from murmurate.planning.bound_choice import TriedBound
from murmurate.prediction.corrections import (
    CORRECTIONS,
    MIN_USE,
    STATES,
    correct,
    fading,
    make_loadings,
    plan_corrections,
    weigh,
)
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.units import FloatArray


class CorrectedZones:
    """A public forecast of zones of one size, and corrections by their releases. The sun adds nothing here."""

    def __init__(
        self, public: PublicForecast, bound_wh: int, *, homes: int, noise_sd_wh: float, lead: int, scale: FloatArray
    ) -> None:
        """`scale` is how many households of the forecast each zone is like [zone]; `lead` is in intervals."""
        known = public.with_range(bound_wh)
        clipped, self._lead = known.clip_demand(), lead
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

    def observe(self, reading_wh: float, hour: int, sums_wh: FloatArray, deviation: float = 0.0) -> None:
        """Take in releases [zone] at the reference price; `reading_wh` is what was expected of a clipped reading."""
        self._states[:CORRECTIONS] *= self._keep
        loading = make_loadings(reading_wh, 0.0, self._mean_wh, hour)
        expected = reading_wh + self._mean_wh * (self._shown * deviation + weigh(self._states, loading))
        surprise, square = (sums_wh / self._scale - expected) / self._mean_wh, self._plan.surprise_square
        gain = self._plan.gain[:, None]
        self._states = correct(self._states, loading, gain, surprise, np.asarray(square), self._slots_per_day)

    def predict(self, use_wh: float, hour: int, deviation: float = 0.0) -> FloatArray:
        """Return the demand `lead` intervals later [Wh, zone]; `use_wh` is what is expected of a household then."""
        faded = self._states[:CORRECTIONS] * self._keep**self._lead
        loading = make_loadings(use_wh, 0.0, self._mean_wh, hour)
        found = use_wh + self._mean_wh * (deviation + weigh(faded, loading))
        return np.asarray(self._scale * np.maximum(found, MIN_USE * use_wh))
