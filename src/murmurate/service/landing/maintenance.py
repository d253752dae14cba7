"""Maintenance of a landing: delete old readings, and find damaged and stray files in its own folders.

One bad file keeps no other from being deleted. Damage is for the operator's page and metrics.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.landing.interval_manifest import (
    CLOSED_FOLDER,
    IntervalManifest,
    closing_mark_path,
    manifest_of,
    manifest_path,
)
from murmurate.service.landing.layout import Landing, interval_name, parse_interval_name
from murmurate.service.landing.meter_table import METERS_FOLDER, find_table_damage, is_version
from murmurate.service.storage import durable

STRAY = "is not a file of this landing; move it away"


@dataclass(slots=True)
class PurgeResult:
    """How many intervals had readings that are gone now, and what could not be deleted, by its name."""

    intervals: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    misnamed: list[str] = field(default_factory=list)  # folders that name no interval and are not old yet

    @contextmanager
    def collect_failure(self, name: str) -> Iterator[None]:
        """Note an error instead of raising it."""
        try:
            yield
        except MurmurateError as error:
            self.failures[name] = str(error)
        except OSError as error:
            self.failures[name] = type(error).__name__


def purge_intervals(landing: Landing, before_s: int) -> int:
    """As `purge_landing`. Returns how many intervals had readings; raises ReadingError where something is left."""
    result = purge_landing(landing, before_s)
    for name, reason in result.failures.items():
        raise ReadingError(name, f"not purged ({reason})", "must be deleted by hand; the rest was purged")
    if result.misnamed:
        allowed = "must be named like interval=20261114T1215Z, or it is deleted when it is old; the rest was purged"
        raise ReadingError(result.misnamed[0], "no interval", allowed)
    return result.intervals


def purge_landing(landing: Landing, before_s: int, on_progress: Callable[[], None] = lambda: None) -> PurgeResult:
    """Delete the readings of every interval that began before `before_s` [s of UTC].

    A manifest with `purged` stays, so that no other demand is computed from what lands there later. A damaged manifest
    is replaced by one. A folder that names no interval is deleted when all that is in it is older than the limit.
    """
    result = PurgeResult()
    landed, misnamed = landing.list_intervals()
    durable.make_directory(landing.root / CLOSED_FOLDER)
    decided = set(landed)  # and those with a manifest or a closing mark; a file with another name is not ours
    for path in (landing.root / CLOSED_FOLDER).iterdir():
        if path.suffix in {".json", ".closing"} and (start_s := landing.parse_interval(path.stem)) is not None:
            decided.add(start_s)
    for start_s in sorted(start_s for start_s in decided if start_s < before_s):
        with result.collect_failure(f"interval={interval_name(start_s)}"):
            path, manifest = manifest_path(landing, start_s), _readable_manifest(landing, start_s)
            if manifest is None or not manifest.purged:
                if path.is_dir():
                    shutil.rmtree(path)
                version = "" if manifest is None else manifest.table_version
                purged = IntervalManifest(start_s=start_s, table_version=version, files=(), purged=True)
                durable.write_file(path, purged.to_json())
            _delete(landing.interval_folder(start_s))
            _delete(closing_mark_path(landing, start_s))
            result.intervals += start_s in landed
        on_progress()
    for name in misnamed:
        with result.collect_failure(name):
            if not _delete_if_old(landing.root / name, before_s):
                result.misnamed.append(name)
    for path in (landing.root / CLOSED_FOLDER).glob(".*"):  # left of a manifest by a process that was killed
        with result.collect_failure(f"{CLOSED_FOLDER}/{path.name}"):
            _delete_if_old(path, before_s)
    durable.fsync_directory(landing.root)
    _purge_tables(landing, before_s, result)
    return result


def _readable_manifest(landing: Landing, start_s: int) -> IntervalManifest | None:
    try:
        return manifest_of(landing, start_s)
    except (MurmurateError, OSError):
        return None


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _delete_if_old(path: Path, before_s: int) -> bool:
    """Delete a folder whose newest file is older than the limit. Returns whether it was."""
    newest_s = max(each.lstat().st_mtime for each in (path, *path.rglob("*")))
    if newest_s >= before_s:
        return False
    _delete(path)
    return True


def _purge_tables(landing: Landing, before_s: int, result: PurgeResult) -> None:
    """Delete old meter tables that no interval needs any more, and what a run that was killed has left of one.

    They hold no reading. While a manifest is unreadable, which tables are needed is not known, and all of them stay.
    """
    needed = set()
    for path in (landing.root / CLOSED_FOLDER).glob("*.json"):
        if landing.parse_interval(path.stem) is not None:
            manifest = _readable_manifest(landing, parse_interval_name(path.stem))
            if manifest is None:
                return
            if not manifest.purged:
                needed.add(manifest.table_version)
    for folder in (landing.root / METERS_FOLDER).glob("*"):
        with result.collect_failure(f"{METERS_FOLDER}/{folder.name}"):
            if folder.is_dir() and folder.name not in needed and folder.stat().st_mtime < before_s:
                purged_folder = folder.with_name(f".{folder.name.lstrip('.')}.purged")
                shutil.rmtree(folder.replace(purged_folder))


class DamageScan:
    """Finds damage. A file that was whole and has not changed since is not read again."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self._whole: dict[Path, tuple[int, int]] = {}  # time of the last change [ns], and size

    def find_damage(self) -> dict[str, str]:
        """Return each damaged or stray file by its path in the landing, with what to do.

        A path is text that any log and database takes; a name that is not UTF-8 is shown with escapes.
        """
        found = {path.relative_to(self._landing.root).as_posix(): reason for path, reason in sorted(self._find())}
        return {name.encode("utf-8", "backslashreplace").decode(): reason for name, reason in found.items()}

    def _find(self) -> Iterator[tuple[Path, str]]:
        for name in self._landing.list_intervals()[1]:
            yield self._landing.root / name, "must be named like interval=20261114T1215Z; it is deleted when it is old"
        for path in _visible(self._landing.root / CLOSED_FOLDER):
            if reason := self._closed_damage(path):
                yield path, reason
        for folder in _visible(self._landing.root / METERS_FOLDER):
            if not is_version(folder.name) or not folder.is_dir():
                yield folder, STRAY
            else:
                yield from find_table_damage(folder)

    def _closed_damage(self, path: Path) -> str:
        start_s = self._landing.parse_interval(path.stem)
        if start_s is None or path.suffix not in {".json", ".closing"} or not path.is_file():
            return STRAY
        if path.suffix == ".closing":
            return ""
        stat = path.stat()
        identity = (stat.st_mtime_ns, stat.st_size)
        if self._whole.get(path) == identity:
            return ""
        try:
            manifest = IntervalManifest.from_file(path)
        except (MurmurateError, OSError):
            return "is no manifest; restore it. Its interval gets its fallback price"
        if manifest.start_s != parse_interval_name(path.stem):
            return "is the manifest of another interval; restore it"
        self._whole[path] = identity
        return ""


def _visible(folder: Path) -> list[Path]:
    """What lies in a folder, without the temporary files of a writer."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
