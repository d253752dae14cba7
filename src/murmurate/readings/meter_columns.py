"""Household, zone and kind of each meter, from columns of its files. All rows of a meter must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from murmurate.errors import ReadingError
from murmurate.readings.columns import Columns

_ONE_HOUSEHOLD = (
    "must stay the same: import the time since then, or name another column with --household-column (with the column "
    "of the meter each meter is a household of its own)"
)


class MeterPlace(NamedTuple):
    """A meter with its household, zone and kind."""

    meter: str
    household: str | None  # None: not known
    zone: str
    kind: str


class WatchedColumn(NamedTuple):
    """A column of a file, with its value for each meter so far."""

    column: int
    role: str  # household, zone or kind; empty: a column that may be the household
    values: dict[int, str]


class MeterColumns:
    """Household, zone and kind of the meters of all files, and other columns that may be the household."""

    def __init__(self) -> None:
        self.household_column: str | None = None  # its name in the first file that has one
        self.values: dict[str, dict[int, str]] = {"household": {}, "zone": {}, "kind": {}}
        self._others: dict[str, dict[int, str]] = {}  # by name
        self._dropped: set[str] = set()  # other columns that differ within a meter

    def watch_columns(self, header: Sequence[str], columns: Columns) -> list[WatchedColumn]:
        """Return the columns of a file whose value must be compared with the earlier ones of the meter, row by row."""
        roles = {"household": columns.household, "zone": columns.zone, "kind": columns.kind}
        found = [WatchedColumn(at, role, self.values[role]) for role, at in roles.items() if at is not None]
        if columns.household is not None:
            self.household_column = self.household_column or header[columns.household]
            return found
        others = [(at, name) for at, name in enumerate(header) if at not in columns.taken and name not in self._dropped]
        return found + [WatchedColumn(at, "", self._others.setdefault(name, {})) for at, name in others]

    def drop_or_refuse(self, watched: WatchedColumn, header: Sequence[str], place: str, meter: str) -> None:
        """Note a column that differs within a meter. Raises ReadingError if it is that of household, zone or kind."""
        if watched.role:
            allowed = _ONE_HOUSEHOLD if watched.role == "household" else "must stay the same"
            raise ReadingError(place, f"of another {watched.role} than before, for meter {meter}", allowed)
        self._dropped.add(header[watched.column])
        self._others.pop(header[watched.column], None)

    def place_meters(
        self, numbers: Mapping[str, int], zone: str, kind: str, check_zone: Callable[[str, str], object]
    ) -> list[MeterPlace]:
        """Return the place of some meters, zone by zone. `zone` and `kind` are those of files without such a column.

        Raises ReadingError where a meter has no household, zone or kind and others have, and where the meters of a
        household differ in zone or kind. `check_zone` raises for a name that no zone can have.
        """
        default = {"household": None, "zone": zone, "kind": kind}
        found = []
        for name, number in numbers.items():
            told = {}
            for role, values in self.values.items():
                told[role] = values.get(number, "") if values else default[role]
                if told[role] == "":
                    missing = "empty" if number in values else "not in the files"
                    raise ReadingError(f"{role} of meter {name}", missing, "must be given for every meter, or for none")
            check_zone(str(told["zone"]), f"zone of meter {name}")
            found.append(MeterPlace(name, told["household"], str(told["zone"]), str(told["kind"])))
        found.sort(key=lambda place: (place.zone, place.meter))
        first: dict[str, MeterPlace] = {}
        for place in found:
            before = first.setdefault(place.household or "", place)
            for role in ("zone", "kind"):
                if place.household is not None and getattr(before, role) != getattr(place, role):
                    allowed = f"must have one {role}: meters {before.meter} and {place.meter} differ"
                    raise ReadingError(f"household {place.household!r}", f"in several {role}s", allowed)
        return found

    def find_candidate(self, meters: Sequence[int]) -> tuple[str, int] | None:
        """Return the column that may be the household, with its number of values: fewer than there are meters."""
        counts = {
            name: len({values[meter] for meter in meters})
            for name, values in self._others.items()
            if all(meter in values for meter in meters)
        }
        found = [(count, name) for name, count in counts.items() if 1 < count < len(meters)]
        return (max(found)[1], max(found)[0]) if found else None
