"""Public knowledge of similar households before the first release, as a file that a plan is made with.

A forecast of one household, how far it was off on weeks that it had not seen, how deviations last, and how sums of
clipped readings show them. All of it comes from public numbers, or from a consented sample with noise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.prediction.forecast import CalendarForecast
from murmurate.prediction.sensor import ClippedSensor
from murmurate.prediction.structural_filter import Volatility
from murmurate.units import FloatArray, parse_fraction

FORECAST_VERSION = 1
USUAL_COLD_K = (4.0, 12.0)  # of a mild day and a cold one, where no temperature is known
MAX_WH, MAX_COLD_K = 1e8, 100.0
_DIGITS = 3
_MAX_SENSORS_WITHOUT_SAMPLE = 2  # a forecast from a log has that of its plan and the one above
_ALLOWED = "must be a forecast written by murmurate forecast"


class ConsentedSample(NamedTuple):
    """The households whose readings a forecast was made from, with noise."""

    households: int
    epsilon: Fraction  # that each of them has spent, in all runs on the sample so far

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> ConsentedSample:
        """Return the sample in members of a forecast file. Raises PrivacyError, KeyError, TypeError or ValueError."""
        households, epsilon = int(document["households"]), parse_fraction(document["epsilon"], "epsilon", PrivacyError)
        if households < 1 or epsilon <= 0:
            allowed = "must have households, and the epsilon that each of them has spent"
            raise PrivacyError("sample", f"{households}, {epsilon}", allowed)
        return cls(households, epsilon)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicForecast:
    """A forecast of one household and what is known about its error. See `murmurate forecast`."""

    source: str  # where it comes from, for a person
    time_zone: str  # whose clocks the slots are read on
    holidays: tuple[int, ...]  # local days that count as Sundays, from 1970-01-01
    demand: CalendarForecast  # of one household
    error: float | None  # rms on weeks that the fit had not seen, relative; None: not measured
    volatility: Volatility
    sensors: tuple[ClippedSensor, ...]  # ascending bounds; the last one clips nothing
    cold_k: tuple[float, float] = USUAL_COLD_K  # of a mild day and a cold one
    sample: ConsentedSample | None = None  # None: no reading of a household was used

    def find_sensor(self, bound_wh: int) -> ClippedSensor:
        """Return the sensor of a bound. Above the largest known one nothing is clipped."""
        for sensor in self.sensors:
            if sensor.bound_wh == bound_wh:
                return sensor
        if bound_wh > self.sensors[-1].bound_wh:
            return replace(self.sensors[-1], bound_wh=bound_wh)
        known = ", ".join(str(sensor.bound_wh) for sensor in self.sensors)
        raise ModelError("bound_wh", bound_wh, f"must be one that the forecast knows ({known}), or larger than all")

    def with_sensor(self, bound_wh: int) -> PublicForecast:
        """The part that a zone with this bound needs."""
        return replace(self, sensors=(self.find_sensor(bound_wh),))

    def to_json(self) -> str:
        """Return the text of a forecast file."""
        return json.dumps(self.to_document(), sort_keys=True, indent=1, ensure_ascii=False) + "\n"

    def to_document(self) -> dict[str, Any]:
        """Return the members of a forecast file, rounded."""
        document = {
            "murmurate_forecast": FORECAST_VERSION,
            "source": self.source,
            "time_zone": self.time_zone,
            "holidays": list(self.holidays),
            "demand": forecast_document(self.demand),
            "error": None if self.error is None else round(self.error, 6),
            "volatility": _rounded([*self.volatility.common, self.volatility.own, self.volatility.own_hours], 6),
            "sensors": [
                {
                    "bound_wh": sensor.bound_wh,
                    "forecast": forecast_document(sensor.forecast),
                    "response": _rounded(sensor.response, 6),
                    "own": _rounded(sensor.own, 6),
                    "hidden_variance": _rounded(sensor.hidden_variance, _DIGITS),
                    "mismatch": _rounded(sensor.mismatch, 6),
                }
                for sensor in self.sensors
            ],
            "cold_k": _rounded(self.cold_k, _DIGITS),
        }
        if self.sample is not None:
            document["sample"] = {"households": self.sample.households, "epsilon": str(self.sample.epsilon)}
        return document

    @classmethod
    def from_json(cls, text: str) -> PublicForecast:
        """Read a forecast file. Raises ModelError if it is none, or if it holds exact numbers of a sample."""
        try:
            made = cls.from_document(json.loads(text))
        except ValueError:
            raise ModelError("forecast", "not JSON", _ALLOWED) from None
        if made.sample is None and len(made.sensors) > _MAX_SENSORS_WITHOUT_SAMPLE:
            allowed = "must be made again with murmurate forecast --sample --epsilon: its numbers have no noise"
            raise ModelError("forecast", "made from a sample without an epsilon", allowed)
        return made

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> PublicForecast:
        """Return the forecast in the members of a file. Raises ModelError if they are none."""
        try:
            if document["murmurate_forecast"] != FORECAST_VERSION:
                raise ModelError("forecast", f"of version {document['murmurate_forecast']}", _ALLOWED)
            fast, day, slow, own, own_hours = (float(number) for number in document["volatility"])
            error, (mild, cold), sample = document["error"], document["cold_k"], document.get("sample")
            made = cls(
                source=str(document["source"]),
                time_zone=str(document["time_zone"]),
                holidays=tuple(int(day) for day in document["holidays"]),
                demand=forecast_from_document(document["demand"]),
                error=None if error is None else float(error),
                volatility=Volatility((fast, day, slow), own, own_hours),
                sensors=tuple(_sensor_from_document(each) for each in document["sensors"]),
                cold_k=(float(mild), float(cold)),
                sample=None if sample is None else ConsentedSample.from_document(sample),
            )
        except (ValueError, KeyError, TypeError, ArithmeticError):
            raise ModelError("forecast", "unreadable", _ALLOWED) from None
        made._check()
        return made

    def _check(self) -> None:
        bounds = [sensor.bound_wh for sensor in self.sensors]
        numbers = [*self.volatility.common, self.volatility.own, self.volatility.own_hours, *self.cold_k]
        shapes = {sensor.response.shape for sensor in self.sensors}
        if not bounds or bounds != sorted(set(bounds)) or shapes != {(self.demand.slots_per_day,)}:
            raise ModelError("sensors", bounds, "must have rising bounds, and a number for each interval of the day")
        if not np.isfinite(numbers).all() or min(numbers) < 0 or self.volatility.own_hours <= 0:
            raise ModelError("volatility", numbers, "must be numbers of 0 or more")


def forecast_document(forecast: CalendarForecast) -> dict[str, Any]:
    """Return a forecast as members of a JSON document, rounded."""
    return {
        "day_wh": _rounded(forecast.day_wh, _DIGITS),
        "month_wh": _rounded(forecast.month_wh, _DIGITS),
        "heat_wh_per_k": _rounded(forecast.heat_wh_per_k, _DIGITS),
        "usual_cold_k": _rounded(forecast.usual_cold_k, _DIGITS),
        "least_wh": round(forecast.least_wh, _DIGITS),
    }


def forecast_from_document(document: dict[str, Any]) -> CalendarForecast:
    """Return the forecast in members of a JSON document. Raises ModelError, KeyError, TypeError or ValueError."""
    day, month, heat, cold = (
        np.array(document[name], np.float64) for name in ("day_wh", "month_wh", "heat_wh_per_k", "usual_cold_k")
    )
    least = float(document["least_wh"])
    small = all(bool((np.abs(part) <= MAX_WH).all()) for part in (day, month, heat * MAX_COLD_K))
    if not small or not ((cold >= 0) & (cold <= MAX_COLD_K)).all() or not 0 < least <= MAX_WH:
        raise ModelError("forecast", "too large", f"must have demand above 0 and at most {MAX_WH:g} Wh a household")
    return CalendarForecast(day, month, heat, cold, least)


def _sensor_from_document(document: dict[str, Any]) -> ClippedSensor:
    response, own, hidden = (np.array(document[name], np.float64) for name in ("response", "own", "hidden_variance"))
    if not ((response > 0) & (response <= 1.5) & np.isfinite(own) & (hidden >= 0)).all():
        raise ModelError("sensor", document["bound_wh"], "must have responses between 0 and 1.5, and variances")
    within, lasting = (float(number) for number in document["mismatch"])
    forecast = forecast_from_document(document["forecast"])
    return ClippedSensor(int(document["bound_wh"]), forecast, response, own, hidden, (within, lasting))


def _rounded(numbers: FloatArray | Sequence[float], digits: int) -> Any:
    return (np.round(np.asarray(numbers, np.float64), digits) + 0.0).tolist()
