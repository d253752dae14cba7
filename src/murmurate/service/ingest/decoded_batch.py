"""A parsed body as bytes, from the process that parsed it to the one that stores it.

    header   one line of JSON: number of readings, what follows, refusals; or the error
    columns  meter (64 bits each, or names), start_s, energy_wh, line (64 bits each), signatures where there are any

Nothing in it is executed: the process that parses may have been taken over by what it parsed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from murmurate.errors import ReadingError
from murmurate.service.ingest.batch import ReadingBatch, Refusals
from murmurate.units import IntArray

_INT64_BYTES = 8


def write_batch(stream: BinaryIO, batch: ReadingBatch, refused: Refusals) -> None:
    """Write a parsed body. Names and signatures have no line breaks: the formats refuse them."""
    by_number = isinstance(batch.meter, np.ndarray)
    meter = _int64_bytes(batch.meter) if by_number else "\n".join(batch.meter).encode()
    signature = b"" if batch.signature is None else "\n".join(text or "" for text in batch.signature).encode()
    header = {
        "count": len(batch),
        "by_number": by_number,
        "meter_bytes": len(meter),
        "signature_bytes": None if batch.signature is None else len(signature),
        "refused": list(refused.items()),
    }
    _write_header(stream, header)
    stream.writelines((meter, *map(_int64_bytes, (batch.start_s, batch.energy_wh, batch.line)), signature))
    stream.flush()


def write_error(stream: BinaryIO, error: ReadingError) -> None:
    """Write why a body cannot be read."""
    _write_header(stream, {"error": [error.field, str(error.value), error.allowed]})
    stream.flush()


def read_batch(stream: BinaryIO) -> tuple[ReadingBatch, Refusals]:
    """Read what was written. Raises ReadingError for a body that was refused, EOFError if the other process ended."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    header = json.loads(line)
    if "error" in header:
        raise ReadingError(*header["error"])
    count = header["count"]
    meter = _read_exactly(stream, header["meter_bytes"])
    start_s, energy_wh, lines = (_int64_array(_read_exactly(stream, count * _INT64_BYTES)) for _ in range(3))
    signature = None
    if header["signature_bytes"] is not None:
        signature = [text or None for text in _split(_read_exactly(stream, header["signature_bytes"]), count)]
    batch = ReadingBatch(
        meter=_int64_array(meter) if header["by_number"] else _split(meter, count),
        start_s=start_s,
        energy_wh=energy_wh,
        line=lines,
        signature=signature,
    )
    return batch, {int(at): str(reason) for at, reason in header["refused"]}


def _write_header(stream: BinaryIO, header: Mapping[str, object]) -> None:
    stream.write(json.dumps(header).encode() + b"\n")


def _int64_bytes(column: object) -> bytes:
    return np.ascontiguousarray(column, np.int64).tobytes()


def _int64_array(data: bytes) -> IntArray:
    return np.frombuffer(data, np.int64)


def _split(data: bytes, count: int) -> list[str]:
    """Texts that were joined by line breaks; none at all differs from one empty text."""
    return data.decode().split("\n") if count else []


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
