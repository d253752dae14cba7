"""What travels on the road, and its units.

Energy is an integer number of Wh, a price an integer number of ticks, time a number of intervals. This is the one file
that converts between units. An *interval* is a stretch of time; a *tick* is the smallest price step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import MeterError, MurmurateError, ReadingError, UnknownZoneError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

WH_PER_KWH = 1000
QUARTER_HOURS_PER_DAY = 96
UNPROTECTED = "(public)"  # among the kinds of households: those whose occupancy is public always
_HUGE_EXPONENT = re.compile(r"[eE][+-]?[0-9]{4}")  # would take all memory before it takes a value


def kwh(energy_wh: int) -> Fraction:
    """Energy in kWh [kWh], exactly.

    >>> kwh(62_500)
    Fraction(125, 2)
    """
    return Fraction(int(energy_wh), WH_PER_KWH)


def per_wh(price_per_kwh: Fraction) -> Fraction:
    """A quantity per kWh as the same quantity per Wh, exactly.

    >>> per_wh(Fraction(1))
    Fraction(1, 1000)
    """
    return price_per_kwh / WH_PER_KWH


def fraction(value: Any, field: str, error: type[MurmurateError] = MurmurateError) -> Fraction:
    """An exact number from what a person writes: ``"0.5"``, ``"1/3"``, 2, or the shortest decimal of a float.

    >>> fraction(0.1, "epsilon"), fraction(np.int64(3), "alpha")
    (Fraction(1, 10), Fraction(3, 1))
    """
    if isinstance(value, float | np.floating):
        value = repr(float(value))
    elif isinstance(value, Integral):
        value = int(value)  # a NumPy integer inside a Fraction would wrap at 64 bits
    try:
        return Fraction("too large" if isinstance(value, str) and _HUGE_EXPONENT.search(value) else value)
    except (ValueError, TypeError, ZeroDivisionError):
        raise error(field, value, 'must be a finite number such as 0.5 or "1/3"') from None


def double_at_least(value: Fraction) -> float:
    """The smallest double that is not below `value`: rounding up, so that a promise survives it.

    >>> double_at_least(Fraction(1, 10)) >= Fraction(1, 10)
    True
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def double_at_most(value: Fraction) -> float:
    """The largest double that is not above `value`."""
    return -double_at_least(-value)


