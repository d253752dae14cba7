"""How far the noise moves a price: where the price without it lies, in 95 of 100 intervals.

A measured price is f(Y) with Y = Z + K, f the tariff's curve and K the noise. With |K| <= h in 95 % of all draws, f(Z)
is between f(Y - h) and f(Y + h). Pr[|K| > h] is about e^(-h/b) for Laplace noise of scale b, so h = b ln 20; for
Gaussian noise h = 1.96 b; for Huber noise it follows from the area of its core and its tails. It is a function of what
is published, and tells nothing more.

A predicted price is f(D) with D a weighted sum of all draws so far, by the gains of the plan. Their variances add up,
and h = 1.96 standard deviations of that sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, pi, sqrt
from statistics import NormalDist

import numpy as np

from murmurate.planning.privacy_cost import NoiseSchedule
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.corrections import CORRECTIONS
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution
from murmurate.service.log_reader.zone_view import Price
from murmurate.units import FloatArray, IntArray

_TAIL_PROBABILITY = 0.05
_NORMAL = NormalDist()
_MAX_DEMAND_WH = 2**40  # no zone draws more in an interval
_Step = tuple[int, FloatArray, FloatArray, float, FloatArray]  # interval that pays, loading, gain, variance, weights


def half_width_wh(distribution: NoiseDistribution, scale_wh: float, core_wh: int = 0) -> int:
    """What the noise stays within in 95 % of all draws [Wh].

    >>> huber = half_width_wh(NoiseDistribution.HUBER, 1000.0, 2000)
    >>> half_width_wh(NoiseDistribution.LAPLACE, 1000.0), half_width_wh(NoiseDistribution.GAUSSIAN, 1000.0), huber
    (2996, 1960, 3374)
    """
    if distribution is NoiseDistribution.GAUSSIAN:
        return round(-_NORMAL.inv_cdf(_TAIL_PROBABILITY / 2) * scale_wh)
    deviation = sqrt(scale_wh * core_wh)
    tails = 2 * scale_wh * exp(-core_wh / (2 * scale_wh))
    core = deviation * sqrt(2 * pi) * (2 * _NORMAL.cdf(core_wh / deviation) - 1) if core_wh else 0.0
    beyond = tails / (tails + core)
    if beyond >= _TAIL_PROBABILITY:
        return round(core_wh + scale_wh * log(beyond / _TAIL_PROBABILITY))
    within = (_TAIL_PROBABILITY - beyond) * (tails + core) / (2 * deviation * sqrt(2 * pi))
    return round(deviation * _NORMAL.inv_cdf(_NORMAL.cdf(core_wh / deviation) - within))


def noise_band(
    terms: ReleaseTerms, prices: Sequence[Price], *, lead: int, since: int
) -> dict[int, tuple[float, float]]:
    """Lower and upper edge [currency/kWh] by interval, of each measured price that the tariff of `terms` has made.

    `lead` is the number of intervals from a measurement to its price, `since` the first interval under these terms.
    """
    curve, prediction = terms.curve, terms.prediction
    own = [price for price in prices if price.scale_wh is not None and price.tick == curve.tick]
    if not own or curve.falls:
        return {}
    paid, ticks = [price.interval for price in own], np.array([price.ticks or 0 for price in own], np.int64)
    least_wh, next_wh = _min_demand_wh(curve, np.stack([ticks, ticks + 1]))
    if prediction is None:
        half_widths = [half_width_wh(terms.distribution, price.scale_wh or 0.0, price.core_wh) for price in own]
        reach = np.array(half_widths, np.int64)
        low, high = curve.price_ticks(least_wh - reach), curve.price_ticks(next_wh - 1 + reach)
    else:  # of demands at the reference price, each of which meets one price
        sd_wh = predicted_noise_sd_wh(terms, prediction, paid[0], paid[-1], lead=lead, since=since)
        spread = -_NORMAL.inv_cdf(_TAIL_PROBABILITY / 2) * np.array([sd_wh[interval] for interval in paid])
        response = prediction.price_response
        factor = response.factor(ticks.astype(np.float64))
        low = response.meet(curve, least_wh / factor - spread)
        high = response.meet(curve, (next_wh - 1) / factor + spread)
    edges = zip(low.tolist(), high.tolist(), strict=True)
    return {n: (float(a * curve.tick), float(b * curve.tick)) for n, (a, b) in zip(paid, edges, strict=True)}


def predicted_noise_sd_wh(
    terms: ReleaseTerms, prediction: ZonePrediction, first: int, last: int, *, lead: int, since: int
) -> dict[int, float]:
    """Standard deviation [Wh] of what the noise adds to the predicted demand, by the interval that pays.

    The noise of the states has a covariance that follows the steps of `advance_states`: it fades with `keep`, each
    measurement takes its surprise out and puts its own draw in. The days before are taken to be like the last one.
    """
    model, slots = prediction.model, prediction.model.slots_per_day
    variance = NoiseSchedule.from_scales(terms.distribution, terms.scale_wh, terms.core_wh).variance
    begin, end = max(since, min(first, last - slots + 1) - lead), last - lead + 1
    steps = list[_Step]()
    for measured in range(begin, end):
        seen, later = model.expect_sum(measured).loading, model.expect_demand(measured + lead).loading
        usual_wh = prediction.scale * model.mean_wh
        draw = float(variance[terms.slot_of_day(measured)]) / usual_wh**2
        steps.append((measured + lead, seen, prediction.gain * seen, draw, usual_wh * later * model.keep**lead))
    day = steps[:slots]
    covariance, found = _repeat_day(day, model.keep, (begin - since) // slots), dict[int, float]()
    for paid, seen, gain, draw, ahead in steps:
        moved = _move(seen, gain, model.keep)
        covariance = moved @ covariance @ moved.T + draw * np.outer(gain, gain)
        found[paid] = sqrt(max(float(ahead @ covariance @ ahead), 0.0))
    return found


def _move(seen: FloatArray, gain: FloatArray, keep: FloatArray) -> FloatArray:
    """Return what a step does to the noise in the corrections: it fades, and a surprise takes some of it out."""
    return np.diag(keep) - np.outer(gain, seen * keep)


def _repeat_day(day: Sequence[_Step], keep: FloatArray, days: int) -> FloatArray:
    """Return the covariance of the noise in the corrections after a number of equal days.

    A day turns a covariance C into M C M' + N. Two of them are a day with M M and M N M' + N, and so on.
    """
    moved, added = np.eye(CORRECTIONS), np.zeros((CORRECTIONS, CORRECTIONS))
    for _, seen, gain, draw, _ in day:
        step = _move(seen, gain, keep)
        moved, added = step @ moved, step @ added @ step.T + draw * np.outer(gain, gain)
    covariance = np.zeros_like(added)
    while days:
        if days % 2:
            covariance = moved @ covariance @ moved.T + added
        moved, added, days = moved @ moved, moved @ added @ moved.T + added, days // 2
    return covariance


def _min_demand_wh(curve: RateCurve, ticks: IntArray) -> IntArray:
    """The smallest demand [Wh] whose price is at least `ticks`, within what a zone can draw."""
    low, high = np.full_like(ticks, -_MAX_DEMAND_WH), np.full_like(ticks, _MAX_DEMAND_WH)
    while (low < high).any():
        middle = (low + high) // 2
        enough = curve.price_ticks(middle) >= ticks
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return low
