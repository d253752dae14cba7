"""The meters that may send readings, their zones, and the keys of those that sign.

Who carries a reading that its meter signs can lose it, but not change or repeat it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from murmurate.errors import MeterError
from murmurate.public_log.signing import check_public_key, verify_signature
from murmurate.readings.meter_file import arrow_errors_as_meter_errors, read_table
from murmurate.units import BoolArray, FloatArray, IntArray

NOT_FOUND = -1
MAX_MASK_BYTES = 64 * 2**20  # of all masks of zones that are kept
MAX_MASKS = 1024
_METER_NUMBER = re.compile("0|[1-9][0-9]{0,17}")  # a number is written in one way


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeterRegistry:
    """The operator's meter table as ingest uses it."""

    number: IntArray  # ascending
    zones: tuple[str, ...]
    zone_index: IntArray  # [row] which of `zones`
    row_by_name: Mapping[str, int] | None  # by name; none: a meter's name is its number
    key_by_row: Mapping[int, str]  # by row, of meters whose readings must be signed
    has_key: BoolArray = field(init=False)  # [row] whether it is in `key_by_row`
    accepted_at_s: FloatArray = field(init=False)  # [zone] newest reading by the monotonic clock, or when this was read
    _masks: dict[frozenset[str], BoolArray] = field(default_factory=dict, init=False)  # [zone] by the zones allowed

    def __post_init__(self) -> None:
        has_key = np.zeros(len(self.number), np.bool_)
        has_key[list(self.key_by_row)] = True
        object.__setattr__(self, "has_key", has_key)
        object.__setattr__(self, "accepted_at_s", np.full(len(self.zones), time.monotonic()))

    @classmethod
    def from_meter_table(cls, source: Path | None) -> MeterRegistry:
        """From the meter table that aggregate uses; only ingest uses `id` and `key`. None: there is no meter."""
        if source is None:
            nothing = np.zeros(0, np.int64)
            return cls(number=nothing, zones=(), zone_index=nothing, row_by_name=None, key_by_row={})
        with arrow_errors_as_meter_errors(source):
            table = read_table(source)
            number = table["meter"].to_numpy()
            named = pc.dictionary_encode(table["zone"]).combine_chunks()
            names = table["id"].to_pylist() if "id" in table.column_names else None
            keys = table["key"].to_pylist() if "key" in table.column_names else []
            zones, zone_index = tuple(named.dictionary.to_pylist()), named.indices.to_numpy().astype(np.int64)
        if (number[1:] == number[:-1]).any():
            raise MeterError(f"{source}: meter", int(number[1:][number[1:] == number[:-1]][0]), "must be there once")
        row_by_name = None if names is None else {name: row for row, name in enumerate(names)}
        if names is not None and row_by_name is not None and len(row_by_name) != len(names):
            raise MeterError(f"{source}: id", "repeated", "must name each meter once")
        key_by_row = {row: check_public_key(key) for row, key in enumerate(keys) if key}
        return cls(
            number=number,
            zones=zones,
            zone_index=zone_index,
            row_by_name=row_by_name,
            key_by_row=key_by_row,
        )

    def __len__(self) -> int:
        return len(self.number)

    def count_by_zone(self) -> dict[str, int]:
        """The number of meters of each zone."""
        counts = np.bincount(self.zone_index, minlength=len(self.zones))
        return dict(zip(self.zones, counts.tolist(), strict=True))

    def find_rows(self, meter: IntArray | Sequence[str]) -> IntArray:
        """The row of each meter; NOT_FOUND for a meter that is not in the table."""
        if isinstance(meter, np.ndarray):
            row = np.searchsorted(self.number, meter)
            row[row == len(self.number)] = 0
            return np.where(self.number[row] == meter, row, NOT_FOUND) if len(self.number) else row - 1
        if self.row_by_name is not None:
            return np.array([self.row_by_name.get(name, NOT_FOUND) for name in meter], np.int64)
        numbers = [int(name) if _METER_NUMBER.fullmatch(name) else NOT_FOUND for name in meter]
        return self.find_rows(np.array(numbers, np.int64))

    def is_in_zones(self, row: IntArray, zones: Collection[str] | None) -> BoolArray:
        """Whether each row is that of a meter in one of these zones; None: in any zone.

        A mask depends on the table and the zones alone, so a right that was lost is never found in one.
        """
        known: BoolArray = row != NOT_FOUND
        if zones is None or not len(self.number):
            return known
        allowed = frozenset(zones)
        mask = self._masks.get(allowed)
        if mask is None:  # the last few are kept: a client sends often
            mask = np.array([zone in allowed for zone in self.zones], np.bool_)
            if len(self._masks) >= MAX_MASKS or (len(self._masks) + 1) * len(mask) > MAX_MASK_BYTES:
                self._masks.clear()
            self._masks[allowed] = mask
        return known & mask[self.zone_index[row]]

    def note_accepted(self, row: IntArray) -> None:
        """Note that readings of the meters of these rows were accepted just now."""
        self.accepted_at_s[self.zone_index[row]] = time.monotonic()

    def follow(self, before: MeterRegistry) -> MeterRegistry:
        """This registry, with the times of the newest readings of zones that are in both."""
        known = dict(zip(before.zones, before.accepted_at_s.tolist(), strict=True))
        for index, zone in enumerate(self.zones):
            self.accepted_at_s[index] = known.get(zone, self.accepted_at_s[index])
        return self

    def must_sign(self, row: IntArray) -> BoolArray:
        """Whether each row is that of a meter whose readings must be signed. The cost is that of the rows alone."""
        known: BoolArray = row != NOT_FOUND
        return known & self.has_key[row] if len(self.number) else known


def signed_bytes(meter: str, start_s: int, energy_wh: int) -> bytes:
    """What a meter signs with its Ed25519 key: its name, the begin of the interval [s of UTC], the energy [Wh].

    The energy is a whole number, rounded down, within 64 bits. It is what the meter measured, before it is clipped.

    >>> signed_bytes("17", 1_794_658_500, 250)
    b'murmurate reading 1\\n17\\n1794658500\\n250'
    """
    return f"murmurate reading 1\n{meter}\n{start_s}\n{energy_wh}".encode()


def is_signature_valid(key: str, meter: str, start_s: int, energy_wh: int, signature: str | None) -> bool:
    return signature is not None and verify_signature(key, signed_bytes(meter, start_s, energy_wh), signature)
