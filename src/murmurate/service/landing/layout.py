"""The landing: the folder in which ingest stores readings, and from which aggregate reads them.

    landing/
      _layout.json                          length of an interval, meters in a shard
      interval=20261114T1215Z/shard=0/*.parquet
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
from murmurate.units import SECONDS_PER_DAY

_LAYOUT_FILE = "_layout.json"
_LAYOUT_FORMAT = 1
_INTERVAL_NAME_FORMAT = "%Y%m%dT%H%MZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A folder of readings. Meter m is in shard m // shard_meters."""

    root: Path
    interval_s: int = 900
    shard_meters: int = 131_072

    def __post_init__(self) -> None:
        if self.interval_s < 60 or self.interval_s % 60 or SECONDS_PER_DAY % self.interval_s:
            raise MurmurateError("interval_s", self.interval_s, "must be whole minutes that divide a day, such as 900")
        if self.shard_meters < 1:
            raise MurmurateError("shard_meters", self.shard_meters, "must be at least 1")

    @classmethod
    def create(cls, root: Path, *, interval_s: int = 900, shard_meters: int = 131_072) -> Landing:
        """A new landing; an old one is opened if it has the same layout."""
        requested = cls(root=root, interval_s=interval_s, shard_meters=shard_meters)
        durable.make_directory(root)
        durable.write_once(root / _LAYOUT_FILE, requested._layout_bytes())
        landing = cls.open(root)
        if landing != requested:
            actual = f"a landing for {landing.interval_s} s and {landing.shard_meters} meters a shard"
            raise ReadingError(str(root), actual, "must have the requested layout; use another folder")
        return landing

    @classmethod
    def open(cls, root: Path) -> Landing:
        """The landing in a folder."""
        path = root / _LAYOUT_FILE
        if not path.is_file():
            raise ReadingError(
                str(root), "not a folder for readings", "it has no _layout.json; murmurate init creates one"
            )
        try:
            layout = json.loads(path.read_bytes())
            if layout["murmurate_landing"] != _LAYOUT_FORMAT:
                raise ReadingError(str(path), layout["murmurate_landing"], f"must be format {_LAYOUT_FORMAT}")
            return cls(root=root, interval_s=int(layout["interval_s"]), shard_meters=int(layout["shard_meters"]))
        except (ValueError, KeyError, TypeError):
            raise ReadingError(str(path), "unreadable", "must name interval_s and shard_meters") from None

    def restore_layout(self) -> bool:
        """Write the file of the layout again if it is gone or no layout at all. Returns whether it was.

        A process that runs knows the layout; one that starts without the file could release nothing.
        """
        path = self.root / _LAYOUT_FILE
        try:
            if "murmurate_landing" in json.loads(path.read_bytes()):
                return False  # perhaps of a later version
        except (OSError, ValueError, TypeError, RecursionError):
            pass
        durable.write_file(path, self._layout_bytes())
        return True

    def _layout_bytes(self) -> bytes:
        layout = {
            "murmurate_landing": _LAYOUT_FORMAT,
            "interval_s": self.interval_s,
            "shard_meters": self.shard_meters,
        }
        return (json.dumps(layout) + "\n").encode()

    def interval_folder(self, start_s: int) -> Path:
        """The folder of the interval that begins at `start_s` [s of UTC]."""
        if start_s % self.interval_s:
            raise ReadingError("interval", interval_name(start_s), f"must begin an interval of {self.interval_s} s")
        return self.root / f"interval={interval_name(start_s)}"

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
        for name in sorted(path.name.removeprefix("interval=") for path in self.root.glob("interval=*")):
            if (start_s := self.parse_interval(name)) is None:
                misnamed.append(f"interval={name}")
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
