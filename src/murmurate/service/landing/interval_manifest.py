"""Close an interval: decide, once and for good, which files and which meter table make its demand.

Every later aggregation, here or on a cluster, gives the same demand or an error. What lands later is late: it stays
where it is and does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from murmurate.errors import ReadingError
from murmurate.service.landing.layout import Landing, interval_name, parse_interval_name
from murmurate.service.landing.readings_file import LandedFile, fingerprint_file, is_replaced, list_merged
from murmurate.service.storage import durable

CLOSED_FOLDER = "_closed"
_MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalManifest:
    """What counts for an interval."""

    start_s: int
    table_version: str  # version of the meter table
    files: tuple[LandedFile, ...]
    unfinished: tuple[str, ...] = ()  # were being written, or cut off: they do not count
    purged: bool = False

    def to_json(self) -> bytes:
        head = {"murmurate_manifest": _MANIFEST_FORMAT, "interval": interval_name(self.start_s)}
        document = head | {"meters": self.table_version}
        document |= {"files": [asdict(file) for file in self.files], "unfinished": self.unfinished}
        return (json.dumps(document | {"purged": self.purged}, indent=1) + "\n").encode()

    @classmethod
    def from_file(cls, path: Path) -> IntervalManifest:
        try:
            document = json.loads(path.read_bytes())
            if document["murmurate_manifest"] != _MANIFEST_FORMAT:
                raise ReadingError(str(path), document["murmurate_manifest"], f"must be format {_MANIFEST_FORMAT}")
            return cls(
                start_s=parse_interval_name(document["interval"]),
                table_version=document["meters"],
                files=tuple(LandedFile(**file) for file in document["files"]),
                unfinished=tuple(document["unfinished"]),
                purged=document["purged"],
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ReadingError(
                str(path), "unreadable", "must be the manifest of an interval; it decides what counts, so restore it"
            ) from None


def close_interval(landing: Landing, start_s: int, table_version: str) -> IntervalManifest:
    """What counts for an interval: decided now, or as it was decided before. Any number of processes may try at once.

    When to close is the caller's: by the wall clock, never by what the readings say of the time. A file that is no file
    of readings is refused before anything is decided.
    """
    if (manifest := manifest_of(landing, start_s)) is not None:
        return manifest
    durable.make_directory(landing.root / CLOSED_FOLDER)
    durable.write_once(closing_mark_path(landing, start_s), b"")
    files: list[LandedFile] = []
    unfinished: list[str] = []

    def add_file(path: str) -> bool:
        if (landed := fingerprint_file(landing.root, landing.root / path)) is None:
            unfinished.append(path)
            return False
        _ = landed.shard  # a folder such as shard=x is refused
        files.append(landed)
        return True

    for path in _unmerged_files(landing, start_s, add_file):
        add_file(path)
    manifest = IntervalManifest(
        start_s=start_s,
        table_version=table_version,
        files=tuple(sorted(files, key=lambda file: file.path)),
        unfinished=tuple(sorted(unfinished)),
    )
    if durable.write_once(manifest_path(landing, start_s), manifest.to_json()):
        return manifest
    return IntervalManifest.from_file(manifest_path(landing, start_s))


def manifest_of(landing: Landing, start_s: int) -> IntervalManifest | None:
    """The manifest of an interval, if it is closed."""
    path = manifest_path(landing, start_s)
    return IntervalManifest.from_file(path) if path.exists() else None


def is_closing(landing: Landing, start_s: int) -> bool:
    """Whether the interval is closed or being closed."""
    return closing_mark_path(landing, start_s).exists() or manifest_path(landing, start_s).exists()


def check_not_purged(manifest: IntervalManifest) -> None:
    """Raise ReadingError if the readings of the interval were deleted."""
    if manifest.purged:
        name = f"interval {interval_name(manifest.start_s)}"
        raise ReadingError(name, "purged", "its readings were deleted; no demand can be computed from it")


def late_files(landing: Landing, manifest: IntervalManifest) -> list[str]:
    """Files that came after the interval was closed. A merged file is none: its parts are there, or it counts."""
    counted = {file.path for file in manifest.files}
    return [path for path in _unmerged_files(landing, manifest.start_s, counted.__contains__) if path not in counted]


def _unmerged_files(landing: Landing, start_s: int, use_merged: Callable[[str], bool]) -> Iterator[str]:
    """Paths of the files of readings of an interval that are not merged, in order, without what a merged file replaces.

    `use_merged` gets the path of a merged file, those with the most parts first, and returns whether it counts: then it
    replaces its parts (`readings_file`). Names that begin with a dot or an underscore are temporary files of a writer.
    A folder that cannot be read is an error: an interval must not be closed without what is in it.
    """
    folder = landing.interval_folder(start_s)
    if not folder.exists():
        return

    def raise_error(error: OSError) -> None:
        raise error

    for directory, folders, found in os.walk(folder, onerror=raise_error):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        names = sorted(name for name in found if name.endswith(".parquet") and not name.startswith((".", "_")))
        prefix = Path(directory).relative_to(landing.root).as_posix()
        merged = list_merged(names)
        merged_parts: dict[str, int] = {}
        for run, parts, name in merged:
            if run not in merged_parts and use_merged(f"{prefix}/{name}"):
                merged_parts[run] = parts
        skipped = {name for _, _, name in merged}
        for name in names:
            if name not in skipped and not is_replaced(name, merged_parts):
                yield f"{prefix}/{name}"


def manifest_path(landing: Landing, start_s: int) -> Path:
    return landing.root / CLOSED_FOLDER / f"{interval_name(start_s)}.json"


def closing_mark_path(landing: Landing, start_s: int) -> Path:
    return landing.root / CLOSED_FOLDER / f"{interval_name(start_s)}.closing"
