"""Files that a zone file names: a forecast, and a table of meters."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from murmurate.errors import MeterError, ModelError
from murmurate.lab.sample_file import read_integer_columns
from murmurate.planning.household_bounds import Households, household_bounds
from murmurate.planning.household_count import round_household_count
from murmurate.planning.zone_file import MeterSummary
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.text_files import open_text, read_text
from murmurate.units import raise_where


def read_forecast_file(path: Path) -> PublicForecast:
    """Return the forecast in a file that `murmurate forecast` wrote."""
    try:
        return PublicForecast.from_json(read_text(path))
    except FileNotFoundError:
        allowed = "must exist beside the zone file: murmurate forecast writes one"
        raise ModelError("file", path.name, allowed) from None


def read_meter_summary(path: Path, zone: str, kind: str) -> MeterSummary:
    """Households of a zone and kind, and their largest bound, from a CSV with a column `bound_wh`, one row a meter.

    Where there is a column `zone`, only meters of that zone count; where there is a column `kind`, only those of that
    kind. Meters with the same text in a column `household` are one household, with the sum of their bounds. Without
    that column each meter is a household. The number is rounded: see `round_household_count`. Raises MeterError
    where no meter is of the zone and kind, or the meters of a household differ in them.
    """
    (bounds,) = read_integer_columns(path, ("bound_wh",), MeterError).T
    raise_where(bounds < 1, "bound_wh", bounds, "must be at least 1 Wh", MeterError)
    with open_text(path) as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise MeterError(path.name, "empty", "must have a row for each meter")
    here, zones = np.unique([row.get("zone", zone) or "" for row in rows], return_inverse=True)
    kinds, kind_of = np.unique(["", *(row.get("kind") or "" for row in rows)], return_inverse=True)
    names, household = np.unique(
        [row.get("household", str(n)) or "" for n, row in enumerate(rows)], return_inverse=True
    )
    for column, texts in (("zone", here), ("household", names)):
        if "" in texts:
            raise MeterError(column, "empty here and there", f"must name the {column} of every meter")
    households = Households(
        zone=zones,
        bound_wh=bounds,
        protected=np.ones(len(rows), np.bool_),
        kind=kind_of[1:],
        kinds=tuple(kinds.tolist()),
        household=household,
    )
    bounds_by_zone = dict(
        zip(here.tolist(), household_bounds(households, len(here), names.tolist().__getitem__), strict=True)
    )
    if zone not in bounds_by_zone:
        raise MeterError("zone", repr(zone), f"is not in this table; its zones are {_name_some(bounds_by_zone)}")
    by_kind = bounds_by_zone[zone]
    chosen = "" if by_kind.keys() == {""} else kind  # the table names no kind in this zone
    if "" in by_kind and chosen:
        raise MeterError("kind", "empty here and there", "must name the kind of every meter of the zone, or of none")
    if chosen not in by_kind:
        allowed = f"no meter of zone {zone!r} is of this kind; its kinds there are {_name_some(by_kind)}"
        raise MeterError("kind", repr(kind), allowed)
    is_counted = (here[zones] == zone) & (kinds[kind_of[1:]] == chosen)
    count = round_household_count(len(np.unique(household[is_counted])))
    return MeterSummary(count, by_kind[chosen], is_of_kind=bool(chosen))


def _name_some(names: Iterable[str]) -> str:
    known = sorted(names)
    return ", ".join(map(repr, known[:8])) + (f" and {len(known) - 8:,} more" if len(known) > 8 else "")
