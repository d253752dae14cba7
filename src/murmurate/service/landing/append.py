"""Append readings to the landing: small appends by any number of writers, durable when the call returns.

A file costs some 0.5 core ms to close and to aggregate, as much as 10,000 readings. One process appends hundreds of
small files to an interval, so it keeps their readings in memory [16 bytes each] and writes them once more as one file
before the interval is closed. What is acknowledged is in the small files; a process that is killed loses nothing but
the merging.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from murmurate.errors import MurmurateError
from murmurate.service.landing.interval_manifest import is_closing, manifest_of
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.readings_file import encode_readings, merged_name, new_run_name, part_name
from murmurate.types import Readings

logger = logging.getLogger(__name__)

MAX_SMALL_FILE_READINGS = 32_768  # a file with more readings is not merged
MAX_RUN_READINGS = 262_144  # a run with more readings is ended, and another one begins
MAX_HELD_READINGS = 2**24  # in memory; beyond it files are not merged
MIN_PARTS_TO_MERGE = 4
QUIET_S = 2.0  # merge a run that received nothing for this long [s]
DEADLINE_MARGIN_S = 4.0  # merge every run this long before the deadline of its interval [s]
_MERGE_CHECK_S = 1.0
_MAX_HOLD_S = 3600.0  # stop holding an interval that is still open this long after its deadline [s]

# Takes an interval [s of UTC] and readings. Returns True if the interval is still open, so that they will be counted.
AppendReadings = Callable[[int, Readings], bool]
# Takes an interval [s of UTC], a folder in that of the interval, and readings in order of the meters.
WriteCommit = Callable[[int, str, Readings], None]


def append_readings(landing: Landing, start_s: int, readings: Readings, write: WriteCommit | None = None) -> bool:
    """Add readings of one interval. Returns whether they are sure to count: False once the interval is being closed.

    They are one file, which is whole or not there: in the folder of their shard, or in that of the interval if they are
    of several shards. If the call fails, append again: a reading that is there twice counts once. `write` writes the
    file; it must be durable on return.
    """
    if is_closing(landing, start_s):
        return False

    def write_new_file(start_s: int, folder: str, readings: Readings) -> None:
        write_readings_file(landing, start_s, folder, part_name(new_run_name(), 0), readings)

    order = np.argsort(readings.meter)  # in order of the meters a reading takes a third of the room
    commit = Readings(meter=readings.meter[order], energy_wh=readings.energy_wh[order])
    if len(commit):
        first, last = (int(commit.meter[at]) // landing.shard_meters for at in (0, -1))
        (write or write_new_file)(start_s, f"shard={first}" if first == last else "", commit)
    # A closing lists the files after it has begun: what is in place before that is on its list.
    return not is_closing(landing, start_s)


def write_readings_file(landing: Landing, start_s: int, folder: str, name: str, readings: Readings) -> str:
    """Create a file of readings of one interval, durably. Returns its path in the landing, which ends in `name`-.."""
    data, ending = encode_readings(start_s, readings, landing.shard_meters)
    path = "/".join(filter(None, (landing.readings_folder(start_s), folder, f"{name}-{ending}")))
    if not landing.store.create(path, data):
        raise FileExistsError(path)  # a name of 12 random bytes: two processes that were copied from one
    return path


def join_readings(parts: Sequence[Readings]) -> Readings:
    """The readings of all parts, in their order."""
    if len(parts) == 1:
        return parts[0]
    return Readings(
        meter=np.concatenate([part.meter for part in parts]),
        energy_wh=np.concatenate([part.energy_wh for part in parts]),
    )


class _FileRun:
    """The small files that this process has appended to one folder of one interval, and their readings."""

    def __init__(self, start_s: int, folder: str) -> None:
        self.start_s = start_s
        self.folder = folder
        self.name = new_run_name()
        self.readings: list[Readings] = []  # of the parts, in order; merged ones are joined
        self.reading_count = 0
        self.parts: list[str] = []
        self.merged: list[str] = []  # the last one replaces the others
        self.merged_parts = 0  # how many parts it holds
        self.merged_reading_count = 0
        self.changed_s = 0.0  # monotonic, of the last part


class MergingAppender:
    """Appends from one thread. Another thread merges while there is something to merge, and then ends.

    Without `in_background` there is no such thread, and the caller merges.
    """

    def __init__(self, landing: Landing, now: Callable[[], float], grace_s: int, *, in_background: bool = True) -> None:
        self._landing = landing
        self._now = now
        self._grace_s = grace_s
        self._in_background = in_background
        self._lock = threading.Lock()
        self._runs: dict[tuple[int, str], _FileRun] = {}  # by interval and folder: the run that takes the next part
        self._ended: list[_FileRun] = []
        self._held_readings = 0
        self._thread: threading.Thread | None = None

    def append(self, start_s: int, readings: Readings) -> bool:
        """As `append_readings`."""
        is_counted = append_readings(self._landing, start_s, readings, self._write_part)
        with self._lock:
            if self._in_background and self._thread is None and self._runs:
                self._thread = threading.Thread(target=self._run_thread, name="merge", daemon=True)
                self._thread.start()
        return is_counted

    def merge_due_runs(self) -> None:
        """Write the merged files that are due, and delete the parts of intervals that were closed with them."""
        with self._lock:
            runs = [*self._runs.values(), *self._ended]
        for start_s in sorted({run.start_s for run in runs}):
            own = [run for run in runs if run.start_s == start_s]
            if is_closing(self._landing, start_s) or self._now() > self._deadline_s(start_s) + _MAX_HOLD_S:
                self._drop_closed_runs(start_s, own)
                continue
            is_last_time = self._now() >= self._deadline_s(start_s) - DEADLINE_MARGIN_S
            for run in own:
                is_at_rest = time.monotonic() - run.changed_s >= QUIET_S
                is_large = run.reading_count >= 2 * run.merged_reading_count + MAX_SMALL_FILE_READINGS
                if len(run.parts) - run.merged_parts >= MIN_PARTS_TO_MERGE and (is_at_rest or is_large or is_last_time):
                    self._merge_run(run)

    def _write_part(self, start_s: int, folder: str, readings: Readings) -> None:
        count = len(readings)
        if count > MAX_SMALL_FILE_READINGS or self._held_readings + count > MAX_HELD_READINGS:  # not to be merged
            write_readings_file(self._landing, start_s, folder, part_name(new_run_name(), 0), readings)
            return
        with self._lock:
            run = self._runs.get((start_s, folder))
        if run is not None and run.reading_count + count > MAX_RUN_READINGS:
            self._end_run(start_s, folder)
            run = None
        if run is None:
            run = _FileRun(start_s, folder)
            with self._lock:
                self._runs[start_s, folder] = run
        try:
            path = write_readings_file(self._landing, start_s, folder, part_name(run.name, len(run.parts)), readings)
        except BaseException:
            self._end_run(start_s, folder)  # whether the part is there is not known, so no merged file may replace it
            raise
        with self._lock:
            run.readings.append(readings)
            run.reading_count += len(readings)
            run.parts.append(path)
            self._held_readings += len(readings)
            run.changed_s = time.monotonic()

    def _end_run(self, start_s: int, folder: str) -> None:
        with self._lock:
            if (run := self._runs.pop((start_s, folder), None)) is not None:
                self._ended.append(run)

    def _deadline_s(self, start_s: int) -> float:
        return start_s + self._landing.interval_s + self._grace_s

    def _merge_run(self, run: _FileRun) -> None:
        with self._lock:
            pieces, parts = list(run.readings), len(run.parts)
        joined = join_readings(pieces)
        order = np.argsort(joined.meter)
        merged = Readings(meter=joined.meter[order], energy_wh=joined.energy_wh[order])
        path = write_readings_file(self._landing, run.start_s, run.folder, merged_name(run.name, parts), merged)
        with self._lock:
            run.merged.append(path)
            run.merged_parts = parts
            run.readings[: len(pieces)] = [merged]
            run.merged_reading_count = len(merged)

    def _drop_closed_runs(self, start_s: int, runs: list[_FileRun]) -> None:
        """Let go of the runs of an interval that takes no readings any more, once it is decided what counts."""
        manifest = manifest_of(self._landing, start_s)
        if manifest is None and self._now() <= self._deadline_s(start_s) + _MAX_HOLD_S:
            return
        dropped = set(runs)
        with self._lock:
            self._runs = {key: run for key, run in self._runs.items() if run not in dropped}
            self._ended = [run for run in self._ended if run not in dropped]
            self._held_readings = sum(run.reading_count for run in (*self._runs.values(), *self._ended))
        counted = {file.path for file in manifest.files} if manifest else set()
        for run in runs:  # delete what a merged file replaces, if the manifest counts the merged file
            if run.merged and run.merged[-1] in counted:
                for path in (*run.merged[:-1], *run.parts[: run.merged_parts]):
                    self._landing.store.delete(path)

    def _run_thread(self) -> None:
        while True:
            time.sleep(_MERGE_CHECK_S)
            try:
                self.merge_due_runs()
            except (MurmurateError, OSError) as error:
                logger.warning("files not merged", extra={"reason": type(error).__name__})
            with self._lock:
                if not self._runs and not self._ended:
                    self._thread = None
                    return
