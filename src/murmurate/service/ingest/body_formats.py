"""The formats of bodies of readings, by media type."""

from __future__ import annotations

from collections.abc import Callable

from murmurate.service.ingest.batch import ReadingBatch, Refusals
from murmurate.service.ingest.formats.green_button import parse_green_button
from murmurate.service.ingest.formats.parquet import parse_parquet
from murmurate.service.ingest.formats.text_lines import parse_csv, parse_json_lines

BodyParser = Callable[..., tuple[ReadingBatch, Refusals]]

JSON_LINES = "application/x-ndjson"
PARQUET = "application/vnd.apache.parquet"
PARSERS_BY_MEDIA_TYPE: dict[str, BodyParser] = {
    JSON_LINES: parse_json_lines,
    "application/jsonl": parse_json_lines,
    PARQUET: parse_parquet,
    "text/csv": parse_csv,
    "application/atom+xml": parse_green_button,
}
