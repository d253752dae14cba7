"""Close an interval: decide, once and for good, which files and which meter table make its demand.

Every later aggregation, here or on a cluster, gives the same demand or an error. What lands later is late: it stays
where it is and does not count.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from murmurate.errors import ReadingError
from murmurate.service.landing.layout import Landing, interval_name, parse_interval_name
from murmurate.service.landing.readings_file import LandedFile, fingerprint_file
from murmurate.service.storage import durable

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
        document = {
            "murmurate_manifest": _MANIFEST_FORMAT,
            "interval": interval_name(self.start_s),
            "meters": self.table_version,
        }
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
        except (ValueError, KeyError, TypeError):
            raise ReadingError(
                str(path), "unreadable", "must be the manifest of an interval; it decides what counts, so restore it"
            ) from None


def close_interval(landing: Landing, start_s: int, table_version: str, *, sharded: bool = True) -> IntervalManifest:
    """What counts for an interval: decided now, or as it was decided before. Any number of processes may try at once.

    When to close is the caller's: by the wall clock, never by what the readings say of the time. A file that is no file
    of readings is refused before anything is decided; one outside of a shard's folder too, unless there is one shard.
    """
    if (manifest := manifest_of(landing, start_s)) is not None:
        return manifest
    durable.make_directory(landing.root / "_closed")
    durable.write_once(_closing_mark_path(landing, start_s), b"")
    files, unfinished = [], []
    for path in _readings_files(landing.interval_folder(start_s)):
        if (landed := fingerprint_file(landing.root, path)) is None:
            unfinished.append(path.relative_to(landing.root).as_posix())
        elif landed.shard is None and sharded:
            raise ReadingError(
                landed.path, "in no shard", "must lie in a folder such as shard=0: the table has several"
            )
        else:
            files.append(landed)
    manifest = IntervalManifest(
        start_s=start_s, table_version=table_version, files=tuple(files), unfinished=tuple(unfinished)
    )
    if durable.write_once(_manifest_path(landing, start_s), manifest.to_json()):
        return manifest
    return IntervalManifest.from_file(_manifest_path(landing, start_s))


def manifest_of(landing: Landing, start_s: int) -> IntervalManifest | None:
    """The manifest of an interval, if it is closed."""
    path = _manifest_path(landing, start_s)
    return IntervalManifest.from_file(path) if path.exists() else None


def is_closing(landing: Landing, start_s: int) -> bool:
    """Whether the interval is closed or being closed."""
    return _closing_mark_path(landing, start_s).exists() or _manifest_path(landing, start_s).exists()


def check_not_purged(manifest: IntervalManifest) -> None:
    """Raise ReadingError if the readings of the interval were deleted."""
    if manifest.purged:
        name = f"interval {interval_name(manifest.start_s)}"
        raise ReadingError(name, "purged", "its readings were deleted; no demand can be computed from it")


def late_files(landing: Landing, manifest: IntervalManifest) -> list[str]:
    """Files that came after the interval was closed."""
    counted = {file.path for file in manifest.files}
    paths = (
        path.relative_to(landing.root).as_posix() for path in _readings_files(landing.interval_folder(manifest.start_s))
    )
    return [path for path in paths if path not in counted]


def purge_intervals(landing: Landing, before_s: int) -> int:
    """Delete the readings of every interval that began before `before_s`. Returns how many intervals had some.

    A manifest with `purged` stays, so that no other demand is computed from what lands there later.
    """
    landed, misnamed = landing.list_intervals()
    decided = {parse_interval_name(path.stem) for path in (landing.root / "_closed").glob("*.json")}
    durable.make_directory(landing.root / "_closed")
    for start_s in sorted(start_s for start_s in decided.union(landed) if start_s < before_s):
        manifest, folder = manifest_of(landing, start_s), landing.interval_folder(start_s)
        if manifest is None or not manifest.purged:
            purged_manifest = IntervalManifest(
                start_s=start_s, table_version=manifest.table_version if manifest else "", files=(), purged=True
            )
            durable.write_file(_manifest_path(landing, start_s), purged_manifest.to_json())
        if folder.exists():
            shutil.rmtree(folder)
        _closing_mark_path(landing, start_s).unlink(missing_ok=True)
    durable.fsync_directory(landing.root)
    _purge_tables(landing, before_s)
    if misnamed:
        allowed = "must be named like interval=20261114T1215Z; the rest was purged"
        raise ReadingError(misnamed[0], "no interval", allowed)
    return sum(start_s < before_s for start_s in landed)


def _purge_tables(landing: Landing, before_s: int) -> None:
    """Delete old meter tables that no interval needs any more, and what a run that was killed has left of one."""
    manifests = (IntervalManifest.from_file(path) for path in (landing.root / "_closed").glob("*.json"))
    needed = {manifest.table_version for manifest in manifests if not manifest.purged}
    for folder in (landing.root / "_meters").glob("*"):
        if folder.name not in needed and folder.stat().st_mtime < before_s:
            purged_folder = folder.with_name(f".{folder.name.lstrip('.')}.purged")
            shutil.rmtree(folder.replace(purged_folder))


def _readings_files(folder: Path) -> Iterator[Path]:
    """Files of readings; names that begin with a dot or an underscore are temporary files of a writer.

    A folder that cannot be read is an error: an interval must not be closed without what is in it.
    """
    if not folder.exists():
        return
    for directory, folders, names in os.walk(folder, onerror=_raise_error):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(names):
            if name.endswith(".parquet") and not name.startswith((".", "_")):
                yield Path(directory, name)


def _raise_error(error: OSError) -> None:
    raise error


def _manifest_path(landing: Landing, start_s: int) -> Path:
    return landing.root / "_closed" / f"{interval_name(start_s)}.json"


def _closing_mark_path(landing: Landing, start_s: int) -> Path:
    return landing.root / "_closed" / f"{interval_name(start_s)}.closing"
