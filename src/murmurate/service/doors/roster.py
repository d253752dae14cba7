"""Who is who: the meters that may send readings, their zones, and the keys of those that sign."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from murmurate.errors import MeterError
from murmurate.publication.signing import refuse_bad_key
from murmurate.quantities import BoolArray, IntArray
from murmurate.service.gathering.metertable import read_table

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roster:
    """The operator's meter table as the doors see it. A *place* is a row of it."""

    number: IntArray  # ascending
    zones: tuple[str, ...]
    zone: IntArray  # [place] which of `zones`
    places: Mapping[str, int] | None  # by name; none: a meter's name is its number
    keys: Mapping[int, str]  # [place] of meters whose readings must be signed

    @classmethod
    def of(cls, source: Path) -> Roster:
        """From the meter table that gather uses; `id` and `key` are for the doors alone."""
        table = read_table(source)
        number = table["meter"].to_numpy()
        if (number[1:] == number[:-1]).any():
            raise MeterError(f"{source}: meter", int(number[1:][number[1:] == number[:-1]][0]), "must stand there once")
        named = pc.dictionary_encode(table["zone"].combine_chunks())
        places = None
        if "id" in table.column_names:
            names = table["id"].to_pylist()
            places = {name: place for place, name in enumerate(names)}
            if len(places) != len(names):
                raise MeterError(f"{source}: id", "repeated", "must name each meter once")
        keys = table["key"].to_pylist() if "key" in table.column_names else []
        return cls(
            number=number,
            zones=tuple(named.dictionary.to_pylist()),
            zone=named.indices.to_numpy().astype(np.int64),
            places=places,
            keys={place: refuse_bad_key(key) for place, key in enumerate(keys) if key},
        )

    def __len__(self) -> int:
        return len(self.number)

    def find(self, meter: IntArray | Sequence[str]) -> IntArray:
        """The place of each meter; -1 for one that is not on the list."""
        if isinstance(meter, np.ndarray):
            place = np.searchsorted(self.number, meter)
            place[place == len(self.number)] = 0
            return np.where(self.number[place] == meter, place, NOBODY) if len(self.number) else place - 1
        if self.places is not None:
            return np.array([self.places.get(name, NOBODY) for name in meter], np.int64)
        return self.find(np.array([_number(name) for name in meter], np.int64))

    def within(self, place: IntArray, zones: Collection[str] | None) -> BoolArray:
        """Whether each place is that of a meter in one of these zones; none: in any."""
        known: BoolArray = place != NOBODY
        if zones is None or not len(self.number):
            return known
        mine = np.array([zone in zones for zone in self.zones], np.bool_)
        return known & mine[self.zone[place]]


def _number(name: str) -> int:
    """The number that a name is, written the one way; otherwise one that no meter has."""
    if name.isascii() and name.isdigit() and len(name) < 19 and str(int(name)) == name:
        return int(name)
    return NOBODY
