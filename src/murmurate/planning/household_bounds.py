"""The most that a household of a zone can change the demand of an interval by [Wh]. It depends on the meter table only.

A reading counts from -export_bound_wh to bound_wh of its meter. The sum of the two is its range. A household may have
several meters, and its range is the sum of theirs. For each zone the result maps a kind of household to its largest
range, such as ``{"": 1000, "fish market": 20000, "(public)": 20000}``. The name "" stands for protected households
whose kind is not known, `UNPROTECTED_KIND` for households whose occupancy is always public.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from murmurate.errors import MeterError
from murmurate.types import UNPROTECTED_KIND
from murmurate.units import BoolArray, IntArray, raise_where

UNKNOWN_KIND = 0  # the code of a kind that is not known
MAX_COUNT_ERROR = 0.25  # of the plan's number; beyond, its forecast and rate curve are those of another zone


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Households:
    """The households behind the meters of a table."""

    zone: IntArray  # [meter]
    range_wh: IntArray  # [meter] bound_wh + export_bound_wh
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
    """Return the largest range of a household in each zone, by kind [Wh].

    A household that is not protected counts under `UNPROTECTED_KIND`, and also under its kind if that is known. Raises
    MeterError if the meters of a household differ in zone, kind or protection. The error text names the household with
    `household_name`.

    >>> ones = np.array([1, 1, 1])
    >>> flats = Households(zone=0 * ones, range_wh=500 * ones, protected=ones > 0, kind=0 * ones, kinds=("",),
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
    """Return the first meter of each household and the sum of the ranges of its meters [Wh]."""
    if households.household is None:
        return np.arange(len(households.zone)), households.range_wh
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
    np.add.at(total_wh, number, households.range_wh)
    return first, total_wh


def encode_bounds(bounds: Mapping[str, int] | None) -> str | None:
    """Return the ranges of a zone as JSON text, or None if they are not known."""
    return None if bounds is None else json.dumps(bounds, sort_keys=True, ensure_ascii=False)


def decode_bounds(text: str | None) -> Mapping[str, int] | None:
    """Parse the ranges of a zone. Return None if the text is missing or has another format than `encode_bounds`."""
    try:
        bounds = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    readable = isinstance(bounds, dict) and all(type(wh) is int and wh >= 0 for wh in bounds.values())
    return bounds if readable else None


def round_household_count(count: int) -> int:
    """Return the number of households of a meter table as a plan publishes it.

    It has two significant digits from 100 on, and is a multiple of 5 below, at least 5. A plan is public, and its noise
    hides whether a household is in the zone at all. The exact number of a table, published again with the next plan,
    would show that a household has moved in or out. Prices hardly depend on the rest: it is 5 % at most from 100 on.

    >>> [round_household_count(count) for count in (1, 7, 8, 99, 339, 104_999)]
    [5, 5, 10, 100, 340, 100000]
    """
    step = 5 if count < 100 else 10 ** (len(str(count)) - 2)
    return max((count + step // 2) // step * step, 5)


def is_count_off(plan_count: int, table_count: int) -> bool:
    """Return whether a plan is made for another number of households than the table has, beyond rounding.

    >>> is_count_off(300, 360), is_count_off(500, 300), is_count_off(5, 2)
    (False, True, False)
    """
    rounded = plan_count == round_household_count(table_count)
    return not rounded and abs(table_count - plan_count) > MAX_COUNT_ERROR * plan_count


@dataclass(frozen=True, slots=True)
class MeterSummary:
    """The number of households in a meter file, and the range of readings that contains each of theirs [Wh]."""

    count: int
    bound_wh: int
    export_bound_wh: int = 0
    is_of_kind: bool = True  # false: the file names no kinds, and these are all households of the zone


def summarize_meters(
    bound_wh: IntArray,
    export_bound_wh: IntArray,
    *,
    zone_of: Sequence[str],
    kind_of: Sequence[str],
    household_of: Sequence[str],
    zone: str,
    kind: str,
) -> MeterSummary:
    """Return the households of a zone and kind, and their largest bounds, from the columns of a meter table [meter].

    The bounds of a household are the sums of its meters' bounds. The number is rounded: see `round_household_count`.
    Raises MeterError where no meter is of the zone and kind, or the meters of a household differ in them.
    """
    raise_where(bound_wh < 1, "bound_wh", bound_wh, "must be at least 1 Wh", MeterError)
    raise_where(export_bound_wh < 0, "export_bound_wh", export_bound_wh, "must be at least 0 Wh", MeterError)
    zones, zone_index = np.unique(zone_of, return_inverse=True)
    kinds, kind_index = np.unique(["", *kind_of], return_inverse=True)
    names, household = np.unique(household_of, return_inverse=True)
    households = Households(
        zone=zone_index,
        range_wh=bound_wh,
        protected=np.ones(len(bound_wh), np.bool_),
        kind=kind_index[1:],
        kinds=tuple(kinds.tolist()),
        household=household,
    )
    name = names.tolist().__getitem__
    bounds, export_bounds = (
        household_bounds(replace(households, range_wh=side_wh), len(zones), name)
        for side_wh in (bound_wh, export_bound_wh)
    )
    by_zone = dict(zip(zones.tolist(), bounds, strict=True))
    if zone not in by_zone:
        raise MeterError("zone", repr(zone), f"is not in this table; its zones are {_name_some(by_zone)}")
    by_kind = by_zone[zone]
    chosen = "" if by_kind.keys() == {""} else kind  # the table names no kind in this zone
    if "" in by_kind and chosen:
        raise MeterError("kind", "empty here and there", "must name the kind of every meter of the zone, or of none")
    if chosen not in by_kind:
        allowed = f"no meter of zone {zone!r} is of this kind; its kinds there are {_name_some(by_kind)}"
        raise MeterError("kind", repr(kind), allowed)
    is_counted = (zones[zone_index] == zone) & (kinds[kind_index[1:]] == chosen)
    count = round_household_count(len(np.unique(household[is_counted])))
    export_wh = dict(zip(zones.tolist(), export_bounds, strict=True))[zone][chosen]
    return MeterSummary(count, by_kind[chosen], export_wh, is_of_kind=bool(chosen))


def _name_some(names: Iterable[str]) -> str:
    known = sorted(names)
    return ", ".join(map(repr, known[:8])) + (f" and {len(known) - 8:,} more" if len(known) > 8 else "")
