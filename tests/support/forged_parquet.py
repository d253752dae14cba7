"""A Parquet file of a few kB that says of itself that it is small, and is huge once it is decompressed.

Written byte by byte in the compact protocol of Thrift, because no library writes a footer that lies.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_INT64, _BYTE_ARRAY = 2, 6  # physical types
_UTF8, _TIMESTAMP_MICROS = 0, 10  # converted types
_PLAIN, _RLE, _ZSTD, _DATA_PAGE, _REQUIRED = 0, 3, 6, 0, 0
_CHUNK = bytes(2**20)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _field(kind: int, value: Any) -> bytes:
    if kind in {_I32, _I64}:
        return _varint((value << 1) ^ (value >> 63))
    if kind == _BINARY:
        return _varint(len(value)) + value
    if kind == _LIST:
        item, values = value
        return bytes([len(values) << 4 | item]) + b"".join(_field(item, one) for one in values)
    return _struct(value)


def _struct(fields: dict[int, tuple[int, Any]]) -> bytes:
    """A struct from {id: (type, value)}; ids ascend by less than 16."""
    body, before = b"", 0
    for number, (kind, value) in fields.items():
        body += bytes([(number - before) << 4 | kind]) + _field(kind, value)
        before = number
    return body + b"\0"


def _zeros(prefix: bytes, count: int) -> bytes:
    """Zeros behind a prefix, as Zstandard; never in memory as a whole."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(prefix)
        for _ in range(count // len(_CHUNK)):
            packed.write(_CHUNK)
    return sink.getvalue().to_pybytes()


def forged_parquet(name_mib: int) -> bytes:
    """One reading of a meter whose name has this many MiB."""
    size = name_mib * 2**20
    columns = [
        (b"meter_id", _BYTE_ARRAY, _UTF8, size + 4, _zeros(size.to_bytes(4, "little"), size)),
        (b"interval_start", _INT64, _TIMESTAMP_MICROS, 8, _zeros(bytes(8), 0)),
        (b"energy_wh", _INT64, None, 8, _zeros(bytes(8), 0)),
    ]
    file, chunks = b"PAR1", []
    schema = [{4: (_BINARY, b"schema"), 5: (_I32, len(columns))}]
    for name, kind, converted, length, data in columns:
        values = {1: (_I32, 1), 2: (_I32, _PLAIN), 3: (_I32, _RLE), 4: (_I32, _RLE)}
        page = _struct({1: (_I32, _DATA_PAGE), 2: (_I32, length), 3: (_I32, len(data)), 5: (_STRUCT, values)}) + data
        chunk = {
            1: (_I32, kind),
            2: (_LIST, (_I32, [_PLAIN])),
            3: (_LIST, (_BINARY, [name])),
            4: (_I32, _ZSTD),
            5: (_I64, 1),
            6: (_I64, 100),  # a lie: the size when decompressed
            7: (_I64, len(page)),
            9: (_I64, len(file)),
        }
        chunks.append({2: (_I64, len(file)), 3: (_STRUCT, chunk)})
        element = {1: (_I32, kind), 3: (_I32, _REQUIRED), 4: (_BINARY, name)}
        schema.append(element | ({} if converted is None else {6: (_I32, converted)}))
        file += page
    group = {1: (_LIST, (_STRUCT, chunks)), 2: (_I64, 300), 3: (_I64, 1)}  # 300 bytes: the same lie
    footer = _struct({1: (_I32, 1), 2: (_LIST, (_STRUCT, schema)), 3: (_I64, 1), 4: (_LIST, (_STRUCT, [group]))})
    return file + footer + len(footer).to_bytes(4, "little") + b"PAR1"
