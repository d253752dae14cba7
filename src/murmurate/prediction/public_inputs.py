"""Public numbers that a price depends on, such as a temperature: what was posted, and what a tile states of it.

    "inputs": {"Mannheim temperature": {"ahead": 4100, "now": 4200}}

`now` is the value of the interval that was measured, `ahead` that of the interval that pays, both in thousandths. They
stand in the signed header of a tile, so every reader of the log computes the same price, and can compare the numbers
with their source. A value that was not known is not there: the price is then made as if it were usual.

A series must be public and must not be made from readings of the zones that it prices: nothing hides it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from murmurate.errors import ChainError, ModelError
from murmurate.types import is_zone_name

INPUTS = "inputs"  # among the extensions of a header
THOUSANDTHS = 1000
MAX_THOUSANDTHS = 10**15
MAX_INPUT_AGE_S = 6 * 3600  # for which a value stands in for a later one that is missing
SERIES_NAME_RULE = "must be a name such as 'Mannheim temperature', with the characters that a zone's name may have"


class InputValue(NamedTuple):
    """The value of a series, in thousandths; None: not known."""

    now: int | None = None  # in the interval that was measured
    ahead: int | None = None  # in the interval that pays

    @property
    def members(self) -> dict[str, int]:
        """Those that are known, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class InputSeries(NamedTuple):
    """Which series a forecast takes; an empty name: none, its value is taken as usual."""

    temperature: str = ""  # outdoors [degrees Celsius]
    irradiance: str = ""  # on the horizontal plane [W/m^2], as foreseen for the interval
    deviation: str = ""  # what all households use more than usual, as a share of their mean use

    @property
    def names(self) -> set[str]:
        """Those that are taken."""
        return set(self) - {""}

    def check(self) -> None:
        """Raise ModelError unless each name can stand in a header, and stands for one thing."""
        for role, name in self._asdict().items():
            if name:
                check_series_name(name, role)
        if len(self.names) < sum(map(bool, self)):
            raise ModelError("series", ", ".join(sorted(self.names)), "must be named once each")


NO_SERIES = InputSeries()
Inputs = Mapping[str, InputValue]  # by series
NO_INPUTS: Inputs = {}


def check_series_name(name: str, field: str) -> str:
    """Return the name of a series. Raises ModelError unless it can stand in a header and in an address."""
    if not is_zone_name(name):
        raise ModelError(field, repr(name), SERIES_NAME_RULE)
    return name


def to_extensions(inputs: Inputs) -> dict[str, Any]:
    """Return inputs as they stand in a header; nothing where none is known."""
    known = {series: value.members for series, value in inputs.items() if value.members}
    return {INPUTS: known} if known else {}


def from_extensions(extensions: Mapping[str, Any]) -> Inputs:
    """Return the inputs in the extensions of a header. Raises ChainError if they are none."""
    stated = extensions.get(INPUTS, {})
    readable = isinstance(stated, dict) and all(
        isinstance(members, dict) and members.keys() <= set(InputValue._fields) and _are_values(members.values())
        for members in stated.values()
    )
    if not readable:
        raise ChainError(INPUTS, "unreadable", "must be whole thousandths of now and ahead, by series")
    return {series: InputValue(**members) for series, members in stated.items()}


def _are_values(values: Collection[object]) -> bool:
    return all(type(value) is int and abs(value) <= MAX_THOUSANDTHS for value in values)


def select_inputs(
    values: Mapping[str, Mapping[int, int]], series: Collection[str], *, interval: int, lead: int, interval_s: int
) -> Inputs:
    """Return the inputs of a tile from what was posted: thousandths by series and interval.

    A value that is missing is taken from the latest interval before that has one, for six hours.

    >>> posted = {"temperature": {100: 4200, 102: 4500}}
    >>> select_inputs(posted, {"temperature"}, interval=101, lead=2, interval_s=900)
    {'temperature': InputValue(now=4200, ahead=4500)}
    """
    oldest = MAX_INPUT_AGE_S // interval_s

    def find(by_interval: Mapping[int, int], at: int) -> int | None:
        return next((by_interval[before] for before in range(at, at - oldest - 1, -1) if before in by_interval), None)

    chosen = {name: values[name] for name in sorted(series) if name in values}
    return {name: InputValue(find(each, interval), find(each, interval + lead)) for name, each in chosen.items()}
