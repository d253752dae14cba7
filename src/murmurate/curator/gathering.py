"""Gather: readings become demand, the same whatever their order, their files and the number of machines.

The meter table is cut into shards. `tally` adds up the readings of one shard in one interval; it alone decides which
of two readings of a meter counts, so no meter is in two shards. Tallies of several shards merge in any order.
Everything is integer arithmetic, nothing is random.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from murmurate.errors import MeterError
from murmurate.quantities import Demand, IntArray, Meters, Readings

_SILENT = -1


def gather(batches: Iterable[Readings], meters: Meters) -> Demand:
    """Sum what the meters of each zone report for one interval [Wh].

    A meter that reports twice counts once, with its largest value; a reading above `bound_wh` counts as the bound, one
    below zero as zero; a silent meter counts as `imputed_wh`; a meter that is not in the table does not count. Each of
    them is the same whatever the order and the batches. The bounds of the households are not known to the demand.

    >>> meters = Meters.in_one_zone("harbour", bound_wh=[3000, 3000, 9000], imputed_wh=120)
    >>> late_first = [Readings.of(meter=[2], energy_wh=[10_000]), Readings.of(meter=[0, 0], energy_wh=[250, 250])]
    >>> gather(late_first, meters).of("harbour")
    9370
    """
    return demand(tally(batches, Shard.of(meters)), meters.zones, shards=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """A part of the meter table, made ready to tally any number of intervals."""

    shard: int
    meters: Meters
    zones: IntArray  # [zone of the shard] position in the list of all zones, ascending
    zone: IntArray  # [meter] position in `zones`
    meters_in: IntArray  # [zone of the shard]
    in_order: bool  # whether the meters of a zone lie together, zone after zone
    first: int  # the lowest number of a meter
    row: (
        IntArray | None
    )  # [number - first] row of the meter; past the end where there is none. None: row = number - first

    @classmethod
    def of(cls, meters: Meters, shard: int = 0) -> Shard:
        meters_in_each = np.bincount(meters.zone)
        zones = np.flatnonzero(meters_in_each)
        position = np.zeros(len(meters_in_each), np.int64)
        position[zones] = np.arange(len(zones))
        zone = position[meters.zone]
        first, row = _rows(meters)
        return cls(
            shard=shard,
            meters=meters,
            zones=zones,
            zone=zone,
            meters_in=meters_in_each[zones],
            in_order=bool((zone[1:] >= zone[:-1]).all()),
            first=first,
            row=row,
        )


def _rows(meters: Meters) -> tuple[int, IntArray | None]:
    """How a number becomes a row: a subtraction where no number is missing, a table where some are."""
    if meters.number is None or not len(meters):
        return 0, None
    first, last = int(meters.number[0]), int(meters.number[-1])
    if last - first + 1 == len(meters):
        return first, None
    row = np.full(last - first + 2, len(meters), np.int64)  # one more, for numbers beyond
    row[meters.number - first] = np.arange(len(meters))
    return first, row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tally:
    """What some shards add to the demand of one interval. Confidential: it prints its shape, never its numbers."""

    shards: frozenset[int]
    zones: IntArray  # [zone of the shards] position in the list of all zones, ascending
    energy_wh: IntArray  # [zone of the shards]
    reported: IntArray  # [zone of the shards] meters that did
    imputed: IntArray  # [zone of the shards] meters that did not
    readings: int  # how many were seen
    astray: int = 0  # of these, say that they belong to another interval
    unknown: int = 0  # of these, come from meters that the table does not have

    def __repr__(self) -> str:
        return f"Tally({len(self.shards)} shards, {len(self.zones)} zones, confidential)"


def tally(batches: Iterable[Readings], shard: Shard, start_us: int | None = None) -> Tally:
    """What one shard adds to the demand of the interval that begins at `start_us` [µs of UTC].

    Holds one number per meter of the shard, and one batch. See `gather` for the rules; a reading that names another
    interval than `start_us` does not count.
    """
    meters = shard.meters
    heard = np.full(len(meters) + 1, _SILENT, np.int64)  # the last place is for strangers
    readings = astray = unknown = 0
    for batch in batches:
        row, energy_wh = batch.meter - shard.first, batch.energy_wh
        if start_us is not None and batch.start_us is not None and not (here := batch.start_us == start_us).all():
            row, energy_wh = row[here], energy_wh[here]
        readings, astray = readings + len(batch), astray + len(batch) - len(row)
        row = _row_or_stranger(row, shard)
        unknown += int(np.count_nonzero(row == len(meters)))
        np.maximum.at(heard, row, np.maximum(energy_wh, 0))
    return _add_up(heard[:-1], shard, readings=readings, astray=astray, unknown=unknown)


def _row_or_stranger(offset: IntArray, shard: Shard) -> IntArray:
    """Rows of the table from numbers less the first; one past the end for a meter that is not there."""
    size = len(shard.meters) if shard.row is None else len(shard.row) - 1
    if not (inside := offset.view(np.uint64) < size).all():  # one comparison: a negative number is a huge one
        offset = np.where(inside, offset, size)
    return offset if shard.row is None else shard.row.take(offset)


def _add_up(heard: IntArray, shard: Shard, *, readings: int, astray: int, unknown: int) -> Tally:
    silent = heard == _SILENT
    energy_wh = np.minimum(heard, shard.meters.bound_wh)
    np.copyto(energy_wh, shard.meters.imputed_wh, where=silent)
    total = _by_zone(energy_wh, shard)
    imputed = np.bincount(shard.zone[silent], minlength=len(shard.zones))
    return Tally(
        shards=frozenset({shard.shard}),
        zones=shard.zones,
        energy_wh=total,
        reported=shard.meters_in - imputed,
        imputed=imputed,
        readings=readings,
        astray=astray,
        unknown=unknown,
    )


def _by_zone(energy_wh: IntArray, shard: Shard) -> IntArray:
    if shard.in_order and len(shard.zones):
        return np.add.reduceat(energy_wh, np.cumsum(shard.meters_in) - shard.meters_in)
    total = np.zeros(len(shard.zones), np.int64)
    np.add.at(total, shard.zone, energy_wh)
    return total


def merge(tallies: Iterable[Tally]) -> Tally:
    """The tally of all the shards together: associative, commutative, and refused where a shard would count twice."""
    parts = list(tallies)
    shards = frozenset[int]().union(*(part.shards for part in parts))
    if len(shards) != sum(len(part.shards) for part in parts):
        raise MeterError("shards", sorted(shards), "must each be tallied once: one would have counted twice")
    nothing = np.zeros(0, np.int64)
    zones, place = np.unique(np.concatenate([nothing, *(part.zones for part in parts)]), return_inverse=True)

    def total(column: str) -> IntArray:
        sums = np.zeros(len(zones), np.int64)
        np.add.at(sums, place, np.concatenate([nothing, *(getattr(part, column) for part in parts)]))
        return sums

    return Tally(
        shards=shards,
        zones=zones,
        energy_wh=total("energy_wh"),
        reported=total("reported"),
        imputed=total("imputed"),
        readings=sum(part.readings for part in parts),
        astray=sum(part.astray for part in parts),
        unknown=sum(part.unknown for part in parts),
    )


def demand(
    whole: Tally, zones: tuple[str, ...], shards: int, bounds: tuple[Mapping[str, int], ...] | None = None
) -> Demand:
    """The demand of every zone, once every shard has been tallied. `bounds` are those of its households, if known."""
    if len(whole.shards) != shards:
        raise MeterError("shards", f"{len(whole.shards)} of {shards}", "must all be tallied: demand would be missing")

    def everywhere(column: IntArray) -> IntArray:
        full = np.zeros(len(zones), np.int64)
        full[whole.zones] = column
        return full

    return Demand(
        zones=zones,
        energy_wh=everywhere(whole.energy_wh),
        reported=everywhere(whole.reported),
        imputed=everywhere(whole.imputed),
        bounds=bounds,
    )
