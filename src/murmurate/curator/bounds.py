"""How much each household of a zone may add to an interval: facts of the meter table, not of any reading.

A household may have several meters; its bound is the sum of theirs. For each zone the largest bound is kept by kind of
household: a mapping such as ``{"": 1000, "fish market": 20000, "(public)": 20000}``. The name "" stands for protected
households whose kind is not said, `UNPROTECTED` for households whose occupancy is public always.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from murmurate.errors import MeterError
from murmurate.quantities import UNPROTECTED, BoolArray, IntArray

NOT_SAID = 0  # the code of a kind that is not said


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Households:
    """The households behind the meters of a table."""

    zone: IntArray  # [meter]
    bound_wh: IntArray  # [meter]
    protected: BoolArray  # [meter] false: its occupancy is public always
    kind: IntArray  # [meter] position in `kinds`
    kinds: tuple[str, ...]  # the first is "": not said
    household: IntArray | None = None  # [meter] numbered from 0 up; None: each meter is a household

    def __post_init__(self) -> None:
        if self.kinds[NOT_SAID] or UNPROTECTED in self.kinds:
            raise MeterError("kind", UNPROTECTED, "is not a name for a kind; say protected = false instead")


def household_bounds(
    households: Households, zones: int, name: Callable[[int], str] = str
) -> tuple[Mapping[str, int], ...]:
    """The largest bound of a household in each of the zones, by kind [Wh].

    A household that is not protected counts under `UNPROTECTED`, and under its kind where that is said. Raises
    MeterError where the meters of a household differ in zone, kind or protection; `name` says how it is called.

    >>> one = np.array([1, 1, 1])
    >>> flats = Households(zone=0 * one, bound_wh=500 * one, protected=one > 0, kind=0 * one, kinds=("",),
    ...                    household=np.array([0, 1, 0]))
    >>> household_bounds(flats, zones=1)
    ({'': 1000},)
    """
    first, total_wh = _first_and_sum(households, name)
    zone, kind, protected = households.zone[first], households.kind[first], households.protected[first]
    public = len(households.kinds)
    named = protected | (kind != NOT_SAID)
    code = np.concatenate([zone[named] * (public + 1) + kind[named], zone[~protected] * (public + 1) + public])
    found, place = np.unique(code, return_inverse=True)
    largest = np.zeros(len(found), np.int64)
    np.maximum.at(largest, place, np.concatenate([total_wh[named], total_wh[~protected]]))
    bounds: tuple[dict[str, int], ...] = tuple({} for _ in range(zones))
    names = (*households.kinds, UNPROTECTED)
    for where, wh in zip(found.tolist(), largest.tolist(), strict=True):
        bounds[where // (public + 1)][names[where % (public + 1)]] = wh
    return bounds


def _first_and_sum(households: Households, name: Callable[[int], str]) -> tuple[IntArray, IntArray]:
    """The first meter of each household, and the sum of the bounds of its meters [Wh]."""
    if households.household is None:
        return np.arange(len(households.zone)), households.bound_wh
    number = households.household
    count = int(number.max(initial=-1)) + 1
    first = np.zeros(count, np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    for column, words in (("zone", "zone"), ("kind", "kind"), ("protected", "protection")):
        values = getattr(households, column)
        if (wrong := values != values[first[number]]).any():
            household = name(int(number[int(wrong.argmax())]))
            raise MeterError("household", repr(household), f"must have one {words}: its meters differ in {column}")
    total_wh = np.zeros(count, np.int64)
    np.add.at(total_wh, number, households.bound_wh)
    return first, total_wh


def encode_bounds(bounds: Mapping[str, int] | None) -> str | None:
    """The bounds of a zone as text; None where they are not known."""
    return None if bounds is None else json.dumps(bounds, sort_keys=True, ensure_ascii=False)


def decode_bounds(text: str | None) -> Mapping[str, int] | None:
    """The bounds of a zone from text. None where there is none, or where it is not what `encode_bounds` writes."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    readable = isinstance(found, dict) and all(type(wh) is int and wh >= 0 for wh in found.values())
    return found if readable else None
