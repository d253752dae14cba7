"""Readings on their way from files to the merge: kept on disk, in parts by meter, so that memory stays bounded."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PART_COUNT = 64  # a part is read as a whole: 10^9 readings need about 1 GB
MAX_BUFFERED = 500_000  # readings in memory before they are written
READING_TYPE = np.dtype(
    [
        ("meter", np.int64),
        ("start_s", np.int64),  # first meaning of its time [s of UTC]
        ("later_s", np.int64),  # by how much later the second meaning is; 0 where there is one
        ("length_s", np.int64),
        ("energy_wh", np.int64),
        ("file", np.int64),
        ("line", np.int64),
        ("column", np.int64),
    ]
)
_FIELDS = len(READING_TYPE.names or ())
SpooledReadings = NDArray[Any]  # of READING_TYPE


class ReadingSpool:
    """Takes readings one by one and gives them back meter by meter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buffer = array("q")
        self.count = 0

    def add_reading(
        self, *, meter: int, moment: tuple[int, int], length_s: int, energy_wh: int, place: tuple[int, int, int]
    ) -> None:
        """Add a reading. `moment` is start and later, `place` file, line and column."""
        self._buffer.extend((meter, *moment, length_s, energy_wh, *place))
        if len(self._buffer) >= MAX_BUFFERED * _FIELDS:
            self._write()

    def _write(self) -> None:
        rows = np.array(self._buffer, np.int64).view(READING_TYPE)
        self._buffer = array("q")
        self.count += len(rows)
        part = rows["meter"] % PART_COUNT
        order = np.argsort(part, kind="stable")
        edges = np.searchsorted(part[order], np.arange(PART_COUNT + 1))
        for number in np.flatnonzero(np.diff(edges)).tolist():
            with (self._folder / f"{number}.part").open("ab") as file:
                rows[order[edges[number] : edges[number + 1]]].tofile(file)

    def read_parts(self) -> Iterator[SpooledReadings]:
        """Yield the readings of some meters after the other, in the order in which they were added."""
        if self._buffer:
            self._write()
        for number in range(PART_COUNT):
            path = self._folder / f"{number}.part"
            if path.exists():
                yield np.fromfile(path, READING_TYPE)
                path.unlink()
