"""Count the rows of a shard for the summary of each zone, all zones at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from murmurate.public_log.tile import RowKind, Rows, Tile
from murmurate.public_log.tile_chain import COST_COLUMNS
from murmurate.public_log.zone_table import ZoneTable
from murmurate.units import IntArray
from murmurate.verification.report import ZoneSummary

_NO_COUNTS: IntArray = np.zeros((len(RowKind), 0), np.int64)


@dataclass(slots=True)
class ZoneTally:
    """Counts of the rows under one zone table that are not yet in the summaries."""

    zones: list[tuple[int, ZoneSummary]] = field(default_factory=list)  # number of the row, and the summary
    counts: IntArray = field(default_factory=lambda: _NO_COUNTS)  # [kind, row]
    first: int = 0  # interval
    last: int = 0
    rows: Rows | None = None  # the last ones

    def begin(self, tile: Tile, table: ZoneTable, zones: list[tuple[int, ZoneSummary]]) -> None:
        """Count from here on the rows of these zones."""
        self.flush()
        header = tile.header
        self.zones, self.counts = zones, np.zeros((len(RowKind), len(table)), np.int64)
        for at, summary in zones:
            plan = table.rows[at].plan
            summary.add_terms(key=header.key, plan=plan, interval_s=header.interval_s)

    def change_key(self, next_key: str) -> None:
        for _, summary in self.zones:
            summary.keys.append(next_key)

    def add_rows(self, interval: int, rows: Rows) -> None:
        if self.rows is None:
            self.first = interval
        self.last, self.rows = interval, rows
        for number, kind in enumerate(RowKind):
            self.counts[number] += rows["kind"] == kind

    def flush(self) -> None:
        """Add what was counted to the summaries."""
        if self.rows is None:
            return
        for at, summary in self.zones:
            counts = zip(RowKind, self.counts[:, at].tolist(), strict=True)
            kinds = Counter({kind.name.lower(): count for kind, count in counts if count})
            epsilon, rho = (int(self.rows[f"total_{cost}"][at]) for cost in COST_COLUMNS)
            summary.add_rows(kinds, self.first, self.last, (epsilon, rho))
        self.counts[:] = 0
        self.rows = None
