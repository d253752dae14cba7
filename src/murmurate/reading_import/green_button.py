"""Green Button files: read by the parser of the service, once for each length of interval that they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from murmurate.errors import ReadingError
from murmurate.reading_import.refused_cells import RefusedCells
from murmurate.service.ingest.batch import Refusals
from murmurate.service.ingest.formats.green_button import parse_green_button

MAX_FEED_BYTES = 2**30
_DURATION = re.compile(rb"duration>\s*([0-9]{1,7})\s*<")
_USUAL_LENGTH_S = 900


class FeedReading(NamedTuple):
    """A reading of a feed."""

    meter: str
    start_s: int
    energy_wh: int
    length_s: int
    line: int  # ordinal of the reading in the feed


def is_feed(head: bytes) -> bool:
    """Return whether a file begins as XML does."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def read_feed(path: Path, refused: RefusedCells) -> Iterator[FeedReading]:
    """Yield the readings of a feed. Whole Wh are rounded down, as when the service takes the feed."""
    if path.stat().st_size > MAX_FEED_BYTES:
        raise ReadingError(str(path), "too large", f"must have at most {MAX_FEED_BYTES:,} bytes; export less at a time")
    body = path.read_bytes()
    lengths = sorted({int(text) for text in _DURATION.findall(body) if int(text) and 3600 % int(text) == 0})
    left: Refusals | None = None
    for length_s in lengths or [_USUAL_LENGTH_S]:
        try:
            batch, refusals = parse_green_button(body, interval_s=length_s)
        except ReadingError as error:
            raise ReadingError(f"{path}: {error.field}", error.value, error.allowed) from None
        for meter, start_s, energy_wh, line in zip(
            batch.meter, batch.start_s.tolist(), batch.energy_wh.tolist(), batch.line.tolist(), strict=True
        ):
            if energy_wh < 0:
                refusals[line] = "value is negative: must be 0 or more"
            else:
                yield FeedReading(str(meter), start_s, energy_wh, length_s, line)
        left = refusals if left is None else {line: left[line] for line in refusals.keys() & left.keys()}
    for line, reason in sorted((left or {}).items()):
        refused.refuse(reason, f"{path.name}: reading {line}")
