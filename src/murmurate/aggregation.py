"""Aggregate readings to demand. The result does not depend on their order, their files or the number of machines.

The meter table is divided into shards, and each meter is in one shard. `tally_readings` sums the readings of one shard
in one interval and resolves repeated readings of a meter. Tallies of several shards merge in any order. The code uses
integer arithmetic and no randomness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from murmurate.errors import MeterError
from murmurate.types import Demand, Meters, Readings
from murmurate.units import IntArray

_NO_READING = np.iinfo(np.int64).min  # below every reading that is kept: those are clipped first


def aggregate(batches: Iterable[Readings], meters: Meters) -> Demand:
    """Sum the readings of each zone for one interval.

    A meter that reports twice counts once, with its largest value. A reading above `bound_wh` counts as the bound, one
    below `-export_bound_wh` as that. A meter that did not report counts as `imputed_wh`; where the table has none, its
    bounds are added to those of silent meters. A meter that is not in the table does not count. The order of the
    readings and their division into batches do not change the sum.

    Args:
        batches: The readings of the interval [Wh], in any number of batches.
        meters: The meter table.

    Returns:
        The demand of each zone of the table [Wh], without the bounds of households. It is confidential.

    Example:
        >>> import murmurate as mm
        >>> meters = mm.Meters.for_single_zone("harbour", bound_wh=[3000, 3000, 9000], imputed_wh=120)
        >>> first = mm.Readings.from_columns(meter=[2], energy_wh=[10_000])
        >>> second = mm.Readings.from_columns(meter=[0, 0], energy_wh=[250, 250])
        >>> mm.aggregate([first, second], meters).for_zone("harbour")
        9370
    """
    return demand_from_tally(tally_readings(batches, Shard.from_meters(meters)), meters.zones, shard_count=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Neighbouring shards of the meter table, prepared together for the tallies of any number of intervals."""

    shards: tuple[int, ...]
    meters: Meters
    zones: IntArray  # [zone of the shard] position in the list of all zones, ascending
    zone: IntArray  # [meter] position in `zones`
    meter_counts: IntArray  # [zone of the shard]
    least_wh: IntArray  # [meter] the smallest reading that counts: minus its export bound
    smallest_wh: int  # of all meters; 0: no meter may feed in
    sorted_by_zone: bool  # whether the meters are sorted by zone
    first_meter: int  # the lowest number of a meter
    row: IntArray | None  # [number - first] row of the meter, or past the end if unknown. None: row = number - first

    @classmethod
    def from_meters(cls, meters: Meters, *shards: int) -> Shard:
        meters_in_each = np.bincount(meters.zone)
        zones = np.flatnonzero(meters_in_each)
        position = np.zeros(len(meters_in_each), np.int64)
        position[zones] = np.arange(len(zones))
        zone = position[meters.zone]
        first = 0
        row: IntArray | None = None  # where the numbers have no gap
        if meters.number is not None and len(meters):
            first, last = int(meters.number[0]), int(meters.number[-1])
            if last - first + 1 != len(meters):
                row = np.full(last - first + 2, len(meters), np.int64)  # one more, for larger numbers
                row[meters.number - first] = np.arange(len(meters))
        return cls(
            shards=shards or (0,),
            meters=meters,
            zones=zones,
            zone=zone,
            meter_counts=meters_in_each[zones],
            least_wh=-meters.export_bound_wh,
            smallest_wh=-int(meters.export_bound_wh.max(initial=0)),
            sorted_by_zone=bool((zone[1:] >= zone[:-1]).all()),
            first_meter=first,
            row=row,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tally:
    """The partial demand of some shards in one interval. It is confidential: its text form shows no number."""

    shards: frozenset[int]
    zones: IntArray  # [zone of the shards] position in the list of all zones, ascending
    energy_wh: IntArray  # [zone of the shards]
    reported: IntArray  # [zone of the shards] meters that reported
    imputed: IntArray  # [zone of the shards] meters that did not report
    silent_bound_wh: IntArray  # [zone of the shards] sum of the bounds of silent meters without an imputed value
    silent_export_bound_wh: IntArray  # [zone of the shards] sum of their export bounds
    readings: int  # number of readings
    wrong_interval: int = 0  # readings that name another interval
    unknown_meter: int = 0  # readings of meters that are not in the table

    def __repr__(self) -> str:
        return f"Tally({len(self.shards)} shards, {len(self.zones)} zones, confidential)"


def tally_readings(batches: Iterable[Readings], shard: Shard, start_us: int | None = None) -> Tally:
    """Return the tally of these shards for the interval that begins at `start_us` [µs of UTC].

    Holds one number per meter of the shards, and one batch. See `aggregate` for the rules; a reading that names another
    interval than `start_us` does not count.
    """
    meters = shard.meters
    energy_by_row = np.full(len(meters) + 1, _NO_READING, np.int64)  # the last row is for unknown meters
    readings = wrong_interval = unknown = 0
    for batch in batches:
        row, energy_wh = batch.meter - shard.first_meter, batch.energy_wh
        if start_us is not None and batch.start_us is not None and not (here := batch.start_us == start_us).all():
            row, energy_wh = row[here], energy_wh[here]
        readings, wrong_interval = readings + len(batch), wrong_interval + len(batch) - len(row)
        size = len(meters) if shard.row is None else len(shard.row) - 1
        if not (inside := row.view(np.uint64) < size).all():  # one comparison: negative numbers become huge
            row = np.where(inside, row, size)
        row = row if shard.row is None else shard.row.take(row)  # one past the end: an unknown meter
        np.maximum.at(energy_by_row, row, np.maximum(energy_wh, shard.smallest_wh))
        if energy_by_row[-1] != _NO_READING:
            unknown += int(np.count_nonzero(row == len(meters)))
            energy_by_row[-1] = _NO_READING
    return _make_tally(
        energy_by_row[:-1], shard, readings=readings, wrong_interval=wrong_interval, unknown_meter=unknown
    )


def _make_tally(
    observed_wh: IntArray, shard: Shard, *, readings: int, wrong_interval: int, unknown_meter: int
) -> Tally:
    silent = observed_wh == _NO_READING
    energy_wh = np.minimum(observed_wh, shard.meters.bound_wh, out=observed_wh)
    if shard.smallest_wh:
        np.maximum(energy_wh, shard.least_wh, out=energy_wh)
    silent_bound_wh, silent_export_bound_wh = np.zeros((2, len(shard.zones)), np.int64)
    zone_of_silent = shard.zone[silent]
    if shard.meters.imputed_wh is not None:
        np.copyto(energy_wh, shard.meters.imputed_wh, where=silent)
    elif len(zone_of_silent):
        energy_wh[silent] = 0
        np.add.at(silent_bound_wh, zone_of_silent, shard.meters.bound_wh[silent])
        np.add.at(silent_export_bound_wh, zone_of_silent, shard.meters.export_bound_wh[silent])
    total = np.zeros(len(shard.zones), np.int64)
    if shard.sorted_by_zone and len(shard.zones):
        total = np.add.reduceat(energy_wh, np.cumsum(shard.meter_counts) - shard.meter_counts)
    else:
        np.add.at(total, shard.zone, energy_wh)
    imputed = np.bincount(zone_of_silent, minlength=len(shard.zones))
    return Tally(
        shards=frozenset(shard.shards),
        zones=shard.zones,
        energy_wh=total,
        reported=shard.meter_counts - imputed,
        imputed=imputed,
        silent_bound_wh=silent_bound_wh,
        silent_export_bound_wh=silent_export_bound_wh,
        readings=readings,
        wrong_interval=wrong_interval,
        unknown_meter=unknown_meter,
    )


def merge_tallies(tallies: Iterable[Tally]) -> Tally:
    """Merge tallies. The operation is associative and commutative. Raises MeterError if a shard would count twice."""
    parts = list(tallies)
    shards = frozenset[int]().union(*(part.shards for part in parts))
    if len(shards) != sum(len(part.shards) for part in parts):
        raise MeterError("shards", sorted(shards), "must each be tallied once: one would have counted twice")
    empty = np.zeros(0, np.int64)
    zones, position = np.unique(np.concatenate([empty, *(part.zones for part in parts)]), return_inverse=True)

    def total(column: str) -> IntArray:
        sums = np.zeros(len(zones), np.int64)
        np.add.at(sums, position, np.concatenate([empty, *(getattr(part, column) for part in parts)]))
        return sums

    return Tally(
        shards=shards,
        zones=zones,
        energy_wh=total("energy_wh"),
        reported=total("reported"),
        imputed=total("imputed"),
        silent_bound_wh=total("silent_bound_wh"),
        silent_export_bound_wh=total("silent_export_bound_wh"),
        readings=sum(part.readings for part in parts),
        wrong_interval=sum(part.wrong_interval for part in parts),
        unknown_meter=sum(part.unknown_meter for part in parts),
    )


def demand_from_tally(
    tally: Tally, zones: tuple[str, ...], shard_count: int, bounds: tuple[Mapping[str, int], ...] | None = None
) -> Demand:
    """Return the demand of every zone from the tally of all shards. `bounds` are the household bounds, if known."""
    if len(tally.shards) != shard_count:
        raise MeterError(
            "shards", f"{len(tally.shards)} of {shard_count}", "must all be tallied: demand would be missing"
        )

    def per_zone(column: IntArray) -> IntArray:
        full = np.zeros(len(zones), np.int64)
        full[tally.zones] = column
        return full

    return Demand(
        zones=zones,
        energy_wh=per_zone(tally.energy_wh),
        reported=per_zone(tally.reported),
        imputed=per_zone(tally.imputed),
        silent_bound_wh=per_zone(tally.silent_bound_wh),
        silent_export_bound_wh=per_zone(tally.silent_export_bound_wh),
        bounds=bounds,
        readings=tally.readings,
        wrong_interval=tally.wrong_interval,
        unknown_meter=tally.unknown_meter,
    )
