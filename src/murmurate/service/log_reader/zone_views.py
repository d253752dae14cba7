"""The views of all zones, made when they are asked for: 100,000 zones are 100 shards and a few look-up tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

from murmurate.service.log_reader.zone_view import LoadTerms, ShardView, ZoneView
from murmurate.service.settings import ZoneDisplay

MakeView = Callable[[ShardView, str], ZoneView]  # of a zone of a shard


class ZoneViews(Mapping[str, ZoneView]):
    """The view of each zone, also of one that was closed. One thread at a time; names are in order."""

    def __init__(self, display_of: Callable[[str], ZoneDisplay], load_terms: LoadTerms) -> None:
        self._display_of, self._load_terms = display_of, load_terms
        self._shards: dict[str, ShardView] = {}
        self._shard_by_zone: dict[str, str] = {}
        self._names: list[str] = []
        self._unsorted: list[str] = []  # names that are not in `_names` yet
        self.table_version = 0  # how often the zone table of a shard has changed

    def put(self, view: ShardView) -> tuple[str, ...]:
        """Show a shard as it is now. Return the zones that were not known before."""
        before = self._shards.get(view.name)
        self._shards[view.name] = view
        if before is None or before.table.digest != view.table.digest:
            self.table_version += 1
        if before is not None and before.table.zones_ever == view.table.zones_ever:
            return ()
        new = tuple(zone for zone in view.table.zones_ever if zone not in self._shard_by_zone)
        self._shard_by_zone.update(dict.fromkeys(new, view.name))
        self._unsorted.extend(new)
        return new

    @property
    def shards(self) -> Mapping[str, ShardView]:
        return self._shards

    def shard_of(self, zone: str) -> str | None:
        """The name of the shard that a zone is in."""
        return self._shard_by_zone.get(zone)

    @property
    def names(self) -> Sequence[str]:
        """All zones, sorted."""
        if self._unsorted:
            self._names = sorted([*self._names, *sorted(self._unsorted)])  # two runs: merged in linear time
            self._unsorted = []
        return self._names

    def names_after(self, name: str, limit: int) -> Sequence[str]:
        """The next zones after a name, in order."""
        at = bisect_right(self.names, name)
        return self.names[at : at + limit]

    def __getitem__(self, zone: str) -> ZoneView:
        return self.make_view(self._shards[self._shard_by_zone[zone]], zone)

    def make_view(self, shard: ShardView, zone: str) -> ZoneView:
        """The view of a zone of a shard. Any thread may ask for it."""
        closed = shard.table.closed_by_zone.get(zone)
        row = shard.table.rows[shard.table.position[zone]] if closed is None else closed.row
        return ZoneView(shard, row, self._display_of(zone), self._load_terms)

    def __contains__(self, zone: object) -> bool:
        return zone in self._shard_by_zone

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self._shard_by_zone)
