"""OpenADR programs by their ids, however many zones there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from murmurate.service.log_reader.zone_views import ZoneViews
from murmurate.service.public_api.formats.openadr_program import Program, programs_of_zone, zone_slug
from murmurate.units import IntArray


class ProgramGroups(NamedTuple):
    """Programs whose events are on the same days: zones of a shard that were opened together."""

    examples: tuple[str, ...]  # the id of a program of each group
    numbers: IntArray  # the group of each program, in the order of their ids


class ProgramIndex:
    """From ids of programs to zones. The sorted list of all ids is made when it is asked for."""

    def __init__(self, views: ZoneViews) -> None:
        self._views = views
        self._zone_by_slug: dict[str, str] = {}
        self._ids: list[str] = []
        self._unlisted: list[str] = []  # zones whose programs are not in `_ids` yet
        self._groups: tuple[int, int, ProgramGroups] | None = (
            None  # of a version of the tables and a number of programs
        )

    def add_zones(self, zones: Iterable[str]) -> None:
        """Add zones that are new. Their views must be there."""
        for zone in zones:
            slug = zone_slug(zone)
            self._zone_by_slug[zone if slug == zone else slug] = zone  # usually one text for both
            self._unlisted.append(zone)

    def find(self, program_id: str) -> Program | None:
        """The program with an id."""
        view = self._views.get(self._zone_by_slug.get(program_id.rpartition("-PT")[0], ""))
        found = [] if view is None else [each for each in programs_of_zone(view) if each.id == program_id]
        return found[0] if found else None

    def zone_of(self, object_id: str) -> str | None:
        """The zone of a program or an event, by its id."""
        return self._zone_by_slug.get(object_id.rpartition("-PT")[0])

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all programs, sorted: paging needs an order, and the standard names none."""
        if self._unlisted:
            new = sorted(program.id for zone in self._unlisted for program in programs_of_zone(self._views[zone]))
            self._ids = sorted([*self._ids, *new])  # two runs: merged in linear time
            self._unlisted = []
        return self._ids

    @property
    def groups(self) -> ProgramGroups:
        """All programs by the days of their events. They are the same until a zone table changes."""
        ids, version = self.ids, self._views.table_version
        if self._groups is None or self._groups[:2] != (version, len(ids)):
            by_key: dict[object, int] = {}
            examples: list[str] = []
            numbers = np.zeros(len(ids), np.int64)
            for at, program_id in enumerate(ids):
                group = by_key.setdefault(self._group_key(program_id), len(by_key))
                numbers[at] = group
                if group == len(examples):
                    examples.append(program_id)
            self._groups = version, len(ids), ProgramGroups(tuple(examples), numbers)
        return self._groups[2]

    def _group_key(self, program_id: str) -> object:
        """Equal for programs whose events are on the same days, whatever tiles come."""
        zone, _, duration = program_id.rpartition("-PT")
        view = self._views[self._zone_by_slug[zone]]
        timezone = view.display.timezone.key
        return (view.shard.name, view.row.since, view.closed and view.closed.last, timezone, duration)
