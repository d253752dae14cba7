"""Look for damaged and stray files in the landing's own folders, for the operator's page and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.service.landing.interval_manifest import CLOSED_FOLDER, IntervalManifest
from murmurate.service.landing.layout import Landing, parse_interval_name
from murmurate.service.landing.meter_table import METERS_FOLDER, find_table_damage, is_version

STRAY = "is not a file of this landing; move it away"
_Identity = tuple[int, int]  # time of the last change [ns], and size


class DamageScan:
    """Finds damage. A file that was whole and has not changed since is not read again."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self._whole: dict[Path, _Identity] = {}

    def find_damage(self) -> dict[str, str]:
        """Return each damaged or stray file by its path in the landing, with what to do."""
        root = self._landing.root
        found = dict(self._find())
        return {_printable(path.relative_to(root)): reason for path, reason in sorted(found.items())}

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


def _printable(path: Path) -> str:
    """A path as text that any log and database takes; a name that is not UTF-8 is shown with escapes."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def _visible(folder: Path) -> list[Path]:
    """What lies in a folder, without the temporary files of a writer."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
