"""Read CSV and Parquet files of any encoding and separator as a stream of rows of text."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from murmurate.errors import ReadingError

Row = Sequence[str]
NumberedRow = tuple[int, Row]  # line of the file, from 1, and its cells
_SAMPLE_BYTES = 2**16
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
_PACKED_FILES = {
    b"PK\3\4": "a ZIP file or an Excel workbook",
    b"\x1f\x8b": "a gzip file",
    b"\xd0\xcf": "an old Excel file",
}
_PARQUET_ROWS = 2**16  # that are decoded at a time


@dataclass(frozen=True, slots=True)
class Table:
    """A file as a header and a stream of rows."""

    header: tuple[str, ...]
    rows: Iterator[NumberedRow]
    dialect: str  # how the file is written, in words
    position: Callable[[], int]  # bytes that have been read


def open_table(path: Path, file: BinaryIO) -> Table:
    """Return the rows of a CSV or Parquet file that is open. Raises ReadingError if it is neither."""
    head = file.read(_SAMPLE_BYTES)
    file.seek(0)
    if not head:
        raise ReadingError(str(path), "empty", "must have a header and rows")
    packed = next((name for magic, name in _PACKED_FILES.items() if head.startswith(magic)), "")
    if packed:
        raise ReadingError(str(path), packed, "must be unpacked, or saved as CSV, first")
    if head.startswith(b"PAR1"):
        return _open_parquet(path, file)
    encoding, encoding_text = detect_encoding(head)
    text = io.TextIOWrapper(file, encoding, errors="replace", newline="")
    first = text.readline()
    skipped = 0
    if first.lower().startswith("sep="):  # a line that Excel writes for itself
        first, skipped = text.readline(), 1
    counts = {each: len(next(csv.reader([first], delimiter=each), ())) for each in _DELIMITERS}
    delimiter = max(counts, key=lambda each: counts[each])
    header = tuple(name.strip() for name in next(csv.reader([first], delimiter=delimiter), ()))
    if len(header) < 2 or "\0" in first:
        raise ReadingError(str(path), "no table", "must be CSV with a header, Parquet or Green Button (XML)")

    def read_rows() -> Iterator[NumberedRow]:
        reader = csv.reader(text, delimiter=delimiter)
        try:
            for row in reader:
                if row:
                    yield skipped + 1 + reader.line_num, row
        except csv.Error as error:
            place = f"{path}:{skipped + 1 + reader.line_num}"
            raise ReadingError(place, "not CSV", f"must be a row of cells; {error}") from None

    dialect = f"{encoding_text}, {_DELIMITERS[delimiter]}"
    return Table(header, read_rows(), dialect, lambda: text.buffer.tell())  # noqa: PLW0108 - keeps `text` open


def detect_encoding(head: bytes) -> tuple[str, str]:
    """Return the codec of a text by its first bytes, and its name.

    >>> detect_encoding("id;kWh".encode("utf-16"))[1], detect_encoding("Zähler;kWh".encode("cp1252"))[1]
    ('UTF-16', 'Windows-1252')
    """
    for mark, codec, name in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return codec, name
    if b"\0" in head[:64]:  # ASCII as UTF-16 has a zero in every other place
        return ("utf-16-le" if head[1:2] == b"\0" else "utf-16-be"), "UTF-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252", "Windows-1252"
    return "utf-8", "UTF-8"


def _open_parquet(path: Path, file: BinaryIO) -> Table:
    from pyarrow import parquet  # noqa: PLC0415 - a CSV is read without

    with _arrow_errors_as_reading_errors(path):
        source = parquet.ParquetFile(file)
        names = tuple(source.schema_arrow.names)
        size, rows = path.stat().st_size, max(source.metadata.num_rows, 1)
    done = 0

    def read_rows() -> Iterator[NumberedRow]:
        nonlocal done
        with _arrow_errors_as_reading_errors(path):
            for batch in source.iter_batches(_PARQUET_ROWS):
                columns = [_to_texts(column) for column in batch.columns]
                yield from enumerate(zip(*columns, strict=True), start=done + 1)
                done += len(batch)

    return Table(names, read_rows(), "Parquet", lambda: size * done // rows)


@contextmanager
def _arrow_errors_as_reading_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ReadingError(str(path), "not readable", f"must be a whole Parquet file. Arrow says: {reason}") from None


def _to_texts(column: Any) -> list[str]:
    """Return the values of an Arrow column as a CSV would have them. Each distinct value is written once."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if pa.types.is_nested(column.type):
        return [""] * len(column)
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False)
        column = pc.cast(column, pa.timestamp("us", "UTC")) if column.type.tz else column
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    distinct = ["" if value is None else value for value in encoded.dictionary.to_pylist()]
    texts = [value.isoformat() if hasattr(value, "isoformat") else str(value) for value in distinct]
    return ["" if index is None else texts[index] for index in encoded.indices.to_pylist()]
