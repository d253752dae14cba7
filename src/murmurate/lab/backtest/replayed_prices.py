"""The prices that a plan would have made from past demand: each from the releases up to `lead` intervals before.

The same functions as in the service predict them. Several draws of noise are replayed at once, and beside them the
same plan without noise and without releases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.zone_prediction import (
    PooledDeviation,
    ZonePrediction,
    advance_states,
    measure_zones,
    predict_zones,
)
from murmurate.privacy.noise import NoiseDistribution, SeededNoise
from murmurate.units import FloatArray, IntArray

_FORECAST, _EXACT, _PRIVATE = 0, 1, slice(2, None)  # columns


class ReplayedPrices(NamedTuple):
    """Prices of each interval [ticks]."""

    forecast: IntArray  # [interval] from public numbers alone
    exact: IntArray  # [interval] from releases without noise
    private: IntArray  # [interval, draw] from releases with noise


def draw_noise(terms: ReleaseTerms, first_interval: int, intervals: int, draws: int, seed: int) -> IntArray:
    """Return the noise of a plan for a simulation [Wh: interval, draw]."""
    slot = np.array([terms.slot_of_day(first_interval + t) for t in range(intervals)])
    shape = (intervals, draws)
    scale_wh = np.broadcast_to(terms.scale_wh[slot, None], shape)
    huber = terms.distribution is NoiseDistribution.HUBER
    core_wh = np.broadcast_to(terms.core_wh[slot, None], shape) if huber else None
    return SeededNoise(seed).draw(terms.distribution, scale_wh, core_wh)


def replay_prices(
    terms: ReleaseTerms,
    first_interval: int,
    demand_wh: IntArray,
    noise_wh: IntArray,
    *,
    lead: int,
    progress: Callable[[int], None] = lambda _: None,
) -> ReplayedPrices:
    """Return the prices under a plan, from past demand [interval] and noise [interval, draw].

    A price paid in an interval is made from releases up to `lead` intervals before it. The demand is taken as that at
    the plan's reference price. `progress` is called with the number of intervals since the call before.
    """
    released = np.concatenate([demand_wh[:, None] * np.array([0, 1]), demand_wh[:, None] + noise_wh], axis=1)
    if terms.prediction is None:
        prices = _echo_prices(terms, first_interval, released, lead)
        progress(len(demand_wh))
    else:
        expected_wh = _predict_demand(terms.prediction, first_interval, released, lead, progress)
        met = terms.prediction.price_response.meet(terms.curve, expected_wh.ravel())
        prices = met.reshape(expected_wh.shape)
    return ReplayedPrices(prices[:, _FORECAST], prices[:, _EXACT], prices[:, _PRIVATE])


def _echo_prices(terms: ReleaseTerms, first_interval: int, released_wh: IntArray, lead: int) -> IntArray:
    """Prices of a plan without prediction: the last release alone, and the forecast where there is none."""
    slot = np.array([terms.slot_of_day(first_interval + t) for t in range(len(released_wh))])
    prices = np.repeat(terms.forecast_ticks[slot, None], released_wh.shape[1], axis=1)
    made = terms.curve.price_ticks(released_wh[: len(released_wh) - lead, _EXACT:])
    prices[lead:, _EXACT:] = made
    return prices


def _predict_demand(
    zone: ZonePrediction, first_interval: int, released_wh: IntArray, lead: int, progress: Callable[[int], None]
) -> FloatArray:
    """The demand that prices are made for [interval, column]. The first column uses no release."""
    columns = released_wh.shape[1]
    zones, states = [zone] * columns, np.zeros((columns, len(zone.model.keep)), np.int64)
    usable, as_it_is = np.arange(columns) != _FORECAST, np.ones(columns)
    alone = PooledDeviation(np.zeros(columns), np.zeros(columns, np.bool_))
    expected = np.zeros(released_wh.shape)
    for t in range(min(lead, len(expected))):  # before the first release takes effect
        expected[t] = predict_zones(zones, states, first_interval + t, 0)
    for t in range(len(expected) - lead):
        interval = first_interval + t
        shown = measure_zones(zones, interval, released_wh[t], usable, as_it_is)
        states = advance_states(zones, states, interval, shown, alone)
        expected[t + lead] = predict_zones(zones, states, interval, lead)
        progress(1)
    progress(min(lead, len(expected)))
    return expected