def integers(values: Any, field: str, error: type[MurmurateError]) -> IntArray:
    """`values` as an int64 array; a float, a bool or a number beyond 64 bits is refused, never rounded."""
    array = np.asarray(values)
    if array.dtype == np.int64:
        return array
    if array.size and not (np.issubdtype(array.dtype, np.integer) and np.can_cast(array.dtype, np.int64)):
        raise error(field, array.dtype, "must be whole numbers that fit in 64 bits, not rounded ones")
    return array.astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meters:
    """The meter table at one version: who is in which zone, with which public bound.

    `bound_wh` caps what one meter may add to the demand of one interval [Wh]; the noise is measured by it.
    `imputed_wh` stands in for a meter that did not report: a public constant, never a guess from its past. Arrays are
    taken over, not copied: whoever hands them in leaves them alone from then on. `number` is what readings call a
    meter; without it meters are called 0, 1, 2 and so on.

    >>> Meters.in_one_zone("harbour", bound_wh=[3000, 9000])
    Meters(2 meters, 1 zone)
    >>> Meters.in_one_zone("harbour", bound_wh=[3000, 0])
    Traceback (most recent call last):
    murmurate.errors.MeterError: bound_wh[1] is 0: must be at least 1 Wh
    """

    zones: tuple[str, ...]
    zone: IntArray  # [meter] position in `zones`
    bound_wh: IntArray  # [meter]
    imputed_wh: IntArray  # [meter]
    number: IntArray | None = None  # [meter] ascending

    @classmethod
    def in_one_zone(cls, zone: str, bound_wh: Any, imputed_wh: Any = 0) -> Meters:
        bound, imputed = integers(bound_wh, "bound_wh", MeterError), integers(imputed_wh, "imputed_wh", MeterError)
        everyone = np.full(bound.shape, int(imputed)) if imputed.ndim == 0 else imputed
        return cls(zones=(zone,), zone=np.zeros(bound.shape, np.int64), bound_wh=bound, imputed_wh=everyone)

    def __post_init__(self) -> None:
        for name in ("zone", "bound_wh", "imputed_wh"):
            object.__setattr__(self, name, integers(getattr(self, name), name, MeterError))
        shapes = {self.zone.shape, self.bound_wh.shape, self.imputed_wh.shape}
        if len(shapes) != 1 or self.bound_wh.ndim != 1:
            raise MeterError("meters", sorted(shapes), "zone, bound_wh and imputed_wh must have one entry per meter")
        if len(set(self.zones)) != len(self.zones):
            raise MeterError("zones", self.zones, "must have different names")
        refuse_where(self.bound_wh < 1, "bound_wh", self.bound_wh, "must be at least 1 Wh", MeterError)
        outside = (self.imputed_wh < 0) | (self.imputed_wh > self.bound_wh)
        refuse_where(outside, "imputed_wh", self.imputed_wh, "must lie between 0 and bound_wh", MeterError)
        unknown = (self.zone < 0) | (self.zone >= len(self.zones))
        refuse_where(unknown, "zone", self.zone, f"must be below {len(self.zones)}, the number of zones", MeterError)
        self._check_numbers()
        if int(self.bound_wh.max(initial=0)) * len(self.bound_wh) >= 2**62:
            raise MeterError(
                "bound_wh", int(self.bound_wh.max()), "times the number of meters must stay below 2**62 Wh"
            )

    def _check_numbers(self) -> None:
        if self.number is None:
            return
        object.__setattr__(self, "number", integers(self.number, "meter", MeterError))
        if self.number.shape != self.zone.shape:
            raise MeterError("meter", self.number.shape, "must have one number per meter")
        outside = (self.number < 0) | (self.number >= 2**62)
        refuse_where(outside, "meter", self.number, "must be a number from 0 up", MeterError)
        again = np.diff(self.number, prepend=-1) < 1
        refuse_where(again, "meter", self.number, "must be in ascending order, each once", MeterError)

    def __len__(self) -> int:
        return len(self.bound_wh)

    def __repr__(self) -> str:
        return f"Meters({_count(len(self), 'meter')}, {_count(len(self.zones), 'zone')})"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def refuse_where(wrong: BoolArray, field: str, values: Any, allowed: str, error: type[MurmurateError]) -> None:
    """Raise `error` naming the first position at which `wrong` holds; do nothing where it never does."""
    if wrong.any():
        position = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
        raise error(f"{field}[{', '.join(map(str, position))}]", np.asarray(values)[position], allowed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """A batch of readings of one interval, as columns; any number of batches in any order make an interval.

    No reading is refused for its value: `gather` clips. `start_us` is the interval that each reading says it belongs
    to: a meter whose clock is wrong names another one.

    >>> Readings.of(meter=[0, 1], energy_wh=[250, -3])
    Readings(2 readings, confidential)
    >>> Readings.of(meter=[0, -1], energy_wh=[250, 3])
    Traceback (most recent call last):
    murmurate.errors.ReadingError: meter[1] is -1: must be the number of a meter
    """

    meter: IntArray  # [reading] number of the meter
    energy_wh: IntArray  # [reading]
    start_us: IntArray | None = None  # [reading] microseconds of UTC; None: all belong to the interval that is gathered

    @classmethod
    def of(cls, meter: Any, energy_wh: Any) -> Readings:
        """Readings of whole Wh of any value; a whole number beyond 64 bits counts as the nearest one within."""
        if isinstance(energy_wh, list | tuple) and all(type(one) is int for one in energy_wh):
            energy_wh = np.array([min(max(one, -(2**63)), 2**63 - 1) for one in energy_wh], np.int64)
        batch = cls(
            meter=integers(meter, "meter", ReadingError), energy_wh=integers(energy_wh, "energy_wh", ReadingError)
        )
        refuse_where(batch.meter < 0, "meter", batch.meter, "must be the number of a meter", ReadingError)
        return batch

    def __post_init__(self) -> None:
        shapes = tuple(column.shape for column in (self.meter, self.energy_wh, self.start_us) if column is not None)
        if len(set(shapes)) != 1 or self.meter.ndim != 1:
            raise ReadingError("readings", shapes, "meter and energy_wh must have the same length")

    def __len__(self) -> int:
        return len(self.meter)

    def __repr__(self) -> str:
        return f"Readings({_count(len(self), 'reading')}, confidential)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What the zones drew in one interval. Confidential: it prints its shape, never its numbers."""

    zones: tuple[str, ...]
    energy_wh: IntArray  # [zone]
    reported: IntArray  # [zone] meters that reported
    imputed: IntArray  # [zone] meters that did not
    bounds: tuple[Mapping[str, int] | None, ...] | None = None  # [zone] largest household bound by kind; None: unknown

    def of(self, zone: str) -> int:
        """The demand of one zone [Wh].

        >>> one = np.array([1])
        >>> Demand(zones=("harbour",), energy_wh=one, reported=one, imputed=one).of("hill")
        Traceback (most recent call last):
        murmurate.errors.UnknownZoneError: zone is 'hill': must be one of harbour
        """
        if zone not in self.zones:
            raise UnknownZoneError("zone", repr(zone), f"must be one of {', '.join(self.zones)}")
        return int(self.energy_wh[self.zones.index(zone)])

    def bounds_at(self, place: int) -> Mapping[str, int] | None:
        """The largest bound of a household in the zone at this position, by kind [Wh]; None where it is not known."""
        return None if self.bounds is None else self.bounds[place]

    def __repr__(self) -> str:
        return f"Demand({_count(len(self.zones), 'zone')}, confidential)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Prices ready to be published, one draw each. A rehearsal may be looked at, and never leaves the laboratory."""

    price_ticks: IntArray  # [release]
    tick: Fraction  # money/kWh of one tick
    noisy_wh: IntArray  # [release] the noised demand that each price was derived from
    scale_wh: FloatArray  # [release] scale of the noise
    rehearsal: bool

    def prices(self) -> list[Fraction]:
        """Prices [money/kWh], exactly."""
        return [int(ticks) * self.tick for ticks in self.price_ticks]
