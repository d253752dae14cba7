"""The rules of predicted prices, written once more: one zone, one number after the other.

The order of products and sums is that of the documentation of the public log, so the results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.structural_filter import demand_loadings
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.units import FloatArray

STATES = 22
UNIT = 1e-9
NO_PRICE = -(2**63)
COMMON = 10  # the first states are those of the region
COMMON_HEAT, HEAT, OWN, SENSORS = 9, 18, 19, (20, 21)


class Shown(NamedTuple):
    """What the release of a zone, or of several, shows: households, Wh above the forecast, Wh of the forecast."""

    homes: float = 0.0
    residual_wh: float = 0.0
    weight_wh: float = 0.0

    def rounded(self) -> tuple[int, ...]:
        return tuple(round(number) for number in self)


def show(zone: ZonePrediction, paid: int, noisy_wh: int | None, interval: int) -> Shown:
    """Return what a zone adds to the pool of its tile; `noisy_wh` is None where nothing was measured."""
    if noisy_wh is None:
        return Shown()
    when = zone.model.locate(interval)
    expected = float(zone.model.sensor.forecast.demand_wh(when)[0]) * zone.scale
    factor = 1.0 if paid == NO_PRICE else answer(zone, paid)
    return Shown(
        zone.scale, noisy_wh / factor - expected, float(zone.model.sensor.response[int(when.slot[0])]) * expected
    )


def next_states(
    zone: ZonePrediction, before: Sequence[int], shown: Shown, pool: Sequence[int], interval: int
) -> tuple[int, ...]:
    """Return the states after an interval. `pool` is what all zones of the tile show."""
    model = zone.model
    when = model.locate(interval)
    slot, month = int(when.slot[0]), int(when.month[0])
    states = [number * UNIT * float(keep) for number, keep in zip(before, model.keep, strict=True)]
    if shown.homes:
        loading = _loading(zone, slot, month)
        loading[OWN] = float(model.own_loading[slot])
        for sensor in SENSORS:
            loading[sensor] = 1.0
        surprise = shown.residual_wh / shown.weight_wh - _weigh(states, loading)
        states = _correct(zone, zone.zone_gain, states, slot, month, surprise)
    homes, residual_wh, weight_wh = (every - own for every, own in zip(pool, shown.rounded(), strict=True))
    if zone.pool_homes and homes >= zone.pool_homes / 2:
        surprise = residual_wh / max(weight_wh, 1) - _weigh(states[:COMMON], _loading(zone, slot, month)[:COMMON])
        states = _correct(zone, zone.pool_gain, states, slot, month, surprise)
    return tuple(round(state / UNIT) for state in states)


def _correct(
    zone: ZonePrediction, gains: FloatArray, states: Sequence[float], slot: int, month: int, surprise: float
) -> list[float]:
    gain = [float(number) for number in gains[slot * 24 // zone.model.slots_per_day]]
    for heat in (COMMON_HEAT, HEAT):
        gain[heat] *= _loading(zone, slot, month)[heat]
    return [min(max(state + by * surprise, -2.0), 2.0) for state, by in zip(states, gain, strict=True)]


def price_of(terms: ReleaseTerms, states: Sequence[int], interval: int, lead: int) -> int:
    """Return the price [ticks] that is paid `lead` intervals later."""
    zone = terms.prediction
    assert zone is not None
    when = zone.model.locate(interval + lead)
    ahead = [number * UNIT for number in states]
    for _ in range(lead):
        ahead = [state * float(keep) for state, keep in zip(ahead, zone.model.keep, strict=True)]
    total = 1.0 + _weigh(ahead, _loading(zone, int(when.slot[0]), int(when.month[0])))
    relative = min(max(total, 0.05), 3.0)
    demand_wh = float(zone.model.public.demand.demand_wh(when)[0]) * zone.scale * relative
    low, high = (int(terms.curve.price_ticks(round(demand_wh * answer(zone, price)))) for price in (2**40, 0))
    while low < high:
        middle = (low + high) // 2
        if int(terms.curve.price_ticks(round(demand_wh * answer(zone, middle)))) <= middle:
            high = middle
        else:
            low = middle + 1
    return high


def answer(zone: ZonePrediction, price_ticks: int) -> float:
    """Return demand at a price over demand at the reference price."""
    elasticity, reference = zone.price_response.elasticity, float(zone.price_response.reference_ticks)
    share = elasticity / (1 - elasticity)
    return (1 + share) / (1 + share * (max(float(price_ticks), 0.0) / reference))


def _loading(zone: ZonePrediction, slot: int, month: int) -> list[float]:
    cold_k = float(zone.model.public.demand.usual_cold_k[month])
    return [float(number) for number in demand_loadings(slot, zone.model.slots_per_day, cold_k)]


def _weigh(states: Sequence[float], loading: Sequence[float]) -> float:
    total = states[0] * loading[0]
    for number in range(1, len(states)):
        total = total + states[number] * loading[number]
    return total
