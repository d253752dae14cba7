"""The part of a `plan.json` that each release needs. Reading it does not prove the plan again.

A plan is proven when it is made and when it is registered. After that its digest identifies the proven plan. A service
with 100,000 zones loads only this part of each plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.digest import parse_plan
from murmurate.planning.hidden_households import HiddenHouseholds
from murmurate.planning.learned_habits import LearnedHabits
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.pricing.rate import RateCurve, Segment
from murmurate.privacy.noise import NoiseDistribution, check_scales
from murmurate.privacy.promise import AbsenceGuessBound, HabitGuessBound
from murmurate.units import SECONDS_PER_DAY, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class PlannedHouseholds:
    """The households of one kind in a plan."""

    kind: str
    count: int
    bound_wh: int
    public_share: Fraction  # of the intervals of a day, in which anyone may know whether they are home
    is_from_table: bool = False  # whether their number was counted in a meter table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleaseTerms:
    """Price curve, noise and cost of each interval of the day. The day of a plan begins at midnight UTC."""

    plan_digest: str  # SHA-256, hexadecimal
    zone: str
    currency: str
    curve: RateCurve
    distribution: NoiseDistribution
    scale_wh: FloatArray  # [interval of the day]
    core_wh: IntArray  # [interval of the day] of Huber noise; 0 for the other distributions
    epsilon_micro: IntArray  # [interval of the day]
    rho_micro: IntArray  # [interval of the day]
    forecast_ticks: IntArray  # [interval of the day] the price where no demand is usable
    hidden_households: HiddenHouseholds
    promises: tuple[str, ...] = ()  # as text
    spent: tuple[float, ...] = ()  # [promise] what the noise costs of each; no more than what is promised
    above_epsilon: tuple[float | None, ...] = ()  # [promise] probability of a larger loss, where there is a delta
    right_guesses: tuple[float | None, ...] = ()  # [promise] probability of a right guess at most, for a window
    absence: AbsenceGuessBound | None = None  # leakage about a long absence; None: not known
    households: tuple[PlannedHouseholds, ...] = ()
    habits: tuple[HabitGuessBound, ...] = ()  # leakage about habits, if a moment is promised
    learned: tuple[LearnedHabits, ...] = ()  # occupancy models that came from a sample
    household_count: int = 0  # of all kinds
    prediction: ZonePrediction | None = None  # how prices are predicted; None: made from the last release alone

    def __post_init__(self) -> None:
        columns = (self.scale_wh, self.core_wh, self.epsilon_micro, self.rho_micro, self.forecast_ticks)
        if (
            len({len(column) for column in columns}) != 1
            or not len(self.scale_wh)
            or SECONDS_PER_DAY % len(self.scale_wh)
        ):
            raise PrivacyError("plan", [len(column) for column in columns], "must have one entry per interval of a day")
        check_scales(self.scale_wh)

    @property
    def tick(self) -> str:
        """One price step [currency/kWh]."""
        return str(self.curve.tick)

    @property
    def interval_s(self) -> int:
        return SECONDS_PER_DAY // len(self.scale_wh)

    def slot_of_day(self, interval: int) -> int:
        """Return the interval of the day of a UTC interval index."""
        return interval % len(self.scale_wh)

    def not_hidden_reason(self, bounds: Mapping[str, int] | None) -> str | None:
        """Return why the noise does not hide households with these bounds, or None if it hides all of them."""
        return self.hidden_households.not_hidden_reason(bounds)

    @classmethod
    def from_json(cls, text: str) -> ReleaseTerms:
        """Read a `plan.json`. Raises PrivacyError if its digest does not match."""
        try:
            document, digest = parse_plan(text)
            curve = _rate_curve(json.dumps(document["tariff"]))
            terms = cls(
                plan_digest=str(document["digest"]),
                zone=str(document["zone"]),
                currency=str(document["currency"]),
                curve=curve,
                distribution=NoiseDistribution(document["noise"]),
                scale_wh=np.array(document["scale_wh"], np.float64),
                core_wh=np.array(document["core_wh"], np.int64),
                promises=tuple(str(entry["promise"]) for entry in document["promises"]),
                spent=tuple(float(entry["spent"]) for entry in document["promises"]),
                above_epsilon=tuple(entry["above_epsilon"] for entry in document["promises"]),
                right_guesses=tuple(entry["right_guesses"] for entry in document["promises"]),
                absence=AbsenceGuessBound(**document["absence"]),
                households=tuple(_planned_households(kind) for kind in document["households"]),
                habits=tuple(HabitGuessBound(**entry) for entry in document["habits"]),
                learned=tuple(LearnedHabits.from_document(entry) for entry in document.get("learned", ())),
                epsilon_micro=np.array(document["cost"]["epsilon_micro"], np.int64),
                rho_micro=np.array(document["cost"]["rho_micro"], np.int64),
                forecast_ticks=curve.price_ticks(np.array(document["forecast_wh"], np.int64)),
                hidden_households=HiddenHouseholds.from_document(document),
                household_count=sum(int(kind["count"]) for kind in document["households"]),
                prediction=_zone_prediction(document),
            )
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            raise PrivacyError("plan", "unreadable", "must be a plan.json written by murmurate plan") from None
        if terms.plan_digest != digest:
            raise PrivacyError("digest", terms.plan_digest, "must be the digest of the plan: the file was changed")
        return terms


def _planned_households(kind: dict[str, Any]) -> PlannedHouseholds:
    public = [bool(is_public) for is_public in kind["public"]]
    share = Fraction(sum(public), len(public)) if public else Fraction(0)
    is_from_table = bool(kind["meters"])
    return PlannedHouseholds(str(kind["name"]), int(kind["count"]), int(kind["bound_wh"]), share, is_from_table)


def _zone_prediction(document: dict[str, Any]) -> ZonePrediction | None:
    if "prediction" not in document:
        return None
    found = ZonePrediction.from_document(document["prediction"])
    if found.model.slots_per_day != len(document["scale_wh"]):
        raise PrivacyError("prediction", found.model.slots_per_day, "must have as many intervals a day as the noise")
    return found


@lru_cache(maxsize=4096)  # most zones of an operator have the same tariff
def _rate_curve(text: str) -> RateCurve:
    tariff: dict[str, Any] = json.loads(text)
    pieces = [Segment(int(from_wh), Fraction(price), Fraction(slope)) for from_wh, price, slope in tariff["segments"]]
    return RateCurve.from_segments(pieces, tick=tariff["tick"], floor=tariff["floor"], cap=tariff["cap"])
