"""The largest energy that a household of a zone may add to an interval [Wh]. It depends on the meter table only.

A household may have several meters. Its bound is the sum of their bounds. For each zone the result maps a kind of
household to its largest bound, such as ``{"": 1000, "fish market": 20000, "(public)": 20000}``. The name "" stands for
protected households whose kind is not known, `UNPROTECTED_KIND` for households whose occupancy is always public.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from murmurate.errors import MeterError
from murmurate.types import UNPROTECTED_KIND
from murmurate.units import BoolArray, IntArray

UNKNOWN_KIND = 0  # the code of a kind that is not known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Households:
    """The households behind the meters of a table."""

    zone: IntArray  # [meter]
    bound_wh: IntArray  # [meter]
    protected: BoolArray  # [meter] false: its occupancy is always public
    kind: IntArray  # [meter] position in `kinds`
    kinds: tuple[str, ...]  # the first is "": not known
    household: IntArray | None = None  # [meter] numbered from 0 up; None: each meter is a household

    def __post_init__(self) -> None:
        if self.kinds[UNKNOWN_KIND] or UNPROTECTED_KIND in self.kinds:
            raise MeterError("kind", UNPROTECTED_KIND, "is not a name for a kind; set protected = false instead")


def household_bounds(
    households: Households, zones: int, household_name: Callable[[int], str] = str
) -> tuple[Mapping[str, int], ...]:
    """Return the largest bound of a household in each zone, by kind [Wh].

    A household that is not protected counts under `UNPROTECTED_KIND`, and also under its kind if that is known. Raises
    MeterError if the meters of a household differ in zone, kind or protection. The error text names the household with
    `household_name`.

    >>> ones = np.array([1, 1, 1])
    >>> flats = Households(zone=0 * ones, bound_wh=500 * ones, protected=ones > 0, kind=0 * ones, kinds=("",),
    ...                    household=np.array([0, 1, 0]))
    >>> household_bounds(flats, zones=1)
    ({'': 1000},)
    """
    first, total_wh = _sum_meters_of_household(households, household_name)
    zone, kind, protected = households.zone[first], households.kind[first], households.protected[first]
    public = len(households.kinds)
    named = protected | (kind != UNKNOWN_KIND)
    code = np.concatenate([zone[named] * (public + 1) + kind[named], zone[~protected] * (public + 1) + public])
    codes, position = np.unique(code, return_inverse=True)
    largest = np.zeros(len(codes), np.int64)
    np.maximum.at(largest, position, np.concatenate([total_wh[named], total_wh[~protected]]))
    bounds: tuple[dict[str, int], ...] = tuple({} for _ in range(zones))
    names = (*households.kinds, UNPROTECTED_KIND)
    for zone_kind, wh in zip(codes.tolist(), largest.tolist(), strict=True):
        bounds[zone_kind // (public + 1)][names[zone_kind % (public + 1)]] = wh
    return bounds


def count_households(households: Households, zones: int) -> IntArray:
    """Return the number of households of each zone."""
    first, _ = _sum_meters_of_household(households, str)
    return np.bincount(households.zone[first], minlength=zones)


def _sum_meters_of_household(households: Households, name: Callable[[int], str]) -> tuple[IntArray, IntArray]:
    """Return the first meter of each household and the sum of the bounds of its meters [Wh]."""
    if households.household is None:
        return np.arange(len(households.zone)), households.bound_wh
    number = households.household
    count = int(number.max(initial=-1)) + 1
    first = np.zeros(count, np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    for column, label in (("zone", "zone"), ("kind", "kind"), ("protected", "protection")):
        values = getattr(households, column)
        if (wrong := values != values[first[number]]).any():
            household = name(int(number[int(wrong.argmax())]))
            raise MeterError("household", repr(household), f"must have one {label}: its meters differ in {column}")
    total_wh = np.zeros(count, np.int64)
    np.add.at(total_wh, number, households.bound_wh)
    return first, total_wh


def encode_bounds(bounds: Mapping[str, int] | None) -> str | None:
    """Return the bounds of a zone as JSON text, or None if they are not known."""
    return None if bounds is None else json.dumps(bounds, sort_keys=True, ensure_ascii=False)


def decode_bounds(text: str | None) -> Mapping[str, int] | None:
    """Parse the bounds of a zone. Return None if the text is missing or has another format than `encode_bounds`."""
    try:
        bounds = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    readable = isinstance(bounds, dict) and all(type(wh) is int and wh >= 0 for wh in bounds.values())
    return bounds if readable else None
