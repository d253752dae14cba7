"""The data of the pipeline: meters, readings, demand, release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from murmurate.errors import MeterError, MurmurateError, ReadingError, UnknownZoneError
from murmurate.units import FloatArray, IntArray, as_int64_array, raise_where

UNPROTECTED_KIND = "(public)"  # the kind of households whose occupancy is always public
MAX_ZONE_NAME_BYTES = 200  # in UTF-8; a file name has at most 255, with what is put before and after it
ZONE_NAME_RULE = (
    f"must have 1 to {MAX_ZONE_NAME_BYTES} bytes of printable characters, no slash or backslash, "
    "no dot or space at its beginning and no space at its end: it is a part of addresses"
)


def _zero() -> IntArray:
    return np.zeros((), np.int64)


def is_zone_name(name: str) -> bool:
    """Return whether a zone of this name can be read at an address.

    >>> [is_zone_name(name) for name in ("harbour", "Zürich, unter dem Berg", "east/1", "..", "", "two\\nlines")]
    [True, True, False, False, False, False]
    """
    return (
        name.isprintable()
        and 0 < len(name.encode()) <= MAX_ZONE_NAME_BYTES
        and not set(name) & {"/", "\\"}
        and name[0] not in ". "
        and name[-1] != " "
    )


def check_zone_name(name: str, field: str = "name") -> str:
    """Return the name of a new zone. Raises MurmurateError where no address could have it."""
    if not is_zone_name(name):
        raise MurmurateError(field, repr(name), ZONE_NAME_RULE)
    return name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meters:
    """The meter table at one version: the zone and the public bound of each meter.

    Arrays are not copied. The caller must not change them afterwards.

    Attributes:
        zones: Names of the zones, each once.
        zone: Position of each meter's zone in `zones` [meter].
        bound_wh: The most that a meter may add to the demand of one interval, public, 1 or more [Wh, meter]. The scale
            of the noise depends on it.
        imputed_wh: What counts for a meter that did not report, from `-export_bound_wh` to `bound_wh` [Wh, meter]. It
            is a public constant, not an estimate from past readings. None means that such a meter counts as a public
            share of its bound, which the release knows (`Demand.silent_bound_wh`).
        export_bound_wh: The most that a meter may feed in within one interval, public, 0 or more [Wh, meter]; one
            number stands for all meters. The scale of the noise depends on `bound_wh + export_bound_wh`.
        number: Numbers by which readings name the meters, ascending [meter]; None means 0, 1, 2, ...

    Raises:
        MeterError: The arrays differ in length, a bound is below 1 Wh, an export bound is below 0, an imputed value is
            out of range, a zone does not exist, or a number is not ascending.

    Example:
        >>> import murmurate as mm
        >>> mm.Meters(zones=("harbour", "hill"), zone=[0, 1], bound_wh=[3000, 9000], imputed_wh=[120, 0])
        Meters(2 meters, 2 zones)
    """

    zones: tuple[str, ...]
    zone: IntArray  # [meter] position in `zones`
    bound_wh: IntArray  # [meter]
    imputed_wh: IntArray | None = None  # [meter]
    export_bound_wh: IntArray = field(default_factory=_zero)  # [meter]
    number: IntArray | None = None  # [meter] ascending

    @classmethod
    def for_single_zone(cls, zone: str, bound_wh: Any, imputed_wh: Any = None, export_bound_wh: Any = 0) -> Meters:
        """Return the meter table of one zone, with meters 0, 1, 2, ...

        Args:
            zone: Name of the zone.
            bound_wh: The most that a meter may add to the demand of one interval [Wh, meter].
            imputed_wh: What counts for a meter that did not report: one number for all meters, or one for each [Wh];
                None: a public share of its bound.
            export_bound_wh: The most that a meter may feed in: one number for all meters, or one for each [Wh].

        Returns:
            The meter table.

        Raises:
            MeterError: A bound is below 1 Wh, or an imputed value is not between `-export_bound_wh` and the bound.

        Example:
            >>> import murmurate as mm
            >>> mm.Meters.for_single_zone("harbour", bound_wh=[3000, 9000])
            Meters(2 meters, 1 zone)
            >>> mm.Meters.for_single_zone("harbour", bound_wh=[3000, 0])
            Traceback (most recent call last):
            murmurate.errors.MeterError: bound_wh[1] is 0: must be at least 1 Wh
        """
        bound = as_int64_array(bound_wh, "bound_wh", MeterError)
        return cls(
            zones=(zone,),
            zone=np.zeros(bound.shape, np.int64),
            bound_wh=bound,
            imputed_wh=imputed_wh,
            export_bound_wh=export_bound_wh,
        )

    def __post_init__(self) -> None:
        names = ["zone", "bound_wh", "export_bound_wh", *(["imputed_wh"] if self.imputed_wh is not None else [])]
        for name in names:
            column = as_int64_array(getattr(self, name), name, MeterError)
            if column.ndim == 0 and name not in {"zone", "bound_wh"}:
                column = np.full(self.bound_wh.shape, int(column))
            object.__setattr__(self, name, column)
        shapes = {getattr(self, name).shape for name in names}
        if len(shapes) != 1 or self.bound_wh.ndim != 1:
            raise MeterError("meters", sorted(shapes), "zone, bound_wh and imputed_wh must have one entry per meter")
        if len(set(self.zones)) != len(self.zones):
            raise MeterError("zones", self.zones, "must have different names")
        raise_where(self.bound_wh < 1, "bound_wh", self.bound_wh, "must be at least 1 Wh", MeterError)
        export = self.export_bound_wh
        raise_where(export < 0, "export_bound_wh", export, "must be 0 Wh or more", MeterError)
        if self.imputed_wh is not None:
            outside = (self.imputed_wh < -export) | (self.imputed_wh > self.bound_wh)
            least = "-export_bound_wh" if export.any() else "0"
            raise_where(outside, "imputed_wh", self.imputed_wh, f"must lie between {least} and bound_wh", MeterError)
        unknown = (self.zone < 0) | (self.zone >= len(self.zones))
        raise_where(unknown, "zone", self.zone, f"must be below {len(self.zones)}, the number of zones", MeterError)
        largest_wh = int(self.bound_wh.max(initial=0)) + int(export.max(initial=0))
        if largest_wh * len(self.bound_wh) >= 2**62:
            name = "bound_wh + export_bound_wh" if export.any() else "bound_wh"
            raise MeterError(name, largest_wh, "times the number of meters must stay below 2**62 Wh")
        if self.number is None:
            return
        object.__setattr__(self, "number", as_int64_array(self.number, "meter", MeterError))
        if self.number.shape != self.zone.shape:
            raise MeterError("meter", self.number.shape, "must have one number per meter")
        outside = (self.number < 0) | (self.number >= 2**62)
        raise_where(outside, "meter", self.number, "must be a number from 0 up", MeterError)
        again = np.zeros(len(self.number), bool)
        np.less_equal(self.number[1:], self.number[:-1], out=again[1:])
        raise_where(again, "meter", self.number, "must be in ascending order, each once", MeterError)

    def __len__(self) -> int:
        return len(self.bound_wh)

    def __repr__(self) -> str:
        return f"Meters({_count(len(self), 'meter')}, {_count(len(self.zones), 'zone')})"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """A batch of readings of one interval, as columns. An interval may have any number of batches in any order.

    No reading is refused for its value: `aggregate` clips it. The text form shows no value.

    Attributes:
        meter: Number of the meter [reading].
        energy_wh: Energy drawn in the interval, below zero where the meter fed in [Wh, reading].
        start_us: Start of the interval that the reading names [µs since 1970 UTC, reading]; None means that all
            readings belong to the interval that is aggregated.

    Raises:
        ReadingError: The columns differ in length.

    Example:
        >>> import murmurate as mm
        >>> mm.Readings.from_columns(meter=[0, 1], energy_wh=[250, -3])
        Readings(2 readings, confidential)
    """

    meter: IntArray  # [reading] number of the meter
    energy_wh: IntArray  # [reading]
    start_us: IntArray | None = None  # [reading] microseconds of UTC

    @classmethod
    def from_columns(cls, meter: Any, energy_wh: Any) -> Readings:
        """Return a batch from two columns of whole numbers.

        Args:
            meter: Number of the meter, 0 or more [reading].
            energy_wh: Energy drawn in the interval, any whole number [Wh, reading]. A Python integer beyond 64 bits
                counts as the nearest one within.

        Returns:
            The batch.

        Raises:
            ReadingError: A column holds something other than whole numbers, a meter number is negative, or the columns
                differ in length.

        Example:
            >>> import murmurate as mm
            >>> mm.Readings.from_columns(meter=[0, -1], energy_wh=[250, 3])
            Traceback (most recent call last):
            murmurate.errors.ReadingError: meter[1] is -1: must be the number of a meter
        """
        if isinstance(energy_wh, list | tuple) and all(type(wh) is int for wh in energy_wh):
            energy_wh = np.array([min(max(wh, -(2**63)), 2**63 - 1) for wh in energy_wh], np.int64)
        batch = cls(
            meter=as_int64_array(meter, "meter", ReadingError),
            energy_wh=as_int64_array(energy_wh, "energy_wh", ReadingError),
        )
        raise_where(batch.meter < 0, "meter", batch.meter, "must be the number of a meter", ReadingError)
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
    """The demand of each zone in one interval. Confidential: the text form shows no number.

    Attributes:
        zones: Names of the zones.
        energy_wh: Demand, below zero where the zone feeds in [Wh, zone]. Silent meters without an imputed value are not
            in it: see `silent_bound_wh`.
        reported: Meters that reported [zone].
        imputed: Meters that did not report [zone].
        silent_bound_wh: Sum of `bound_wh` of the meters that did not report and have no imputed value [Wh, zone]. A
            release adds a public share of it (`fill_silent_meters`).
        silent_export_bound_wh: Sum of their `export_bound_wh` [Wh, zone].
        bounds: For each zone the largest range of a household by kind, the sum of `bound_wh + export_bound_wh` over its
            meters [Wh]; None where it is unknown.
        readings: Number of readings it was summed from, with those that were left out.
        wrong_interval: Readings left out because they name another interval.
        unknown_meter: Readings left out because their meter is not in the table.

    Example:
        >>> import murmurate as mm
        >>> meters = mm.Meters.for_single_zone("harbour", bound_wh=[3000, 3000], imputed_wh=120)
        >>> demand = mm.aggregate([mm.Readings.from_columns(meter=[0], energy_wh=[250])], meters)
        >>> demand, demand.reported.tolist(), demand.imputed.tolist()
        (Demand(1 zone, confidential), [1], [1])
    """

    zones: tuple[str, ...]
    energy_wh: IntArray  # [zone]
    reported: IntArray  # [zone] meters that reported
    imputed: IntArray  # [zone] meters that did not
    silent_bound_wh: IntArray = field(default_factory=_zero)  # [zone]
    silent_export_bound_wh: IntArray = field(default_factory=_zero)  # [zone]
    bounds: tuple[Mapping[str, int] | None, ...] | None = None  # [zone] largest range of a household by kind
    readings: int = 0
    wrong_interval: int = 0  # of the readings: left out
    unknown_meter: int = 0  # of the readings: left out

    def __post_init__(self) -> None:
        for name in ("silent_bound_wh", "silent_export_bound_wh"):
            object.__setattr__(self, name, np.broadcast_to(getattr(self, name), self.energy_wh.shape))

    def for_zone(self, zone: str) -> int:
        """Return the demand of one zone.

        Args:
            zone: Name of the zone.

        Returns:
            The demand [Wh].

        Raises:
            UnknownZoneError: There is no such zone.

        Example:
            >>> import murmurate as mm
            >>> demand = mm.aggregate([], mm.Meters.for_single_zone("harbour", bound_wh=[3000], imputed_wh=120))
            >>> demand.for_zone("harbour")
            120
            >>> demand.for_zone("hill")
            Traceback (most recent call last):
            murmurate.errors.UnknownZoneError: zone is 'hill': must be one of harbour
        """
        if zone not in self.zones:
            raise UnknownZoneError("zone", repr(zone), f"must be one of {', '.join(self.zones)}")
        return int(self.energy_wh[self.zones.index(zone)])

    def bounds_at(self, zone_index: int) -> Mapping[str, int] | None:
        """Return the largest range of a household in one zone, by kind.

        Args:
            zone_index: Position of the zone in `zones`.

        Returns:
            The largest range of each kind [Wh], or None where the bounds are unknown.

        Example:
            >>> import murmurate as mm
            >>> mm.aggregate([], mm.Meters.for_single_zone("harbour", bound_wh=[3000])).bounds_at(0) is None
            True
        """
        return None if self.bounds is None else self.bounds[zone_index]

    def __repr__(self) -> str:
        return f"Demand({_count(len(self.zones), 'zone')}, confidential)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Prices that are ready to be published, each from one draw of noise.

    Attributes:
        price_ticks: Price [ticks, release].
        tick: Value of one tick [money/kWh].
        noisy_wh: Demand with noise, from which the price was computed [Wh, release].
        scale_wh: Scale of the noise [Wh, release].
        test_only: Whether the noise came from a seed. Such a release must not be published.

    Example:
        >>> import murmurate as mm
        >>> curve = mm.RateCurve.affine(alpha="0.001", beta="0.08", tick="0.00001")
        >>> mm.protect([177_250], scale_wh=6000, curve=curve, noise=mm.SeededNoise(1)).test_only
        True
    """

    price_ticks: IntArray  # [release]
    tick: Fraction  # money/kWh of one tick
    noisy_wh: IntArray  # [release] the noised demand that each price was derived from
    scale_wh: FloatArray  # [release] scale of the noise
    test_only: bool

    def __repr__(self) -> str:
        return f"Release({_count(self.price_ticks.size, 'price')}{', test_only' if self.test_only else ''})"

    def prices(self) -> list[Fraction]:
        """Return the prices as exact fractions [money/kWh, release]."""
        return [int(ticks) * self.tick for ticks in self.price_ticks]
