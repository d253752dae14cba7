"""Read the readings that `murmurate readings import` wrote: evaluate, backtest, habits and forecast read no other form.

Where a file names the household of each meter, the readings of its meters are added up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import ReadingError
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY, BoolArray, IntArray

MIN_HOUSEHOLDS, MIN_DAYS = 200, 35  # of an evaluation
BELOW_ZERO_NOTE = "Some readings are below zero, because meters feed in. This command counts them as zero."
MAX_MISSING_SHARE = 0.1  # of the readings of a meter whose household is billed
_EVALUATED_S = 900  # length of an interval of an evaluation
MAX_EVALUATED_MISSING = 0.2  # of the readings of a meter whose household is evaluated
_COLUMN_TYPES = {  # as Arrow prints them
    "timestamp": "timestamp[ms, tz=",
    "interval_start": "timestamp[ms, tz=UTC]",
    "meter_id": "string",
    "energy_wh": "int64",
    "zone": "string",
    "kind": "string",
    "household": "string",
    "occupied": "bool",
}


class _ImportedFile:
    """An imported file in memory. Its meters are numbered in the order in which they appear."""

    def __init__(self, path: Path, *, has_occupancy: bool = False) -> None:
        """Read a file. Raises ReadingError, with how to import it, unless `murmurate readings import` wrote it."""
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - the laboratory does without, except for readings

        def refuse(what: str) -> NoReturn:
            allowed = f"must be the readings.parquet that murmurate readings import {path} --out imported writes"
            raise ReadingError(str(path), what, allowed)

        try:
            types = {field.name: str(field.type) for field in parquet.read_schema(path)}
            optional = {"household": "household" in types, "occupied": has_occupancy}
            names = [name for name in _COLUMN_TYPES if optional.get(name, True)]
            missing = [name for name in names if not types.get(name, "").startswith(_COLUMN_TYPES[name])]
            if missing:
                refuse(f"without the column {missing[0]}" + " of its type" * (missing[0] in types))
            table = parquet.read_table(path, columns=names, partitioning=None)
        except ArrowException:
            refuse("not a Parquet file")
        if not len(table) or any(column.null_count for column in table.columns):
            refuse("with empty cells" if len(table) else "without readings")
        self._path, self._table = path, table
        self.is_below_zero: BoolArray = table["energy_wh"].to_numpy() < 0
        self.start_s: IntArray = table["interval_start"].cast("int64").to_numpy() // 1000
        self.meters, self.meter = self._read_text("meter_id")
        self.is_by_meter = "household" not in names
        self.zone, self.kind = self._text_of_meters("zone"), self._text_of_meters("kind")
        self.household = self.meters if self.is_by_meter else self._text_of_meters("household")

    def _read_text(self, name: str) -> tuple[list[str], IntArray]:
        """Return the distinct values of a column, and the number of the value of each row."""
        encoded = self._table[name].combine_chunks().dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

    def _text_of_meters(self, name: str) -> list[str]:
        values, number = self._read_text(name)
        first = np.zeros(len(self.meters), np.int64)
        first[self.meter[::-1]] = np.arange(len(self.meter))[::-1]
        of_meter = number[first]
        if (of_meter[self.meter] != number).any():
            allowed = "must have one in all its rows"
            raise ReadingError(str(self._path), f"with several values of {name} for one meter", allowed)
        return [values[at] for at in of_meter.tolist()]

    def utc_offset_s(self) -> int:
        """Return local time minus UTC at the first reading [s]."""
        return 60 * utc_offset_min(self._table.schema.field("timestamp").type.tz, int(self.start_s[0]))

    def count_intervals(self, interval_s: int) -> IntArray:
        """Return the interval of each row, counted from 1970 in UTC. Raises ReadingError if one begins between two."""
        if (self.start_s % interval_s).any():
            allowed = (
                f"must begin on an interval of {interval_s // 60} min: murmurate readings import --interval-minutes"
            )
            raise ReadingError(str(self._path), "with other times", f"{allowed} {interval_s // 60}")
        return np.asarray(self.start_s // interval_s)

    def fill_table(
        self, column: str, interval: IntArray, first: int, length: int, *, lowest: float = 0
    ) -> NDArray[np.float32]:
        """Return the values of some intervals, NaN where there is none [interval, meter]. `interval` is of rows.

        A value below the lowest counts as that.
        """
        used = (interval >= first) & (interval < first + length)
        table = np.full((length, len(self.meters)), np.nan, np.float32)
        values = np.maximum(self._table[column].to_numpy(), lowest).astype(np.float32)
        table[interval[used] - first, self.meter[used]] = values[used]
        if int((~np.isnan(table)).sum()) < int(used.sum()):
            raise ReadingError(str(self._path), "with several readings of one meter in an interval", "must have one")
        return table


@dataclass(frozen=True, slots=True, eq=False)
class PastReadings:
    """Readings of some households in successive intervals, without gaps."""

    energy_wh: NDArray[Any]  # [interval, household] net energy: of an evaluation, below zero where a home feeds in
    first_interval: int  # counted from 1970: in UTC; of an evaluation, on the local clock of the first reading
    interval_s: int
    names: tuple[str, ...]  # of the households
    kinds: tuple[str, ...]  # of the households; empty: not known
    left_out: int = 0  # households with a meter of which too many readings are missing
    filled: int = 0  # readings that were missing, replaced by the meter's mean at that time of day
    is_by_meter: bool = False  # the file names no household: each meter is taken for one
    below_zero: int = 0  # readings of meters that feed in; in a back-test they count as 0: see `BELOW_ZERO_NOTE`
    utc_offset_s: int = 0  # of the clock that an evaluation counts intervals on
    silent: BoolArray | None = None  # [interval, household] a reading of it was missing; None: not known

    @property
    def households(self) -> int:
        return len(self.names)

    @property
    def intervals(self) -> int:
        return len(self.energy_wh)

    @property
    def days(self) -> int:
        return self.intervals * self.interval_s // SECONDS_PER_DAY

    @property
    def first_day(self) -> int:
        """The day of the first interval, counted from 1970-01-01."""
        return self.first_interval * self.interval_s // SECONDS_PER_DAY


def read_past_readings(path: Path, interval_s: int, zone: str) -> PastReadings:
    """Read the readings of a zone, in intervals of its plan. Raises ReadingError if they cannot be used."""
    rows = _ImportedFile(path)
    interval = rows.count_intervals(interval_s)
    meters = np.flatnonzero([name == zone for name in rows.zone])
    if not len(meters):
        allowed = f"must have readings of the zone of the plan; its zones are {', '.join(sorted(set(rows.zone)))}"
        raise ReadingError(str(path), f"without a reading of zone {zone!r}", allowed)
    used = interval[np.isin(rows.meter, meters)]
    first, slots = int(used.min()), SECONDS_PER_DAY // interval_s
    if (length := int(used.max()) + 1 - first) < slots:
        raise ReadingError(str(path), f"{length} intervals long", f"must cover a day, {slots} intervals of the plan")
    found = _join_meters(rows, meters, interval, first, length, interval_s, MAX_MISSING_SHARE)
    if not found.names:
        said = f"without a household that has 90 % of its {length:,} intervals of {interval_s // 60} min"
        allowed = (
            "must have readings at the interval of the plan; murmurate readings import --interval-minutes makes them"
        )
        raise ReadingError(str(path), said, allowed)
    return replace(found, energy_wh=np.rint(found.energy_wh).astype(np.int32))


def read_households(path: Path) -> PastReadings:
    """Read the whole local days of a file for an evaluation. Raises ReadingError if they cannot be used."""
    rows = _ImportedFile(path)
    slots = SECONDS_PER_DAY // _EVALUATED_S
    interval = rows.count_intervals(_EVALUATED_S) + rows.utc_offset_s() // _EVALUATED_S
    first_day = -(-int(interval.min()) // slots)
    days = (int(interval.max()) + 1) // slots - first_day
    if days < MIN_DAYS:
        said = "1 whole day long" if days == 1 else f"{max(days, 0)} whole days long"
        raise ReadingError(str(path), said, f"must cover {MIN_DAYS} days: import the weeks before it as well")
    meters = np.arange(len(rows.meters))
    first, length = first_day * slots, days * slots
    missing = MAX_EVALUATED_MISSING
    found = _join_meters(rows, meters, interval, first, length, _EVALUATED_S, missing, lowest=-np.inf)
    if found.households < MIN_HOUSEHOLDS:
        said = f"with {found.households} households that have {1 - missing:.0%} of their quarter hours"
        raise ReadingError(str(path), said, f"must have {MIN_HOUSEHOLDS} of them, in quarter hours")
    return replace(found, utc_offset_s=rows.utc_offset_s())


def _join_meters(
    rows: _ImportedFile,
    meters: IntArray,
    interval: IntArray,
    first: int,
    length: int,
    interval_s: int,
    max_missing: float,
    lowest: float = 0,
) -> PastReadings:
    """Fill the gaps of some meters and add up the meters of each household.

    A reading below the lowest counts as that.
    """
    table = rows.fill_table("energy_wh", interval, first, length, lowest=lowest)[:, meters]
    household = [rows.household[meter] for meter in meters.tolist()]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(household))}
    number = np.array([numbers[name] for name in household])
    missing = np.isnan(table)
    kept = np.bincount(number, weights=missing.mean(axis=0) > max_missing) == 0
    is_used = kept[number]
    position = (np.cumsum(kept) - 1)[number[is_used]]  # [meter] of its household among those that are kept
    energy_wh = np.zeros((length, int(kept.sum())), np.float32)
    silent = np.zeros(energy_wh.shape, np.bool_)
    filled = fill_gaps(table[:, is_used], SECONDS_PER_DAY // interval_s)
    for column, of_meter, gaps in zip(position.tolist(), filled.T, missing[:, is_used].T, strict=True):
        energy_wh[:, column] += of_meter
        silent[:, column] |= gaps
    _, first_meter = np.unique(number, return_index=True)
    return PastReadings(
        energy_wh=energy_wh,
        first_interval=first,
        interval_s=interval_s,
        names=tuple(household[at] for at in first_meter[kept].tolist()),
        kinds=tuple(rows.kind[int(meters[at])] for at in first_meter[kept].tolist()),
        left_out=int((~kept).sum()),
        filled=int(missing[:, is_used].sum()),
        is_by_meter=rows.is_by_meter,
        below_zero=int((rows.is_below_zero & np.isin(rows.meter, meters)).sum()),
        silent=silent,
    )


def fill_gaps(table: NDArray[np.float32], slots: int) -> NDArray[np.float32]:
    """Put the meter's mean at that time of day where a reading is missing [interval, meter].

    >>> fill_gaps(np.array([[1], [5], [3], [np.nan], [np.nan]], np.float32), slots=2).ravel().tolist()
    [1.0, 5.0, 3.0, 5.0, 2.0]
    """
    filled = table.copy()
    for slot in range(min(slots, len(table))):
        of_slot = filled[slot::slots]
        seen = ~np.isnan(of_slot)
        mean = np.where(seen, of_slot, 0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
        filled[slot::slots] = np.where(seen, of_slot, mean)
    return filled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabeledSample:
    """Readings of consenting households with known occupancy. No reading is missing; below zero they feed in."""

    energy_wh: IntArray  # [interval, household]
    occupied: BoolArray  # [interval, household]
    kind: tuple[str, ...]  # [household]
    first_s: int  # begin of the first interval [s of UTC]
    utc_offset_s: int  # of the local clock at the first interval


def read_sample(path: Path, interval_s: int, *, needs_occupancy: bool = True) -> LabeledSample:
    """Read an imported file of a sample. Raises ReadingError if it has another interval, or a gap."""
    rows = _ImportedFile(path, has_occupancy=needs_occupancy)
    interval = rows.count_intervals(interval_s)
    first, length = int(interval.min()), int(np.ptp(interval)) + 1
    names = list(dict.fromkeys(rows.household))
    number = np.array([names.index(name) for name in rows.household])
    energy = rows.fill_table("energy_wh", interval, first, length, lowest=-np.inf)
    if np.isnan(energy).any():
        allowed = f"must have one for each of {length:,} intervals of {interval_s // 60} min and each meter"
        raise ReadingError(str(path), f"with {len(interval):,} readings", allowed)
    occupied = rows.fill_table("occupied", interval, first, length) if needs_occupancy else np.zeros_like(energy)
    energy_wh = np.zeros((length, len(names)), np.int64)
    is_home = np.zeros((length, len(names)), np.bool_)
    for meter, household in enumerate(number.tolist()):
        energy_wh[:, household] += energy[:, meter].astype(np.int64)
        is_home[:, household] |= occupied[:, meter] > 0
    kind = tuple(rows.kind[int(at)] for at in np.unique(number, return_index=True)[1])
    return LabeledSample(
        energy_wh=energy_wh,
        occupied=is_home,
        kind=kind,
        first_s=first * interval_s,
        utc_offset_s=rows.utc_offset_s(),
    )
