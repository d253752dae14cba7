"""A check of the public log that runs each day: from the last tile that was checked, and its result as metrics.

A file keeps the last tile of each shard that was found right, and when the whole log was checked. A check begins with
those tiles. They must still be there with the same hash, so a log that was set back is found as well. Once a week, and
where something seems wrong (a change of plan is judged by what was released before it), it begins with the first tiles.
Tiles that were archived since were checked before: the tile that is known follows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.files import read_text
from murmurate.verification.report import LogFinding, VerificationReport
from murmurate.verification.sources import ItemKind, LogItem, LogSource, peek_place, read_items

WHOLE_EVERY_S = 7 * 86_400
_METRICS = """\
# HELP murmurate_verification_timestamp_seconds When the public log was last verified.
# TYPE murmurate_verification_timestamp_seconds gauge
murmurate_verification_timestamp_seconds {at_s}
# HELP murmurate_verification_failed Whether that has found something wrong.
# TYPE murmurate_verification_failed gauge
murmurate_verification_failed {failed:d}
"""  # the text format of Prometheus


@dataclass(frozen=True, slots=True)
class CheckedTiles:
    """The last tile of each shard that was found right, and when the whole log was checked [s of UTC]."""

    whole_s: float = 0.0
    tiles: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # by shard: number and hash
    is_whole: bool = True  # whether the check begins with the first tiles
    _seen: set[tuple[str, str]] = field(default_factory=set)  # sources and shards in which the known tile was read

    @classmethod
    def load(cls, path: Path, now_s: float) -> CheckedTiles:
        """What a check that held has written; nothing where there was none."""
        if not path.exists():
            return cls(now_s)
        try:
            document = json.loads(read_text(path))
            tiles = {str(shard): (int(seq), str(digest)) for shard, (seq, digest) in document["tiles"].items()}
            whole_s = float(document["whole_s"])
        except (AttributeError, LookupError, TypeError, ValueError):
            raise MurmurateError("--known", path, "is no file of an earlier check; delete it to check all") from None
        found = cls(whole_s, tiles, is_whole=False)
        return found.check_all(now_s) if whole_s + WHOLE_EVERY_S <= now_s else found

    def check_all(self, now_s: float) -> CheckedTiles:
        """The same, for a check that begins with the first tiles."""
        return CheckedTiles(now_s, self.tiles)

    def first_seq(self, shard: str) -> int:
        return 0 if self.is_whole else self.tiles.get(shard, (0, ""))[0]

    def trim(self, name: str, source: LogSource) -> LogSource:
        """The source without the tiles before the one that its check begins with."""

        def read() -> Iterator[LogItem]:
            for item in read_items(source):
                if self.tiles and item.kind is ItemKind.TILE:
                    shard, seq, _ = peek_place(item.data)
                    if seq is not None and seq < self.first_seq(shard):
                        continue
                    if (seq, sha256(item.header_line).hexdigest()) == self.tiles.get(shard):
                        self._seen.add((name, shard))
                yield item

        return read

    def report_lost(self, report: VerificationReport, sources: Iterable[str]) -> None:
        """Add a finding for each source that lacks the last tile of a shard that was found right.

        Releases that were archived before that tile were checked before. Where it was archived itself, some were not.
        """
        begins = {shard: beginning.seq for shard, beginning in report.unchecked_beginnings.items()}
        for name, (shard, (seq, _)) in product(sources, self.tiles.items()):
            if begins.get(shard, 0) > seq:
                continue
            report.unchecked_beginnings.pop(shard, None)
            if (name, shard) not in self._seen:
                words = "was there when the log was last verified, and is missing now"
                report.add_finding(LogFinding(shard, seq, "", "gap", words, name))

    def save(self, path: Path, report: VerificationReport) -> None:
        tiles = {**self.tiles, **report.last_tiles}
        write_replacing(path, json.dumps({"whole_s": self.whole_s, "tiles": tiles}, indent=1) + "\n")


def write_metrics(path: Path, report: VerificationReport, now_s: float) -> None:
    """Write when the log was verified and whether it held, for the textfile collector of node_exporter."""
    write_replacing(path, _METRICS.format(at_s=int(now_s), failed=not (report.is_valid and report.is_complete)))


def write_replacing(path: Path, text: str) -> None:
    """Write a file that a reader finds whole, before or after."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
