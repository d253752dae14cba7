"""Units, exact numbers and checked arrays.

Energy is an integer number of Wh, a price an integer number of ticks, time a number of intervals. Only this file
converts between units. An *interval* is a period of time; a *tick* is the smallest price step.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import MurmurateError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

WH_PER_KWH = 1000
QUARTER_HOURS_PER_DAY = 96
SECONDS_PER_DAY = 86_400
MICRO = 10**6  # millionths of a whole
MICROSECONDS_PER_SECOND = 10**6
_HUGE_EXPONENT = re.compile(r"[eE][+-]?[0-9]{4}")  # such a number would need too much memory


def wh_to_kwh(energy_wh: int) -> Fraction:
    """Return energy in kWh, exactly.

    >>> wh_to_kwh(62_500)
    Fraction(125, 2)
    """
    return Fraction(int(energy_wh), WH_PER_KWH)


def per_kwh_to_per_wh(price_per_kwh: Fraction) -> Fraction:
    """Convert a quantity per kWh to a quantity per Wh, exactly.

    >>> per_kwh_to_per_wh(Fraction(1))
    Fraction(1, 1000)
    """
    return price_per_kwh / WH_PER_KWH


def parse_fraction(value: Any, field: str, error: type[MurmurateError] = MurmurateError) -> Fraction:
    """Return an exact number from ``"0.5"``, ``"1/3"``, 2, or the shortest decimal of a float.

    >>> parse_fraction(0.1, "epsilon"), parse_fraction(np.int64(3), "alpha")
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


def round_up_to_double(value: Fraction) -> float:
    """Return the smallest double that is not below `value`, so that rounding keeps a promise.

    >>> round_up_to_double(Fraction(1, 10)) >= Fraction(1, 10)
    True
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def round_down_to_double(value: Fraction) -> float:
    """Return the largest double that is not above `value`."""
    return -round_up_to_double(-value)


def as_int64_array(values: Any, field: str, error: type[MurmurateError]) -> IntArray:
    """Return `values` as an int64 array. Raises `error` for a float, a bool or a number beyond 64 bits."""
    array = np.asarray(values)
    if array.dtype == np.int64:
        return array
    if array.size and not (np.issubdtype(array.dtype, np.integer) and np.can_cast(array.dtype, np.int64)):
        raise error(field, array.dtype, "must be whole numbers that fit in 64 bits, not rounded ones")
    return array.astype(np.int64)


def raise_where(invalid: BoolArray, field: str, values: Any, allowed: str, error: type[MurmurateError]) -> None:
    """Raise `error` with the first position at which `invalid` is True, if there is one."""
    if invalid.any():
        position = tuple(int(i) for i in np.unravel_index(int(invalid.argmax()), invalid.shape))
        raise error(f"{field}[{', '.join(map(str, position))}]", np.asarray(values)[position], allowed)
