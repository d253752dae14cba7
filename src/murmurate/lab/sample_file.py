"""Read a sample of readings with known occupancy, and test the distributions of a zone file on it.

The households of a sample have agreed to it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from murmurate.errors import MurmurateError, PrivacyError, ReadingError
from murmurate.household.model_fit import consumption_model_test
from murmurate.planning.zone import Zone
from murmurate.privacy.calibration import Calibration
from murmurate.text_files import open_text
from murmurate.units import BoolArray, IntArray, raise_where


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabeledSample:
    """Readings with known occupancy."""

    energy_wh: IntArray  # [interval, household]
    occupied: BoolArray  # [interval, household]
    kind: tuple[str, ...]  # [household] name of its kind; empty text if the file does not say


def with_tested_distributions(zone: Zone, sample: LabeledSample) -> Zone:
    """Return the zone with its distributions marked as tested.

    Raises PrivacyError if the sample is too small or does not follow the distributions.
    """
    pairs = {kind.name: (kind.secret_pair.away, kind.secret_pair.home) for kind in zone.kinds if not all(kind.public)}
    kind = _kinds_of_sample(zone, sample, sorted(pairs))
    used = [column for column, name in enumerate(kind) if name in pairs]
    eta = zone.eta if zone.calibration is Calibration.ROBUST else 0.0
    columns = sample.energy_wh[:, used], sample.occupied[:, used]
    result = consumption_model_test(
        *columns, [kind[column] for column in used], pairs, day=zone.intervals_per_day, eta=eta
    )
    if not result.passed:
        found = "refused" if result.sample_large_enough else "too small"
        raise PrivacyError("sample", f"{found} ({result.reason})", f"{zone.calibration.value} needs one that passes")
    return replace(zone, tested=True)


def _kinds_of_sample(zone: Zone, sample: LabeledSample, secret: Sequence[str]) -> list[str]:
    """Return the kind of each household of the sample. The sample must cover every kind in `secret`."""
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
