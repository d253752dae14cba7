"""Read a sample of readings with known occupancy, of households that have agreed to it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from murmurate.errors import MurmurateError, ReadingError
from murmurate.files import open_text
from murmurate.units import BoolArray, IntArray, raise_where


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabeledSample:
    """Readings with known occupancy."""

    energy_wh: IntArray  # [interval, household]
    occupied: BoolArray  # [interval, household]
    kind: tuple[str, ...]  # [household] name of its kind; empty text if the file does not say


def read_sample(path: Path) -> LabeledSample:
    """Read a CSV with the columns interval, household, energy_wh, occupied and, optionally, kind.

    Every household has one row for every interval. Raises ReadingError otherwise.
    """
    kinds: list[str] = []
    values = read_integer_columns(path, ("interval", "household", "energy_wh", "occupied"), ReadingError, kinds)
    raise_where(values < 0, str(path), values, "must be 0 or more", ReadingError)
    raise_where(values[:, 3] > 1, "occupied", values[:, 3], "must be 0 or 1", ReadingError)
    shape = tuple(int(values[:, axis].max(initial=-1)) + 1 for axis in (0, 1))
    energy_wh, occupied = np.full(shape, -1, np.int64), np.zeros(shape, np.bool_)
    energy_wh[values[:, 0], values[:, 1]] = values[:, 2]
    occupied[values[:, 0], values[:, 1]] = values[:, 3] == 1
    if len(values) != energy_wh.size or (energy_wh < 0).any():
        allowed = f"must have one row for each of {shape[0]} intervals and {shape[1]} households"
        raise ReadingError(str(path), f"{len(values)} rows", allowed)
    return LabeledSample(energy_wh=energy_wh, occupied=occupied, kind=_household_kinds(path, values[:, 1], kinds))


def _household_kinds(path: Path, household: IntArray, kinds: Sequence[str]) -> tuple[str, ...]:
    """Return the kind of each household. Raises ReadingError if its rows name several."""
    of_household = dict(zip(household.tolist(), kinds, strict=True))
    if any(of_household[number] != name for number, name in zip(household.tolist(), kinds, strict=True)):
        raise ReadingError(str(path), "with several kinds for a household", "must name one kind in all its rows")
    return tuple(of_household[number] for number in sorted(of_household))


def read_integer_columns(
    path: Path, columns: tuple[str, ...], error: type[MurmurateError], kinds: list[str] | None = None
) -> IntArray:
    """Return columns of a CSV as whole numbers [row, column]. Append the kind of each row to `kinds`, if given."""
    with open_text(path) as file:
        rows = csv.DictReader(file)
        if not set(columns) <= set(rows.fieldnames or ()):
            raise error(str(path), f"with columns {rows.fieldnames}", f"must have the columns {', '.join(columns)}")
        try:
            values = []
            for row in rows:
                values.append([int(row[column]) for column in columns])
                if kinds is not None:
                    kinds.append(row.get("kind") or "")
        except (ValueError, TypeError):
            raise error(
                f"{path}:{rows.line_num}", "not readable", f"must be whole numbers: {', '.join(columns)}"
            ) from None
    return np.array(values, np.int64).reshape(-1, len(columns))
