"""The part of a `plan.json` that each release needs: its digest, its noise and prices, and whom the noise hides.

A plan is proven when it is made and when it is registered. After that its digest identifies the proven plan: reading it
does not prove it again. A service with 100,000 zones loads only this part of each plan.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.zone import LearnedHabits
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.pricing.rate import RateCurve, Segment
from murmurate.privacy.noise import NoiseDistribution, check_scales
from murmurate.privacy.promise import AbsenceGuessBound, HabitGuessBound
from murmurate.types import UNPROTECTED_KIND
from murmurate.units import MICRO, SECONDS_PER_DAY, FloatArray, IntArray

_DIGEST_MEMBER = re.compile(r'"digest":"([0-9a-f]{64})",')


def compute_plan_digest(document: dict[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON bytes of a plan document without its `digest` member."""
    bare = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(_canonical_json(bare).encode()).hexdigest()


def compact_plan(text: str) -> str:
    """Return the canonical JSON of a plan document: the form that `parse_plan` reads fastest."""
    return _canonical_json(json.loads(text))


def parse_plan(text: str) -> tuple[dict[str, Any], str]:
    """Return the document in a text, and the digest that its content has, which its `digest` member should be.

    A canonical text is what was hashed, but for one member: if the text without it has the digest that it names, it is
    the text that was hashed, and is read. Any other text is brought into canonical form first, which takes longer.
    Raises ValueError for JSON that is no object.
    """
    member = _DIGEST_MEMBER.search(text)
    if member is not None:
        bare = text[: member.start()] + text[member.end() :]
        if hashlib.sha256(bare.encode()).hexdigest() == member[1]:
            return json.loads(bare) | {"digest": member[1]}, member[1]
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("a plan is a JSON object")  # noqa: TRY004  what was read is wrong, not the call
    return document, compute_plan_digest(document)


