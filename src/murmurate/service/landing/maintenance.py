"""Maintenance of a landing: delete old readings, and find damaged and stray files in its own folders.

One bad file keeps no other from being deleted. Damage is for the operator's page and metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.landing.interval_manifest import (
    CLOSED_FOLDER,
    IntervalManifest,
    closing_mark_name,
    manifest_name,
    manifest_of,
    purged_mark_name,
)
from murmurate.service.landing.layout import Landing, interval_name, parse_interval_name
from murmurate.service.landing.meter_table import (
    CONTENTS_FILE,
    METERS_FOLDER,
    find_table_damage,
    is_version,
    table_folder,
)
from murmurate.service.storage.object_store import StoredObject

_CLOSED_SUFFIXES = {".json", ".closing", ".purged"}
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

    A mark stays, so that no other demand is computed from what lands there later, also where the manifest is damaged.
    A folder that names no interval is deleted when all that is in it is older than the limit.
    """
    result, store = PurgeResult(), landing.store
    landed, misnamed = landing.list_intervals()
    closed = {found.name for found in store.list_objects(CLOSED_FOLDER)}
    decided = set(landed)  # and those with a manifest or a closing mark; a file with another name is not ours
    for name in closed:
        stem, suffix = _split_name(name)
        if suffix in _CLOSED_SUFFIXES and (start_s := landing.parse_interval(stem)) is not None:
            decided.add(start_s)
    for start_s in sorted(start_s for start_s in decided if start_s < before_s):
        with result.collect_failure(f"interval={interval_name(start_s)}"):
            _purge_interval(landing, start_s, closed)
            result.intervals += start_s in landed
        on_progress()
    for name in misnamed:
        with result.collect_failure(name):
            if max((found.changed_s for found in store.list_objects(name)), default=0.0) < before_s:
                store.delete_folder(name)
            else:
                result.misnamed.append(name)
    with result.collect_failure(CLOSED_FOLDER):  # left of a manifest by a process that was killed
        store.delete_unfinished(CLOSED_FOLDER, before_s)
    _purge_tables(landing, before_s, result)
    return result


def _purge_interval(landing: Landing, start_s: int, closed: Collection[str]) -> None:
    """Delete the readings of an interval, once a mark says so. `closed` has the names in `CLOSED_FOLDER`."""
    store, mark, name = landing.store, purged_mark_name(start_s), manifest_name(start_s)
    if mark not in closed:
        manifest = _readable_manifest(landing, start_s)
        version = "" if manifest is None else manifest.table_version
        store.create(closing_mark_name(start_s), b"")
        store.create(mark, IntervalManifest(start_s=start_s, table_version=version, files=(), purged=True).to_json())
    store.delete_folder(landing.readings_folder(start_s))
    try:  # it has digests of readings
        store.delete(name)
    except IsADirectoryError:
        store.delete_folder(name)


def _split_name(name: str) -> tuple[str, str]:
    """The last part of a name in two, at its last dot.

    >>> _split_name("_closed/20261114T1215Z.json")
    ('20261114T1215Z', '.json')
    """
    stem, dot, suffix = name.rpartition("/")[2].rpartition(".")
    return stem, dot + suffix


def _readable_manifest(landing: Landing, start_s: int) -> IntervalManifest | None:
    try:
        return manifest_of(landing, start_s)
    except (MurmurateError, OSError):
        return None


def _purge_tables(landing: Landing, before_s: int, result: PurgeResult) -> None:
    """Delete old meter tables that no interval needs any more.

    They hold no reading. While a manifest is unreadable, which tables are needed is not known, and all of them stay.
    """
    needed = set()
    for found in landing.store.list_objects(CLOSED_FOLDER):
        stem, suffix = _split_name(found.name)
        if suffix == ".json" and landing.parse_interval(stem) is not None:
            manifest = _readable_manifest(landing, parse_interval_name(stem))
            if manifest is None:
                return
            if not manifest.purged:
                needed.add(manifest.table_version)
    changed_s: dict[str, float] = {}
    for found in landing.store.list_objects(METERS_FOLDER):
        version = found.name.split("/")[1]
        changed_s[version] = max(changed_s.get(version, 0.0), found.changed_s)
    for version, newest_s in changed_s.items():
        with result.collect_failure(f"{METERS_FOLDER}/{version}"):
            if version not in needed and newest_s < before_s:
                landing.store.delete(f"{table_folder(version)}/{CONTENTS_FILE}")  # or a part of it would look like it
                landing.store.delete_folder(table_folder(version))


class DamageScan:
    """Finds damage. A file that was whole and has not changed since is not read again."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self._whole: dict[str, StoredObject] = {}

    def find_damage(self) -> dict[str, str]:
        """Return each damaged or stray file by its path in the landing, with what to do.

        A path is text that any log and database takes; a name that is not UTF-8 is shown with escapes.
        """
        return {name.encode("utf-8", "backslashreplace").decode(): reason for name, reason in sorted(set(self._find()))}

    def _find(self) -> Iterator[tuple[str, str]]:
        store = self._landing.store
        for name in self._landing.list_intervals()[1]:
            yield name, "must be named like interval=20261114T1215Z; it is deleted when it is old"
        for found in store.list_objects(CLOSED_FOLDER):
            _, name, *inner = found.name.split("/")
            if reason := STRAY if inner else self._closed_damage(found):
                yield f"{CLOSED_FOLDER}/{name}", reason
        for version in {found.name.split("/")[1] for found in store.list_objects(METERS_FOLDER)}:
            if not is_version(version):
                yield f"{METERS_FOLDER}/{version}", STRAY
                continue
            yield from find_table_damage(store, version)

    def _closed_damage(self, found: StoredObject) -> str:
        stem, suffix = _split_name(found.name)
        start_s = self._landing.parse_interval(stem)
        if start_s is None or suffix not in _CLOSED_SUFFIXES:
            return STRAY
        if suffix == ".closing" or self._whole.get(found.name) == found:
            return ""
        try:
            manifest = IntervalManifest.read(self._landing.store, found.name)
        except (MurmurateError, OSError):
            return "is no manifest; restore it. Its interval gets its fallback price"
        if manifest.start_s != start_s:
            return "is the manifest of another interval; restore it"
        self._whole[found.name] = found
        return ""
