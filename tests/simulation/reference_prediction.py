"""The rules of predicted prices, written once more: one zone, one number after the other.

The order of products and sums is that of the documentation of the public log, so the results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.zone_prediction import ZonePrediction

CORRECTIONS, SQUARE, STATES = 27, 27, 28
LEVEL, FAST, SUN, HOUR = 0, 1, 2, 3
UNIT = 1e-9
NO_PRICE = -(2**63)
SQUARE_DAYS = 28

Inputs = Mapping[str, Mapping[str, int]]  # as they stand in a header


class Expected(NamedTuple):
    """What is expected of a household [Wh], and the part of it that each correction moves, relative to the mean use."""

    use: float
    sun: float
    deviation: float
    loading: list[float]


def expect(zone: ZonePrediction, interval: int, inputs: Inputs, moment: str, *, clipped: bool) -> Expected:
    """Return what is expected of a household, or of its reading within its range."""
    model, forecast = zone.model, zone.model.public.demand
    when = model.locate(interval)
    month, day_type, slot = int(when.month[0]), int(when.day_type[0]), int(when.slot[0])
    hour = slot * 24 // model.slots_per_day

    def stated(series: str) -> float | None:
        value = inputs.get(series, {}).get(moment)
        return None if value is None else value / 1000

    temperature, sunshine = stated(model.series.temperature), stated(model.series.irradiance)
    cold = float(forecast.usual_cold_k[month]) if temperature is None else max(15.0 - temperature, 0.0)
    bright = float(forecast.usual_irradiance[month, hour]) if sunshine is None else max(sunshine, 0.0)
    cut = float(model.public.above[0].cut_wh[hour]) if clipped and model.public.above else 0.0
    share = model.public.below[0].sun_share if clipped and model.public.below else 1.0
    use = float(forecast.day_wh[day_type, slot]) - cut + float(forecast.month_wh[month, hour])
    use = use + float(forecast.heat_wh_per_k[hour]) * cold
    use = use + forecast.dark_wh * min(max((110.0 - bright) / 100.0, 0.0), 1.0)
    use = max(use, forecast.least_wh)
    sun = forecast.sun_wh * share * (bright / 300.0)
    loading = [0.0] * CORRECTIONS
    loading[LEVEL] = loading[FAST] = loading[HOUR + hour] = use / model.mean_wh
    loading[SUN] = sun / model.mean_wh
    deviation = (stated(model.series.deviation) or 0.0) * model.mean_wh * (model.shown if clipped else 1.0)
    return Expected(use, sun, deviation, loading)


def fade(zone: ZonePrediction, before: Sequence[int]) -> list[float]:
    """Return states after an interval without a measurement: the running square stays."""
    corrections = zip(before[:CORRECTIONS], zone.model.keep, strict=True)
    return [*(number * UNIT * float(keep) for number, keep in corrections), before[SQUARE] * UNIT]


def expect_sum(zone: ZonePrediction, before: Sequence[int], paid: int, interval: int, inputs: Inputs) -> float:
    """Return the clipped sum that a release should show at the price that was paid [Wh]."""
    seen = expect(zone, interval, inputs, "now", clipped=True)
    corrected = zone.model.mean_wh * _weigh(fade(zone, before), seen.loading)
    expected = (seen.use + seen.sun + seen.deviation + corrected) * zone.scale
    return expected if paid == NO_PRICE or expected < 0 else expected * answer(zone, paid)


def next_states(
    zone: ZonePrediction, before: Sequence[int], noisy_wh: int | None, paid: int, interval: int, inputs: Inputs
) -> tuple[int, ...]:
    """Return the states after an interval; `noisy_wh` is None where nothing was measured."""
    states = fade(zone, before)
    if noisy_wh is not None:
        seen = expect(zone, interval, inputs, "now", clipped=True)
        expected = expect_sum(zone, before, NO_PRICE, interval, inputs)
        factor = 1.0 if paid == NO_PRICE or expected < 0 else answer(zone, paid)
        surprise = (noisy_wh / factor - expected) / (zone.scale * zone.model.mean_wh)
        square = surprise * surprise - zone.surprise_square - states[SQUARE]
        for number, part in enumerate(seen.loading):
            states[number] += float(zone.gain[number]) * part * surprise
        states[SQUARE] += square / (SQUARE_DAYS * zone.model.slots_per_day)
        states = [min(max(state, -2.0), 2.0) for state in states]
    return tuple(round(state / UNIT) for state in states)


def predict(zone: ZonePrediction, states: Sequence[int], interval: int, lead: int, inputs: Inputs) -> float:
    """Return the demand of the interval that pays [Wh], at the reference price."""
    model, ahead = zone.model, [number * UNIT for number in states[:CORRECTIONS]]
    for _ in range(lead):
        ahead = [state * float(keep) for state, keep in zip(ahead, model.keep, strict=True)]
    expected = expect(zone, interval + lead, inputs, "ahead", clipped=False)
    of_use = [0.0 if number == SUN else part for number, part in enumerate(expected.loading)]
    use = expected.use + expected.deviation + model.mean_wh * _weigh(ahead, of_use)
    demand = (max(use, 0.05 * expected.use) + expected.sun * (1.0 + ahead[SUN])) * zone.scale
    return min(max(demand, -1e15), 1e15)


def price_of(terms: ReleaseTerms, states: Sequence[int], interval: int, lead: int, inputs: Inputs) -> int:
    """Return the price [ticks] that is paid `lead` intervals later."""
    zone = terms.prediction
    assert zone is not None
    demand_wh = predict(zone, states, interval, lead, inputs)

    def curve_at(price_ticks: int) -> int:
        return int(terms.curve.price_ticks(round(demand_wh * (answer(zone, price_ticks) if demand_wh >= 0 else 1.0))))

    low, high = curve_at(2**40), curve_at(0)
    while low < high:
        middle = (low + high) // 2
        if curve_at(middle) <= middle:
            high = middle
        else:
            low = middle + 1
    return high


def answer(zone: ZonePrediction, price_ticks: int) -> float:
    """Return demand at a price over demand at the reference price."""
    elasticity, reference = zone.price_response.elasticity, float(zone.price_response.reference_ticks)
    share = elasticity / (1 - elasticity)
    return (1 + share) / (1 + share * (max(float(price_ticks), 0.0) / reference))


def _weigh(states: Sequence[float], loading: Sequence[float]) -> float:
    total = states[0] * loading[0]
    for number in range(1, CORRECTIONS):
        total = total + states[number] * loading[number]
    return total