def _canonical_json(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenHouseholds:
    """The largest range of a household that a plan hides, at every interval of the day [Wh].

    A range is bound_wh + export_bound_wh. The noise of an interval is calibrated to the kinds whose occupancy is secret
    in that interval. The largest range of the plan is irrelevant. So a household is hidden if the plan has a kind with
    its range, public hours and habits.
    """

    by_kind: Mapping[str, int]  # for a household whose kind is known
    unknown_kind_wh: int  # for a protected household whose kind is not known; 0 if the plan hides none
    public_wh: int  # for a household whose occupancy is always public; 0 if the plan has none

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HiddenHouseholds:
        """Compute the ranges from the document of a plan.

        A household whose kind is not known may be of any kind that is not always public. Kinds that differ only in
        their range form one class, and the largest range of a class hides the others. The range for an unknown kind is
        the smallest over the classes.
        """
        by_kind: dict[str, int] = {}
        classes: dict[tuple[Any, ...], int] = {}
        public_wh = 0
        for kind in document["households"]:
            name, range_wh = str(kind["name"]), int(kind["bound_wh"]) + int(kind.get("export_bound_wh", 0))
            by_kind[name] = min(range_wh, by_kind.get(name, range_wh))
            if all(kind["public"]):
                public_wh = max(range_wh, public_wh)
                continue
            kind_class = (tuple(kind["public"]), kind["models_sha256"])
            classes[kind_class] = max(range_wh, classes.get(kind_class, 0))
        return cls(by_kind=by_kind, unknown_kind_wh=min(classes.values(), default=0), public_wh=public_wh)

    def not_hidden_reason(self, bounds: Mapping[str, int] | None) -> str | None:
        """Return why households with these ranges are not hidden, or None if all are. See `household_bounds`."""
        if not bounds:
            return "its household bounds are not known; aggregate it again under its meter table"
        for kind, range_wh in sorted(bounds.items()):
            remedy = "lower its bound_wh or export_bound_wh, or change to a plan with such households"
            if kind == UNPROTECTED_KIND:
                hidden_wh, description = self.public_wh, "that is not protected"
            elif not kind:
                hidden_wh, description, remedy = self.unknown_kind_wh, "without a kind", f"state its kind, {remedy}"
            elif kind in self.by_kind:
                hidden_wh, description = self.by_kind[kind], f"of kind {kind!r}"
            else:
                known = ", ".join(map(repr, sorted(self.by_kind)))
                return f"has a household of kind {kind!r}; the kinds of its plan are {known}: state one of these"
            if range_wh > hidden_wh:
                found = f"has a household {description} with bound_wh + export_bound_wh = {range_wh}"
                return f"{found}; its plan hides up to {hidden_wh} there: {remedy}"
        return None


def format_range(bound_wh: int, export_bound_wh: int) -> str:
    """Return the range of a household's readings in words.

    >>> format_range(3000, 0), format_range(3000, 2500)
    ('up to 3,000 Wh', 'between -2,500 and 3,000 Wh')
    """
    return f"between {-export_bound_wh:,} and {bound_wh:,} Wh" if export_bound_wh else f"up to {bound_wh:,} Wh"


@dataclass(frozen=True, slots=True)
class PlannedHouseholds:
    """The households of one kind in a plan."""

    kind: str
    count: int
    bound_wh: int
    public_share: Fraction  # of the intervals of a day, in which anyone may know whether they are home
    is_from_table: bool = False  # whether their number was counted in a meter table
    export_bound_wh: int = 0


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
    forecast_wh: tuple[int, ...] = ()  # [interval of the day]

    def __post_init__(self) -> None:
        columns = (self.scale_wh, self.core_wh, self.epsilon_micro, self.rho_micro, self.forecast_ticks)
        if (
            len({len(column) for column in columns}) != 1
            or not len(self.scale_wh)
            or SECONDS_PER_DAY % len(self.scale_wh)
        ):
            raise PrivacyError("plan", [len(column) for column in columns], "must have one entry per interval of a day")
        check_scales(self.scale_wh)
        if self.prediction is not None and self.prediction.model.slots_per_day != len(self.scale_wh):
            slots = self.prediction.model.slots_per_day
            raise PrivacyError("prediction", slots, "must have as many intervals a day as the noise")

    @property
    def tick(self) -> str:
        """One price step [currency/kWh]."""
        return str(self.curve.tick)

    @property
    def interval_s(self) -> int:
        return SECONDS_PER_DAY // len(self.scale_wh)

    @property
    def reads_meters(self) -> bool:
        """Whether a price may depend on a reading. If not, it is made from public numbers alone."""
        return self.prediction is None or self.prediction.read_meters

    def slot_of_day(self, interval: int) -> int:
        """Return the interval of the day of a UTC interval index."""
        return interval % len(self.scale_wh)

    def expected_ticks(self, intervals: range, lead: int) -> list[int]:
        """Return the prices that the plan expects of intervals that pay, before any release; they are not billed.

        A price is made from the demand `lead` intervals before or, where it is predicted, for that of the interval.
        """
        slots, first = len(self.scale_wh), intervals.start - (lead if self.prediction is None else 0)
        days = [_expect_day(self, day) for day in range(first // slots, -(-(first + len(intervals)) // slots))]
        begin = first % slots
        return [ticks for day in days for ticks in day][begin : begin + len(intervals)]

    def silent_share_micro(self, expected_wh: int) -> int:
        """Return what a silent meter counts for where this demand is expected [millionths of its bound].

        phi = expected demand/sum of the bounds of all households of the plan, at most 1. Below zero it is a share of
        the export bounds. It depends on public numbers alone.
        """
        name = "bound_wh" if expected_wh >= 0 else "export_bound_wh"
        total_wh = sum(kind.count * int(getattr(kind, name)) for kind in self.households)
        share = min(abs(expected_wh) * MICRO // total_wh, MICRO) if total_wh else 0
        return share if expected_wh >= 0 else -share

    def not_hidden_reason(self, bounds: Mapping[str, int] | None) -> str | None:
        """Return why the noise does not hide households with these ranges, or None if it hides all of them."""
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
                households=tuple(
                    PlannedHouseholds(
                        str(kind["name"]),
                        int(kind["count"]),
                        int(kind["bound_wh"]),
                        Fraction(sum(map(bool, kind["public"])), max(len(kind["public"]), 1)),
                        bool(kind["meters"]),
                        int(kind.get("export_bound_wh", 0)),
                    )
                    for kind in document["households"]
                ),
                habits=tuple(HabitGuessBound(**entry) for entry in document["habits"]),
                learned=tuple(LearnedHabits.from_document(entry) for entry in document.get("learned", ())),
                epsilon_micro=np.array(document["cost"]["epsilon_micro"], np.int64),
                rho_micro=np.array(document["cost"]["rho_micro"], np.int64),
                forecast_ticks=curve.price_ticks(np.array(document["forecast_wh"], np.int64)),
                hidden_households=HiddenHouseholds.from_document(document),
                household_count=sum(int(kind["count"]) for kind in document["households"]),
                forecast_wh=tuple(int(wh) for wh in document["forecast_wh"]),
                prediction=ZonePrediction.from_document(document["prediction"]) if "prediction" in document else None,
            )
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            raise PrivacyError("plan", "unreadable", "must be a plan.json written by murmurate plan") from None
        if terms.plan_digest != digest:
            raise PrivacyError("digest", terms.plan_digest, "must be the digest of the plan: the file was changed")
        return terms


@lru_cache(maxsize=4096)  # most zones of an operator have the same tariff
def _rate_curve(text: str) -> RateCurve:
    tariff: dict[str, Any] = json.loads(text)
    pieces = [Segment(int(from_wh), Fraction(price), Fraction(slope)) for from_wh, price, slope in tariff["segments"]]
    return RateCurve.from_segments(pieces, tick=tariff["tick"], floor=tariff["floor"], cap=tariff["cap"])


@lru_cache(maxsize=4096)  # zones under one plan share it
def _expect_day(terms: ReleaseTerms, day: int) -> list[int]:
    """Return the prices that a plan expects for the demand of the intervals of a day of UTC [ticks]."""
    slots, found = len(terms.scale_wh), terms.forecast_ticks
    if terms.prediction is not None:
        found = terms.prediction.expect_ticks(terms.curve, np.arange(day * slots, (day + 1) * slots))
    return [int(ticks) for ticks in found]
