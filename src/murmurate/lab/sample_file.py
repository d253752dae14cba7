"""Samples of readings with known occupancy, from households that agreed, and the test of a zone's laws on them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from murmurate.curator.zone import Zone
from murmurate.errors import MurmurateError, PrivacyError, ReadingError
from murmurate.household.law_test import law_test
from murmurate.privacy.calibration import Calibration
from murmurate.quantities import BoolArray, IntArray, refuse_where


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Readings with known occupancy, from households that agreed."""

    energy_wh: IntArray  # [interval, household]
    occupied: BoolArray  # [interval, household]
    kind: tuple[str, ...]  # [household] name of its kind; empty text if the file does not say


def with_tested_laws(zone: Zone, sample: Sample) -> Zone:
    """The zone with its laws tested. Raises PrivacyError if the sample is too small or does not follow them."""
    laws = {kind.name: (kind.secret.away, kind.secret.home) for kind in zone.kinds if not all(kind.public)}
    kind = _named_kinds(zone, sample, sorted(laws))
    used = [column for column, name in enumerate(kind) if name in laws]
    eta = zone.eta if zone.calibration is Calibration.ROBUST else 0.0
    columns = sample.energy_wh[:, used], sample.occupied[:, used]
    result = law_test(*columns, [kind[column] for column in used], laws, day=zone.intervals_per_day, eta=eta)
    if not result.passed:
        found = "refused" if result.enough else "too small"
        raise PrivacyError("sample", f"{found} ({result.reason})", f"{zone.calibration.value} needs one that passes")
    return replace(zone, tested=True)


def _named_kinds(zone: Zone, sample: Sample, secret: Sequence[str]) -> list[str]:
    """The kind of each household of the sample. Every kind in `secret`, not always public, must be among them."""
    names = [kind.name for kind in zone.kinds]
    if len(set(names)) < len(names):
        raise PrivacyError("households", ", ".join(names), "must have different names, so that a sample can name them")
    kind = [name or (secret[0] if len(secret) == 1 else "") for name in sample.kind]
    unknown = sorted(set(kind) - set(names))
    if unknown:
        allowed = f"must be a column that names one of {', '.join(names)} for each household"
        raise PrivacyError("kind", ", ".join(unknown) or "missing from the sample", allowed)
    missing = sorted(set(secret) - set(kind))
    if missing:
        raise PrivacyError("sample", f"without {', '.join(missing)}", "must cover every kind that is not always public")
    return kind


def read_sample(path: Path) -> Sample:
    """A sample from a CSV `interval,household,energy_wh,occupied` and perhaps `kind`, one row each, none missing."""
    kinds: list[str] = []
    values = whole_columns(path, ("interval", "household", "energy_wh", "occupied"), ReadingError, kinds)
    refuse_where(values < 0, str(path), values, "must be 0 or more", ReadingError)
    refuse_where(values[:, 3] > 1, "occupied", values[:, 3], "must be 0 or 1", ReadingError)
    shape = tuple(int(values[:, axis].max(initial=-1)) + 1 for axis in (0, 1))
    energy_wh, occupied = np.full(shape, -1, np.int64), np.zeros(shape, np.bool_)
    energy_wh[values[:, 0], values[:, 1]] = values[:, 2]
    occupied[values[:, 0], values[:, 1]] = values[:, 3] == 1
    if len(values) != energy_wh.size or (energy_wh < 0).any():
        allowed = f"must have one row for each of {shape[0]} intervals and {shape[1]} households"
        raise ReadingError(str(path), f"{len(values)} rows", allowed)
    return Sample(energy_wh=energy_wh, occupied=occupied, kind=_kind_of_each(path, values[:, 1], kinds))


def _kind_of_each(path: Path, household: IntArray, kinds: Sequence[str]) -> tuple[str, ...]:
    """The kind of each household, the same in all its rows."""
    of_household = dict(zip(household.tolist(), kinds, strict=True))
    if any(of_household[number] != name for number, name in zip(household.tolist(), kinds, strict=True)):
        raise ReadingError(str(path), "with several kinds for a household", "must name one kind in all its rows")
    return tuple(of_household[number] for number in sorted(of_household))


def whole_columns(
    path: Path, columns: tuple[str, ...], error: type[MurmurateError], kinds: list[str] | None = None
) -> IntArray:
    """Columns of a CSV as whole numbers [row, column]; `kind` of each row is added to `kinds`, if they are wanted."""
    with path.open(newline="", encoding="utf-8") as file:
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
