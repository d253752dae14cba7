"""What a plan says about each release, read from `plan.json` without proving it anew.

A plan is proven when it is made and when it is registered; from then on its digest stands for the proof. A service with
100,000 zones reads this much of each plan and no more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from murmurate.curator.document import digest
from murmurate.curator.hiding import HiddenHouseholds
from murmurate.errors import PrivacyError, TariffError
from murmurate.pricing.rate import RateCurve, Segment
from murmurate.privacy.noise import NoiseLaw, refuse_scales
from murmurate.privacy.promise import Habits
from murmurate.quantities import FloatArray, IntArray

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """Price curve, noise and cost of each interval of the day. The day of a plan begins at midnight UTC."""

    plan: str  # digest
    zone: str
    currency: str
    curve: RateCurve
    law: NoiseLaw
    scale_wh: FloatArray  # [interval of the day]
    core_wh: IntArray  # [interval of the day] of Huber noise; 0 for the other laws
    epsilon_micro: IntArray  # [interval of the day]
    rho_micro: IntArray  # [interval of the day]
    forecast_ticks: IntArray  # [interval of the day] the price where no demand is usable
    hides: HiddenHouseholds
    promises: tuple[str, ...] = ()  # in words
    habits: tuple[Habits, ...] = ()  # what prices may teach about habits, where a moment is promised

    def __post_init__(self) -> None:
        columns = (self.scale_wh, self.core_wh, self.epsilon_micro, self.rho_micro, self.forecast_ticks)
        if len({len(column) for column in columns}) != 1 or not len(self.scale_wh) or DAY_S % len(self.scale_wh):
            raise PrivacyError("plan", [len(column) for column in columns], "must have one entry per interval of a day")
        refuse_scales(self.scale_wh)

    @property
    def tick(self) -> str:
        """One price step [currency/kWh]."""
        return str(self.curve.tick)

    @property
    def interval_s(self) -> int:
        return DAY_S // len(self.scale_wh)

    def slot(self, interval: int) -> int:
        """The interval of the day of a UTC interval index."""
        return interval % len(self.scale_wh)

    def noise_members(self, slot: int) -> dict[str, Any]:
        """What a measured record of this interval of the day says of its noise and cost."""
        return {
            "noise": self.law.value,
            "scale_wh": repr(float(self.scale_wh[slot])),
            "core_wh": int(self.core_wh[slot]),
            "epsilon_micro": int(self.epsilon_micro[slot]),
            "rho_micro": int(self.rho_micro[slot]),
        }

    def refusal(self, bounds: Mapping[str, int] | None) -> str | None:
        """Why the noise does not hide households with these bounds, at any interval; None where it hides them all."""
        return self.hides.refusal(bounds)

    @classmethod
    def of(cls, text: str) -> Terms:
        """Read a `plan.json`. Raises PrivacyError if a byte of it was changed."""
        try:
            document: dict[str, Any] = json.loads(text)
            if document["filter"] is not None:
                raise TariffError("filter", "true", "is planned for, and cannot be published yet")
            curve = _curve(document["tariff"])
            terms = cls(
                plan=str(document["digest"]),
                zone=str(document["zone"]),
                currency=str(document["currency"]),
                curve=curve,
                law=NoiseLaw(document["noise"]),
                scale_wh=np.array(document["scale_wh"], np.float64),
                core_wh=np.array(document["core_wh"], np.int64),
                promises=tuple(str(each["promise"]) for each in document["promises"]),
                habits=tuple(Habits(**each) for each in document["habits"]),
                epsilon_micro=np.array(document["cost"]["epsilon_micro"], np.int64),
                rho_micro=np.array(document["cost"]["rho_micro"], np.int64),
                forecast_ticks=curve.price_ticks(np.array(document["forecast_wh"], np.int64)),
                hides=HiddenHouseholds.of(document),
            )
        except (ValueError, KeyError, TypeError):
            raise PrivacyError("plan", "unreadable", "must be a plan.json written by murmurate plan") from None
        if terms.plan != digest(document):
            raise PrivacyError("digest", terms.plan, "must be that of the plan: something was changed")
        return terms


def _curve(tariff: dict[str, Any]) -> RateCurve:
    pieces = [Segment(int(from_wh), Fraction(price), Fraction(slope)) for from_wh, price, slope in tariff["segments"]]
    return RateCurve.through(pieces, tick=tariff["tick"], floor=tariff["floor"], cap=tariff["cap"])
