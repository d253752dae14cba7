"""Close an interval: decide, once and for good, which files and which meter table make its demand.

Every later aggregation, here or on a cluster, gives the same demand or an error. What lands later is late: it stays
where it is and does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from murmurate.errors import ReadingError
from murmurate.service.landing.layout import Landing, interval_name, parse_interval_name
from murmurate.service.landing.readings_file import LandedFile, fingerprint_file, is_replaced, list_merged
from murmurate.service.storage.object_store import ObjectStore, StoredObject

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
        files = [{"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in self.files]
        document |= {"files": files, "unfinished": self.unfinished, "purged": self.purged}
        return (json.dumps(document) + "\n").encode()  # an indent would cost ten times as much

    @classmethod
    def read(cls, store: ObjectStore, name: str) -> IntervalManifest:
        path = f"{store.address}/{name}"
        try:
            document = json.loads(store.read(name))
            if document["murmurate_manifest"] != _MANIFEST_FORMAT:
                raise ReadingError(path, document["murmurate_manifest"], f"must be format {_MANIFEST_FORMAT}")
            return cls(
                start_s=parse_interval_name(document["interval"]),
                table_version=document["meters"],
                files=tuple(LandedFile(**file) for file in document["files"]),
                unfinished=tuple(document["unfinished"]),
                purged=document["purged"],
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ReadingError(
                path, "unreadable", "must be the manifest of an interval; it decides what counts, so restore it"
            ) from None


def close_interval(landing: Landing, start_s: int, table_version: str) -> IntervalManifest:
    """What counts for an interval: decided now, or as it was decided before. Any number of processes may try at once.

    When to close is the caller's: by the wall clock, never by what the readings say of the time. A file that is no file
    of readings is refused before anything is decided.
    """
    if (manifest := manifest_of(landing, start_s)) is not None:
        return manifest
    landing.store.create(closing_mark_name(start_s), b"")
    files: list[LandedFile] = []
    unfinished: list[str] = []

    def add_file(found: StoredObject) -> bool:
        if (landed := fingerprint_file(landing.store, found)) is None:
            unfinished.append(found.name)
            return False
        _ = landed.shard  # a folder such as shard=x is refused
        files.append(landed)
        return True

    for found in _unmerged_files(landing, start_s, add_file):
        add_file(found)
    manifest = IntervalManifest(
        start_s=start_s,
        table_version=table_version,
        files=tuple(sorted(files, key=lambda file: file.path)),
        unfinished=tuple(sorted(unfinished)),
    )
    if landing.store.create(manifest_name(start_s), manifest.to_json()):
        return manifest
    return IntervalManifest.read(landing.store, manifest_name(start_s))


def manifest_of(landing: Landing, start_s: int) -> IntervalManifest | None:
    """The manifest of an interval, if it is closed."""
    for name in (purged_mark_name(start_s), manifest_name(start_s)):
        if landing.store.exists(name):
            return IntervalManifest.read(landing.store, name)
    return None


def is_closing(landing: Landing, start_s: int) -> bool:
    """Whether the interval is closed or being closed."""
    return any(landing.store.exists(name) for name in (closing_mark_name(start_s), manifest_name(start_s)))


def check_not_purged(manifest: IntervalManifest) -> None:
    """Raise ReadingError if the readings of the interval were deleted."""
    if manifest.purged:
        name = f"interval {interval_name(manifest.start_s)}"
        raise ReadingError(name, "purged", "its readings were deleted; no demand can be computed from it")


def late_files(landing: Landing, manifest: IntervalManifest) -> list[str]:
    """Files that came after the interval was closed. A merged file is none: its parts are there, or it counts."""
    counted = {file.path for file in manifest.files}
    found = _unmerged_files(landing, manifest.start_s, lambda merged: merged.name in counted)
    return [file.name for file in found if file.name not in counted]


def _unmerged_files(
    landing: Landing, start_s: int, use_merged: Callable[[StoredObject], bool]
) -> Iterator[StoredObject]:
    """The files of readings of an interval that are not merged, in order, without what a merged file replaces.

    `use_merged` gets a merged file, those with the most parts first, and returns whether it counts: then it replaces
    its parts (`readings_file`). Names that begin with a dot or an underscore are temporary files of a writer. A folder
    that cannot be read is an error: an interval must not be closed without what is in it.
    """
    folders: dict[str, dict[str, StoredObject]] = {}
    for found in landing.store.list_objects(landing.readings_folder(start_s)):
        if found.name.endswith(".parquet") and "/_" not in found.name:
            folder, _, name = found.name.rpartition("/")
            folders.setdefault(folder, {})[name] = found
    for files in folders.values():
        merged = list_merged(files)
        merged_parts: dict[str, int] = {}
        for run, parts, name in merged:
            if run not in merged_parts and use_merged(files[name]):
                merged_parts[run] = parts
        skipped = {name for _, _, name in merged}
        for name, found in files.items():
            if name not in skipped and not is_replaced(name, merged_parts):
                yield found


def manifest_name(start_s: int) -> str:
    """The name of what counts for an interval: who creates it has decided."""
    return f"{CLOSED_FOLDER}/{interval_name(start_s)}.json"


def closing_mark_name(start_s: int) -> str:
    """The name that is created before a closing lists the files."""
    return f"{CLOSED_FOLDER}/{interval_name(start_s)}.closing"


def purged_mark_name(start_s: int) -> str:
    """The name that is created before the readings of an interval are deleted. It holds a manifest without files."""
    return f"{CLOSED_FOLDER}/{interval_name(start_s)}.purged"
