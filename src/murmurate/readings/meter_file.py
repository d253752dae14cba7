"""Read and check the operator's meter table: a CSV or Parquet file, or a folder of them.

The service, `murmurate plan` and every check of a table use this one reader.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from murmurate.errors import MeterError
from murmurate.files import check_utf_8

_COLUMN_CHECKS = {"meter": pa.types.is_integer, "zone": pa.types.is_large_string, "bound_wh": pa.types.is_integer}
_COLUMN_CHECKS |= dict.fromkeys(("imputed_wh", "export_bound_wh"), pa.types.is_integer)
_COLUMN_CHECKS["protected"] = pa.types.is_boolean
_COLUMN_CHECKS |= dict.fromkeys(("id", "key", "kind"), pa.types.is_large_string)
_COLUMN_CHECKS["household"] = lambda kind: pa.types.is_large_string(kind) or pa.types.is_integer(kind)
TEXT_COLUMNS = ("zone", "id", "key", "kind", "household")
_NULLABLE_COLUMNS = ("key", "kind")
_TABLE_SUFFIXES = (".parquet", ".csv")
_TYPE_TEXTS = dict.fromkeys(TEXT_COLUMNS, "text") | {
    "protected": "true or false",
    "household": "text or whole numbers",
}


@contextmanager
def arrow_errors_as_meter_errors(source: Path) -> Iterator[None]:
    """Raise MeterError where Arrow cannot hold or compute a table, so that the service releases fallback prices."""
    try:
        yield
    except (pa.ArrowException, MemoryError) as error:
        if isinstance(error, OSError) and error.strerror:  # the disk, not the table
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        allowed = f"must fit in memory; shorten its texts, or serve each region by itself. Arrow says: {reason}"
        raise MeterError(str(source), "more than Arrow can handle", allowed) from None


def table_version(source: Path) -> str:
    """The digest of the operator's own file, or of the files in a folder."""
    digests = [file_digest(path) for path in _table_files(source)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def table_size(source: Path) -> int:
    """Bytes of the operator's file or files; 0 where there is none."""
    try:
        return sum(path.stat().st_size for path in _table_files(source))
    except (MeterError, OSError):
        return 0


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_table(
    source: Path,
    *,
    required: Collection[str] = ("meter", "zone", "bound_wh"),
    optional: Collection[str] = ("imputed_wh", "export_bound_wh", "protected", "id", "key", "kind", "household"),
) -> pa.Table:
    """Return the operator's table, checked. Only `key` and `kind` may be empty. Other columns are not read.

    Rows are in the order of the meters' numbers where `meter` is read, else in that of the files. A folder holds parts
    of the table, for example one file for each region. Texts have 64-bit offsets: a column of more than 2 GiB of text,
    which 10^8 meters have, is no special case.
    """
    parts = [_read_part(path, required, optional) for path in _table_files(source)]
    names = parts[0].column_names
    if other := next((at for at, part in enumerate(parts) if set(part.column_names) != set(names)), 0):
        file = _table_files(source)[other]
        raise MeterError(
            str(file), "with other columns", f"must have the columns {', '.join(names)}, as the first file"
        )
    try:
        table = pa.concat_tables([part.select(names) for part in parts])
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise MeterError(str(source), "of several types", f"must have one type in each column: {reason}") from None
    if not len(table):
        raise MeterError(str(source), "empty", "must have a row for each meter")
    for name, kind in ((name, table.schema.field(name).type) for name in names):
        fits = _COLUMN_CHECKS[name](kind)
        gaps = table[name].null_count or (
            fits and pa.types.is_large_string(kind) and pc.any(pc.equal(table[name], "")).as_py()
        )
        if not fits or (gaps and name not in _NULLABLE_COLUMNS):
            what = "empty here and there" if gaps else kind
            raise MeterError(f"{source}: {name}", what, f"must be {_TYPE_TEXTS.get(name, 'whole numbers')} throughout")
    with arrow_errors_as_meter_errors(source):
        table = table.combine_chunks()
        return table.sort_by("meter") if "meter" in names else table


def _read_part(path: Path, required: Collection[str], optional: Collection[str]) -> pa.Table:
    """Return the columns of one file, texts with 64-bit offsets."""
    with path.open("rb") as file:
        head = file.read(4)
    check_utf_8(path, head)
    is_parquet = path.suffix == ".parquet" or head == b"PAR1"
    text = pv.ConvertOptions(column_types=dict.fromkeys(TEXT_COLUMNS, pa.large_string()))
    try:
        table = pq.read_table(path, partitioning=None) if is_parquet else pv.read_csv(path, convert_options=text)
        table.validate(full=True)  # Parquet's texts may not be UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise
        reason = re.sub(r"(got \d+):.*", r"\1", str(error).splitlines()[0])  # Arrow quotes the row: ids, keys, bounds
        allowed = f"must be Parquet, or CSV with as many cells in each row as in its header. Arrow says: {reason}"
        raise MeterError(str(path), "unreadable", allowed) from None
    try:
        names = [*required, *(name for name in optional if name in table.column_names)]
    except UnicodeDecodeError:
        raise MeterError(str(path), "with a name that is not UTF-8", "must have columns with names in UTF-8") from None
    for name in names:
        if table.column_names.count(name) != 1:
            how = f"with {name} twice" if name in table.column_names else f"without {name}"
            allowed = f"must have the columns {', '.join(required)}, separated by commas"
            raise MeterError(str(path), how, allowed)
    table = table.select(names)
    with arrow_errors_as_meter_errors(path):
        for name in set(TEXT_COLUMNS).intersection(names):  # cast chunk by chunk, before chunks are combined
            text, kind = table[name], table[name].type
            if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):  # widened before it is written out
                chunks = [
                    pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
                    for chunk in text.chunks
                ]
                text = pa.chunked_array(chunks, pa.dictionary(kind.index_type, pa.large_string()))
            # a column that CSV or Parquet has nothing in is of the type null
            tests = (pa.types.is_dictionary, pa.types.is_string, pa.types.is_string_view, pa.types.is_null)
            if any(is_type(kind) for is_type in tests):
                table = table.set_column(names.index(name), name, text.cast(pa.large_string()))
    return table


def _table_files(source: Path) -> list[Path]:
    """The files of a table; in a folder those that lie in it, not what lies deeper."""
    if not source.is_dir():
        return [source]
    files = sorted(
        path
        for path in source.iterdir()
        if path.suffix in _TABLE_SUFFIXES and path.is_file() and not path.name.startswith((".", "_"))
    )
    if not files:
        raise MeterError("meters", source, "must be a CSV or Parquet file, or a folder with *.parquet or *.csv")
    return files
