"""Close an interval: decide, once and for good, which files and which meter table make its demand.

Whoever gathers it afterwards, once or again, here or on a cluster, gets the same demand or a refusal. What lands later
is late: it stays where it is and does not count.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from murmurate.errors import ReadingError
from murmurate.service.gathering import durable
from murmurate.service.gathering.layout import Landing, stamp, start_of
from murmurate.service.gathering.readingsfile import Landed, fingerprint

_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What counts for an interval."""

    start_s: int
    meters: str  # version of the meter table
    files: tuple[Landed, ...]
    unfinished: tuple[str, ...] = ()  # were being written, or cut off: they do not count
    forgotten: bool = False

    def encode(self) -> bytes:
        document = {"murmurate_closing": _FORMAT, "interval": stamp(self.start_s), "meters": self.meters}
        document |= {"files": [asdict(file) for file in self.files], "unfinished": self.unfinished}
        return (json.dumps(document | {"forgotten": self.forgotten}, indent=1) + "\n").encode()

    @classmethod
    def read(cls, path: Path) -> Closing:
        try:
            document = json.loads(path.read_bytes())
            if document["murmurate_closing"] != _FORMAT:
                raise ReadingError(str(path), document["murmurate_closing"], f"must be format {_FORMAT}")
            return cls(
                start_s=start_of(document["interval"]),
                meters=document["meters"],
                files=tuple(Landed(**file) for file in document["files"]),
                unfinished=tuple(document["unfinished"]),
                forgotten=document["forgotten"],
            )
        except (ValueError, KeyError, TypeError):
            raise ReadingError(
                str(path), "unreadable", "must be a closing; it decides what counts, so mend it"
            ) from None


def close(landing: Landing, start_s: int, meters: str, *, sharded: bool = True) -> Closing:
    """What counts for an interval: decided now, or as it was decided before. Any number may try at once.

    When to close is the caller's: by the wall clock, never by what the readings say of the time. A file that is no file
    of readings is refused before anything is decided; one outside of a shard's folder too, unless there is one shard.
    """
    if (closing := closed(landing, start_s)) is not None:
        return closing
    durable.folder(landing.root / "_closed")
    durable.write_once(_mark(landing, start_s), b"")
    files, unfinished = [], []
    for path in _parquets(landing.interval(start_s)):
        if (landed := fingerprint(landing.root, path)) is None:
            unfinished.append(path.relative_to(landing.root).as_posix())
        elif landed.shard is None and sharded:
            raise ReadingError(
                landed.path, "in no shard", "must lie in a folder such as shard=0: the table has several"
            )
        else:
            files.append(landed)
    mine = Closing(start_s=start_s, meters=meters, files=tuple(files), unfinished=tuple(unfinished))
    if durable.write_once(_place(landing, start_s), mine.encode()):
        return mine
    return Closing.read(_place(landing, start_s))


def closed(landing: Landing, start_s: int) -> Closing | None:
    """The closing of an interval, if it is closed."""
    place = _place(landing, start_s)
    return Closing.read(place) if place.exists() else None


def begun(landing: Landing, start_s: int) -> bool:
    """Whether the interval is closed or being closed."""
    return _mark(landing, start_s).exists() or _place(landing, start_s).exists()


def refuse_forgotten(closing: Closing) -> None:
    """Of what was deleted no demand can be made."""
    if closing.forgotten:
        name = f"interval {stamp(closing.start_s)}"
        raise ReadingError(name, "forgotten", "its readings were deleted; no demand can be made of it")


def late(landing: Landing, closing: Closing) -> list[str]:
    """Files that came after the interval was closed."""
    counted = {file.path for file in closing.files}
    paths = (path.relative_to(landing.root).as_posix() for path in _parquets(landing.interval(closing.start_s)))
    return [path for path in paths if path not in counted]


def forget(landing: Landing, before_s: int) -> int:
    """Delete the readings of every interval that began before `before_s`. Returns how many intervals had some.

    What stays is that it was forgotten, so that nobody makes another demand of what lands there later.
    """
    landed, odd = landing.intervals()
    decided = {start_of(path.stem) for path in (landing.root / "_closed").glob("*.json")}
    durable.folder(landing.root / "_closed")
    for start_s in sorted(start_s for start_s in decided.union(landed) if start_s < before_s):
        closing, folder = closed(landing, start_s), landing.interval(start_s)
        if closing is None or not closing.forgotten:
            bare = Closing(start_s=start_s, meters=closing.meters if closing else "", files=(), forgotten=True)
            durable.write(_place(landing, start_s), bare.encode())
        if folder.exists():
            shutil.rmtree(folder)
        _mark(landing, start_s).unlink(missing_ok=True)
    durable.settle(landing.root)
    _forget_tables(landing, before_s)
    if odd:
        raise ReadingError(odd[0], "no interval", "must be named like interval=20261114T1215Z; the rest was forgotten")
    return sum(start_s < before_s for start_s in landed)


def _forget_tables(landing: Landing, before_s: int) -> None:
    """Delete old meter tables that no interval needs any more, and what a run that was killed has left of one."""
    closings = (Closing.read(path) for path in (landing.root / "_closed").glob("*.json"))
    needed = {closing.meters for closing in closings if not closing.forgotten}
    for folder in (landing.root / "_meters").glob("*"):
        if folder.name not in needed and folder.stat().st_mtime < before_s:
            part = folder.with_name(f".{folder.name.lstrip('.')}.forgotten")
            shutil.rmtree(folder.replace(part))


def _parquets(folder: Path) -> Iterator[Path]:
    """Files of readings; names that begin with a dot or an underscore are somebody's workbench.

    A folder that cannot be read is an error: an interval must not be closed without what is in it.
    """
    if not folder.exists():
        return
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(names):
            if name.endswith(".parquet") and not name.startswith((".", "_")):
                yield Path(place, name)


def _refuse(error: OSError) -> None:
    raise error


def _place(landing: Landing, start_s: int) -> Path:
    return landing.root / "_closed" / f"{stamp(start_s)}.json"


def _mark(landing: Landing, start_s: int) -> Path:
    return landing.root / "_closed" / f"{stamp(start_s)}.begun"
