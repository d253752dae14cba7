"""How the prices of a plan are predicted, from public numbers alone: its gains, and what a promise costs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.noise_search import gaussian_deviation
from murmurate.planning.privacy_cost import NoiseSchedule
from murmurate.planning.zone import HouseholdKind, PredictedDemand, Zone
from murmurate.prediction.corrections import DAY_TYPE_WEIGHTS, PlannedCorrections, plan_corrections
from murmurate.prediction.forecast import CalendarForecast
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.zone_prediction import PredictionModel, PriceResponse, ZonePrediction
from murmurate.privacy.noise import MIN_SCALE_WH, NoiseDistribution
from murmurate.privacy.promise import WindowPromise, parse_promise
from murmurate.units import FloatArray

A_DAY = "any 24 h: epsilon 1, delta 1e-6"
A_YEAR = "any 365 d: epsilon 4, delta 1e-6"
A_WEAKER_YEAR = "any 365 d: epsilon 8, delta 1e-6"
MIN_HOMES_FOR_A_YEAR = 10_000  # there a year costs about half a point of error more than a day
_LEAD = 2  # intervals to the one that pays, for the error that is stated; the public log says which lead is in force
_NO_RELEASE = 1e18  # times as much variance: nothing is learnt


def make_zone_prediction(zone: Zone, predicted: PredictedDemand, noise: NoiseSchedule) -> ZonePrediction:
    """Return how the prices of a zone are predicted under this noise.

    The range of readings is that of most households. Other kinds are part of the demand and of its corrections.
    """
    sensed = find_sensed_kind(zone)
    public = predicted.forecast.with_range(sensed.bound_wh, sensed.export_bound_wh)
    public = type(public).from_document(public.to_document())  # the numbers that stand in the plan
    model, scale = PredictionModel.of(public, predicted.series), _scale(zone, predicted)
    made = _plan_corrections(zone, public, model.clipped, scale, float(noise.variance.mean()))
    if not predicted.read_meters:
        made = PlannedCorrections(np.zeros_like(made.gain), _forecast_error(zone, public, scale, noise), 0.0)
    return ZonePrediction(
        model=model,
        scale=scale,
        gain=made.gain,
        surprise_square=made.surprise_square,
        price_response=_price_response(zone, predicted, scale * float(usual_day(public.demand).mean())),
        predicted_error=made.error,
        read_meters=predicted.read_meters,
    )


def _plan_corrections(
    zone: Zone, public: PublicForecast, clipped: CalendarForecast, scale: float, noise_variance: float
) -> PlannedCorrections:
    return plan_corrections(
        public.demand,
        clipped,
        public.spread,
        households=zone.household_count,
        scale=scale,
        noise_variance=noise_variance,
        lead=_LEAD,
    )


def _forecast_error(zone: Zone, public: PublicForecast, scale: float, noise: NoiseSchedule) -> float:
    """Return the error of the forecast alone: no release corrects it, and no reading is clipped."""
    variance = float(noise.variance.mean()) * _NO_RELEASE
    return _plan_corrections(zone, public, public.demand, scale, variance).error


class PredictionErrors(NamedTuple):
    """Rms errors of the demand that is priced, relative to the mean use, as a plan predicts them."""

    forecast: float  # no release is used
    private: float  # the releases of the plan
    exact: float  # exact demand


def forecast_errors(zone: Zone, prediction: ZonePrediction, noise: NoiseSchedule) -> PredictionErrors:
    """Return the errors with the releases of a plan, with a forecast that reads no meter, and with exact data."""
    public, scale = prediction.model.public, prediction.scale
    exact = _plan_corrections(zone, public, public.demand, scale, 0.0).error
    return PredictionErrors(_forecast_error(zone, public, scale, noise), prediction.predicted_error, exact)


def check_stated_prediction(zone: Zone, stated: ZonePrediction | None) -> None:
    """Raise PrivacyError unless a plan predicts what its zone file says. Gains are taken as they stand in the plan.

    Which gains are best promises nothing about privacy, and takes long for many plans; the costs are proven again.
    """
    predicted = zone.predicted
    if predicted is None or stated is None:
        if (predicted is None) != (stated is None):
            raise PrivacyError("prediction", "not asked for", "must be there where the zone file names a forecast")
        return
    scale = _scale(zone, predicted)
    usual_wh = scale * float(usual_day(predicted.forecast.demand).mean())
    stated_terms = (stated.scale, stated.model.series, stated.read_meters, stated.price_response)
    response = _price_response(zone, predicted, usual_wh)
    same = stated_terms == (scale, predicted.series, predicted.read_meters, response)
    sensed, public = find_sensed_kind(zone), stated.model.public
    same &= np.allclose(public.demand.mean_wh, predicted.forecast.demand.mean_wh, rtol=1e-6, atol=0.01)
    same &= all(each.bound_wh == sensed.bound_wh for each in public.above)
    same &= all(each.export_bound_wh == sensed.export_bound_wh for each in public.below)
    if not same:
        raise PrivacyError("prediction", "not that of the zone file", "must be made again by murmurate plan")


def _scale(zone: Zone, predicted: PredictedDemand) -> float:
    return round(zone.household_count * predicted.level, 7)


def find_sensed_kind(zone: Zone) -> HouseholdKind:
    """Return the kind of most households: its range decides what a release shows."""
    return max(zone.kinds, key=lambda kind: kind.count)


def usual_day(forecast: CalendarForecast) -> FloatArray:
    """Return the expected demand of a mean day of the year [Wh, slot]."""
    return np.asarray(np.average(forecast.mean_wh.mean(axis=0), axis=0, weights=DAY_TYPE_WEIGHTS))


def expected_day(zone: Zone, prediction: ZonePrediction) -> FloatArray:
    """Return the demand of a mean day of the year [Wh, interval of the UTC day]."""
    shift = zone.clock.slot_shifts(zone.intervals_per_day)[0]
    return np.roll(prediction.scale * usual_day(prediction.model.public.demand), -shift)


def _price_response(zone: Zone, predicted: PredictedDemand, usual_wh: float) -> PriceResponse:
    if predicted.reference_price is None:
        reference = int(zone.curve.price_ticks(round(usual_wh)))
    else:
        reference = round(predicted.reference_price / zone.curve.tick)
    return PriceResponse(predicted.elasticity, max(reference, 1))


def recommended_promise(homes: int) -> str:
    """Return the promise to begin with, by the number of homes whose releases a price is made from.

    A year bounds what prices tell about habits and holidays, without any model; a day says little about either.

    >>> recommended_promise(800), recommended_promise(12_000)
    ('any 24 h: epsilon 1, delta 1e-6', 'any 365 d: epsilon 4, delta 1e-6')
    """
    return A_YEAR if homes >= MIN_HOMES_FOR_A_YEAR else A_DAY


def compare_promises(zone: Zone) -> dict[str, float]:
    """Return the predicted error of the priced demand under a year's window and a day's, relative to the demand.

    Each is kept by Gaussian noise alone. Its deviation is that of noise on the line, near enough for an error; a plan
    searches and proves its own. Where no meter is read, it is the error that reading them would give. Empty for a zone
    that does not predict.
    """
    if zone.predicted is None:
        return {}
    predicted, errors = replace(zone.predicted, read_meters=True), {}
    for text in (A_YEAR, A_WEAKER_YEAR, A_DAY):
        promise = cast("WindowPromise", parse_promise(text, zone.intervals_per_day))
        ranges_wh = np.array([max(kind.range_wh for kind in kinds) for kinds in zone.protected_kinds], np.float64)
        scale_wh = np.maximum(gaussian_deviation(promise) * ranges_wh, MIN_SCALE_WH)
        noise = NoiseSchedule.from_scales(NoiseDistribution.GAUSSIAN, scale_wh)
        errors[text] = make_zone_prediction(zone, predicted, noise).predicted_error
    return errors
