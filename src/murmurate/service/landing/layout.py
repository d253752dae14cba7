"""The landing: the folder or bucket in which ingest stores readings, and from which aggregate reads them.

    landing/
      _layout.json                          length of an interval, meters in a shard
      interval=20261114T1215Z/              readings of an interval
      interval=20261114T1215Z/shard=0/      those of meters of one shard
      _meters/<version>/                    each meter table that an interval was closed under
      _closed/20261114T1215Z.json           what counts for an interval, decided once

`docs/reference/landing.md` says what others must write into it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.storage import durable
from murmurate.service.storage.object_store import FolderStore, ObjectStore
from murmurate.service.storage.open_store import open_store
from murmurate.units import SECONDS_PER_DAY

_LAYOUT_FILE = "_layout.json"
_LAYOUT_FORMAT = 1
_INTERVAL_NAME_FORMAT = "%Y%m%dT%H%MZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Readings in a folder or a bucket. Meter m is in shard m // shard_meters."""

    store: ObjectStore
    interval_s: int = 900
    shard_meters: int = 131_072

    def __post_init__(self) -> None:
        if self.interval_s < 60 or self.interval_s % 60 or SECONDS_PER_DAY % self.interval_s:
            raise MurmurateError("interval_s", self.interval_s, "must be whole minutes that divide a day, such as 900")
        if self.shard_meters < 1:
            raise MurmurateError("shard_meters", self.shard_meters, "must be at least 1")

    @classmethod
    def create(cls, address: str | Path, *, interval_s: int = 900, shard_meters: int = 131_072) -> Landing:
        """A new landing; an old one is opened if it has the same layout."""
        requested = cls(store=open_store(address), interval_s=interval_s, shard_meters=shard_meters)
        if isinstance(requested.store, FolderStore):
            durable.make_directory(requested.store.root)
        requested.store.create(_LAYOUT_FILE, requested._layout_bytes())
        landing = cls.open(address)
        if landing != requested:
            actual = f"a landing for {landing.interval_s} s and {landing.shard_meters} meters a shard"
            raise ReadingError(str(address), actual, "must have the requested layout; use another folder")
        return landing

    @classmethod
    def open(cls, address: str | Path, *, probe: bool = False) -> Landing:
        """The landing in a folder, or at an address such as s3://bucket/readings; see `open_store`."""
        store, name = open_store(address, probe=probe), f"{str(address).rstrip('/')}/{_LAYOUT_FILE}"
        try:
            data = store.read(_LAYOUT_FILE)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ReadingError(
                str(address), "not a folder for readings", "it has no _layout.json; murmurate init creates one"
            ) from None
        try:
            layout = json.loads(data)
            if layout["murmurate_landing"] != _LAYOUT_FORMAT:
                raise ReadingError(name, layout["murmurate_landing"], f"must be format {_LAYOUT_FORMAT}")
            return cls(store=store, interval_s=int(layout["interval_s"]), shard_meters=int(layout["shard_meters"]))
        except (ValueError, KeyError, TypeError):
            raise ReadingError(name, "unreadable", "must name interval_s and shard_meters") from None

    def restore_layout(self) -> bool:
        """Write the layout again if it is gone or no layout at all. Returns whether it was.

        A process that runs knows the layout; one that starts without it could release nothing.
        """
        try:
            if "murmurate_landing" in json.loads(self.store.read(_LAYOUT_FILE)):
                return False  # perhaps of a later version
        except (OSError, ValueError, TypeError, RecursionError):
            pass
        self.store.delete(_LAYOUT_FILE)
        return self.store.create(_LAYOUT_FILE, self._layout_bytes())

    @property
    def root(self) -> Path:
        """The folder of a landing that is one."""
        if not isinstance(self.store, FolderStore):
            raise MurmurateError("landing", self.store.address, "must be a folder of this machine")
        return self.store.root

    def _layout_bytes(self) -> bytes:
        layout = {
            "murmurate_landing": _LAYOUT_FORMAT,
            "interval_s": self.interval_s,
            "shard_meters": self.shard_meters,
        }
        return (json.dumps(layout) + "\n").encode()

    def readings_folder(self, start_s: int) -> str:
        """The folder of the interval that begins at `start_s` [s of UTC], in the landing."""
        if start_s % self.interval_s:
            raise ReadingError("interval", interval_name(start_s), f"must begin an interval of {self.interval_s} s")
        return f"interval={interval_name(start_s)}"

    def interval_folder(self, start_s: int) -> Path:
        return self.root / self.readings_folder(start_s)

    def shard_folder(self, start_s: int, shard: int) -> Path:
        return self.interval_folder(start_s) / f"shard={shard}"

    def parse_interval(self, name: str) -> int | None:
        """When the interval of that name begins [s of UTC]; None if the name is not that of an interval."""
        try:
            start_s = parse_interval_name(name)
        except (ValueError, OverflowError):
            return None
        return None if start_s % self.interval_s or interval_name(start_s) != name else start_s

    def list_intervals(self) -> tuple[list[int], list[str]]:
        """Starts of the intervals that have a folder [s of UTC], and folders that name no interval."""
        starts_s, misnamed = [], []
        for folder in self.store.list_folders():
            if not folder.startswith("interval="):
                continue
            if (start_s := self.parse_interval(folder.removeprefix("interval="))) is None:
                misnamed.append(folder)
            else:
                starts_s.append(start_s)
        return starts_s, misnamed


def interval_name(start_s: int) -> str:
    """How an interval is called on disk.

    >>> interval_name(1_794_658_500)
    '20261114T1215Z'
    """
    return datetime.fromtimestamp(start_s, UTC).strftime(_INTERVAL_NAME_FORMAT)


def parse_interval_name(name: str) -> int:
    """When the interval of that name begins [s of UTC]."""
    return int(datetime.strptime(name, _INTERVAL_NAME_FORMAT).replace(tzinfo=UTC).timestamp())
