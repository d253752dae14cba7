"""The meters that may send readings, their zones, and the keys of those that sign."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from murmurate.errors import MeterError
from murmurate.public_log.signing import check_public_key
from murmurate.service.landing.meter_table import read_table
from murmurate.units import BoolArray, IntArray

NOT_FOUND = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeterRegistry:
    """The operator's meter table as ingest uses it."""

    number: IntArray  # ascending
    zones: tuple[str, ...]
    zone_index: IntArray  # [row] which of `zones`
    row_by_name: Mapping[str, int] | None  # by name; none: a meter's name is its number
    key_by_row: Mapping[int, str]  # by row, of meters whose readings must be signed

    @classmethod
    def from_meter_table(cls, source: Path) -> MeterRegistry:
        """From the meter table that aggregate uses; only ingest uses `id` and `key`."""
        table = read_table(source)
        number = table["meter"].to_numpy()
        if (number[1:] == number[:-1]).any():
            raise MeterError(f"{source}: meter", int(number[1:][number[1:] == number[:-1]][0]), "must be there once")
        named = pc.dictionary_encode(table["zone"].combine_chunks())
        row_by_name = None
        if "id" in table.column_names:
            names = table["id"].to_pylist()
            row_by_name = {name: row for row, name in enumerate(names)}
            if len(row_by_name) != len(names):
                raise MeterError(f"{source}: id", "repeated", "must name each meter once")
        keys = table["key"].to_pylist() if "key" in table.column_names else []
        return cls(
            number=number,
            zones=tuple(named.dictionary.to_pylist()),
            zone_index=named.indices.to_numpy().astype(np.int64),
            row_by_name=row_by_name,
            key_by_row={row: check_public_key(key) for row, key in enumerate(keys) if key},
        )

    def __len__(self) -> int:
        return len(self.number)

    def find_rows(self, meter: IntArray | Sequence[str]) -> IntArray:
        """The row of each meter; NOT_FOUND for a meter that is not in the table."""
        if isinstance(meter, np.ndarray):
            row = np.searchsorted(self.number, meter)
            row[row == len(self.number)] = 0
            return np.where(self.number[row] == meter, row, NOT_FOUND) if len(self.number) else row - 1
        if self.row_by_name is not None:
            return np.array([self.row_by_name.get(name, NOT_FOUND) for name in meter], np.int64)
        return self.find_rows(np.array([_parse_meter_number(name) for name in meter], np.int64))

    def is_in_zones(self, row: IntArray, zones: Collection[str] | None) -> BoolArray:
        """Whether each row is that of a meter in one of these zones; None: in any zone."""
        known: BoolArray = row != NOT_FOUND
        if zones is None or not len(self.number):
            return known
        allowed = np.array([zone in zones for zone in self.zones], np.bool_)
        return known & allowed[self.zone_index[row]]


def _parse_meter_number(name: str) -> int:
    """The number that a name is, written the one way; otherwise one that no meter has."""
    if name.isascii() and name.isdigit() and len(name) < 19 and str(int(name)) == name:
        return int(name)
    return NOT_FOUND
