"""Public knowledge of similar households before the first release, as a file that a plan is made with.

A forecast of one household, how far it was off on weeks that it had not seen, how far households are from their mean,
and how much of their use is outside some ranges. All of it comes from public numbers, or from a consented sample with
noise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.prediction.calendar import MONTHS
from murmurate.prediction.corrections import USUAL_SPREAD, Spread, UsualYear
from murmurate.prediction.forecast import HOURS, CalendarForecast
from murmurate.units import FloatArray, parse_fraction

FORECAST_VERSION = 2
SAMPLE_DELTA = Fraction(1, 10**6)  # that each run on a sample spends, with its epsilon
MAX_WH, MAX_COLD_K, MAX_IRRADIANCE = 1e8, 100.0, 2000.0
_DIGITS = 3
_ALLOWED = "must be a forecast written by murmurate forecast"


class ConsentedSample(NamedTuple):
    """The households whose readings a forecast was made from, with noise."""

    households: int
    epsilon: Fraction  # that each of them has spent, in all runs on the sample so far
    delta: Fraction = SAMPLE_DELTA  # likewise

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> ConsentedSample:
        """Return the sample in members of a forecast file. Raises PrivacyError, KeyError, TypeError or ValueError."""
        households, epsilon = int(document["households"]), parse_fraction(document["epsilon"], "epsilon", PrivacyError)
        delta = parse_fraction(document["delta"], "delta", PrivacyError)
        if households < 1 or epsilon <= 0 or not 0 < delta < 1:
            allowed = "must have households, and the epsilon and delta that each of them has spent"
            raise PrivacyError("sample", f"{households}, {epsilon}, {delta}", allowed)
        return cls(households, epsilon, delta)

    def to_document(self) -> dict[str, Any]:
        """Return the members of a forecast file."""
        return {"households": self.households, "epsilon": str(self.epsilon), "delta": f"{float(self.delta):.12g}"}


class CutAbove(NamedTuple):
    """What is cut off of readings above a bound: the mean of a household [Wh, hour]."""

    bound_wh: int
    cut_wh: FloatArray


class CutBelow(NamedTuple):
    """What readings that are cut off below minus a bound still show of the sun: a share of `sun_wh`."""

    export_bound_wh: int
    sun_share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicForecast:
    """A forecast of one household and what is known about its error. See `murmurate forecast`."""

    source: str  # where it comes from, for a person
    time_zone: str  # whose clocks the slots are read on
    holidays: tuple[int, ...]  # local days that count as Sundays, from 1970-01-01
    demand: CalendarForecast  # of one household
    error: float | None  # rms on weeks that the fit had not seen, relative; None: not measured
    spread: Spread = USUAL_SPREAD
    above: tuple[CutAbove, ...] = ()  # rising bounds, nothing is above the last one; empty: nothing is known
    below: tuple[CutBelow, ...] = ()  # likewise
    sample: ConsentedSample | None = None  # None: no reading of a household was used

    def with_range(self, bound_wh: int, export_bound_wh: int = 0) -> PublicForecast:
        """The part that a zone needs whose readings are between -export_bound_wh and bound_wh.

        Bounds between two known ones are taken by straight lines.
        """
        if not self.above:
            return self
        bounds = [each.bound_wh for each in self.above]
        if bound_wh < bounds[0]:
            raise ModelError("bound_wh", bound_wh, f"must be {bounds[0]} or more: below it the forecast knows nothing")
        by_hour = np.stack([each.cut_wh for each in self.above], axis=1)
        cut_wh = np.array([np.interp(bound_wh, bounds, each, right=0.0) for each in by_hour])
        exports, shares = zip(*self.below, strict=True) if self.below else ((0,), (1.0,))
        share = float(np.interp(export_bound_wh, exports, shares))
        return replace(self, above=(CutAbove(bound_wh, cut_wh),), below=(CutBelow(export_bound_wh, share),))

    def clip_demand(self) -> CalendarForecast:
        """Return the forecast of a reading within the range that this forecast knows."""
        if not self.above:
            return self.demand
        (above,), (below,) = self.above, self.below
        slots = self.demand.slots_per_day
        cut_wh = above.cut_wh[np.arange(slots) * HOURS // slots]
        return replace(self.demand, day_wh=self.demand.day_wh - cut_wh, sun_wh=self.demand.sun_wh * below.sun_share)

    def mean_use_wh(self, forecast: CalendarForecast | None = None) -> float:
        """Return the mean use of a household in a usual year [Wh], or that of another forecast."""
        return UsualYear.of(forecast or self.demand).mean_use_wh

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
            "spread": _rounded(self.spread, 6),
            "above": [{"bound_wh": each.bound_wh, "cut_wh": _rounded(each.cut_wh, _DIGITS)} for each in self.above],
            "below": [each._asdict() | {"sun_share": round(each.sun_share, 6)} for each in self.below],
        }
        if self.sample is not None:
            document["sample"] = self.sample.to_document()
        return document

    @classmethod
    def from_json(cls, text: str) -> PublicForecast:
        """Read a forecast file. Raises ModelError if it is none, or if it holds exact numbers of a sample."""
        try:
            made = cls.from_document(json.loads(text))
        except ValueError:
            raise ModelError("forecast", "not JSON", _ALLOWED) from None
        if made.sample is None and len(made.above) > 1:
            allowed = "must be made again with murmurate forecast --sample --epsilon: its numbers have no noise"
            raise ModelError("forecast", "made from a sample without an epsilon", allowed)
        return made

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> PublicForecast:
        """Return the forecast in the members of a file. Raises ModelError if they are none."""
        try:
            if document["murmurate_forecast"] != FORECAST_VERSION:
                raise ModelError("forecast", f"of version {document['murmurate_forecast']}", _ALLOWED)
            error, sample = document["error"], document.get("sample")
            made = cls(
                source=str(document["source"]),
                time_zone=str(document["time_zone"]),
                holidays=tuple(int(day) for day in document["holidays"]),
                demand=forecast_from_document(document["demand"]),
                error=None if error is None else float(error),
                spread=Spread(*(float(number) for number in document["spread"])),
                above=tuple(
                    CutAbove(int(each["bound_wh"]), np.array(each["cut_wh"], np.float64)) for each in document["above"]
                ),
                below=tuple(
                    CutBelow(int(each["export_bound_wh"]), float(each["sun_share"])) for each in document["below"]
                ),
                sample=None if sample is None else ConsentedSample.from_document(sample),
            )
        except (ValueError, KeyError, TypeError, ArithmeticError):
            raise ModelError("forecast", "unreadable", _ALLOWED) from None
        made._check()
        return made

    def _check(self) -> None:
        bounds, exports = [each.bound_wh for each in self.above], [each.export_bound_wh for each in self.below]
        if bounds != sorted(set(bounds)) or exports != sorted(set(exports)) or bool(bounds) != bool(exports):
            raise ModelError("bounds", (bounds, exports), "must rise, and be there for both sides of a range")
        cuts, shares = [each.cut_wh for each in self.above], [each.sun_share for each in self.below]
        is_small = (np.abs(shares) <= 1).all() and all((np.abs(cut) <= MAX_WH).all() for cut in cuts)
        if not is_small or any(cut.shape != (HOURS,) for cut in cuts):
            allowed = f"must be what {HOURS} hours have above a bound, and shares of the sun"
            raise ModelError("cut_wh", [cut.shape for cut in cuts], allowed)
        if not np.isfinite(self.spread).all() or min(self.spread) < 0:
            raise ModelError("spread", tuple(self.spread), "must be numbers of 0 or more")


def forecast_document(forecast: CalendarForecast) -> dict[str, Any]:
    """Return a forecast as members of a JSON document, rounded."""
    of_sun = {
        "dark_wh": round(forecast.dark_wh, _DIGITS),
        "sun_wh": round(forecast.sun_wh, _DIGITS),
        "usual_irradiance": _rounded(forecast.usual_irradiance, 1),
    }
    return {
        "day_wh": _rounded(forecast.day_wh, _DIGITS),
        "month_wh": _rounded(forecast.month_wh, _DIGITS),
        "heat_wh_per_k": _rounded(forecast.heat_wh_per_k, _DIGITS),
        "usual_cold_k": _rounded(forecast.usual_cold_k, _DIGITS),
        "least_wh": round(forecast.least_wh, _DIGITS),
    } | (of_sun if forecast.knows_sun else {})


def forecast_from_document(document: dict[str, Any]) -> CalendarForecast:
    """Return the forecast in members of a JSON document. Raises ModelError, KeyError, TypeError or ValueError."""
    day, month, heat, cold = (
        np.array(document[name], np.float64) for name in ("day_wh", "month_wh", "heat_wh_per_k", "usual_cold_k")
    )
    least = float(document["least_wh"])
    dark_wh, sun_wh = (float(document.get(name, 0)) for name in ("dark_wh", "sun_wh"))
    usual = np.array(document.get("usual_irradiance", np.zeros((MONTHS, HOURS))), np.float64)
    responses = heat * MAX_COLD_K, np.array([dark_wh, sun_wh])
    small = all(bool((np.abs(part) <= MAX_WH).all()) for part in (day, month, *responses))
    usable = ((cold >= 0) & (cold <= MAX_COLD_K)).all() and ((usual >= 0) & (usual <= MAX_IRRADIANCE)).all()
    if not small or not usable or not 0 < least <= MAX_WH:
        raise ModelError("forecast", "too large", f"must have demand above 0 and at most {MAX_WH:g} Wh a household")
    return CalendarForecast(day, month, heat, cold, least, dark_wh, sun_wh, usual)


def _rounded(numbers: FloatArray | Sequence[float], digits: int) -> Any:
    return (np.round(np.asarray(numbers, np.float64), digits) + 0.0).tolist()
