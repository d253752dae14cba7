"""A process that parses bodies of readings, one after the other, within bounds of memory and CPU time.

    python -m murmurate.service.ingest.decoder_process <bytes of memory>

It reads requests from standard input and writes replies to standard output. It knows no database and no key. It ends
with its input, or when a body breaks a bound: then that body is refused.

A reply is MessagePack of one known shape after its length. Nothing in it is executed: the process that parses may have
been taken over by what it parsed.
"""

from __future__ import annotations

import resource
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

import msgspec
import numpy as np

from murmurate.errors import ReadingError
from murmurate.readings.batch import ReadingBatch, Refusals
from murmurate.readings.green_button import parse_green_button
from murmurate.readings.parquet import parse_parquet
from murmurate.readings.text_lines import parse_csv, parse_json_lines

MAX_DECODER_BYTES = 2**30  # of memory, of one process; 0.3 GB of it are libraries
MAX_CPU_S = 60  # of one body; a CSV body of the largest size was seen to take 32 s
REQUEST_HEAD = struct.Struct("<IIQ")  # number of the format, interval_s, bytes of the body
_REPLY_HEAD = struct.Struct("<Q")  # bytes of the reply
JSON_LINES = "application/x-ndjson"
PARQUET = "application/vnd.apache.parquet"
PARSERS_BY_MEDIA_TYPE: dict[str, Callable[..., tuple[ReadingBatch, Refusals]]] = {
    JSON_LINES: parse_json_lines,
    "application/jsonl": parse_json_lines,
    PARQUET: parse_parquet,
    "text/csv": parse_csv,
    "application/atom+xml": parse_green_button,
}
FORMATS = tuple(PARSERS_BY_MEDIA_TYPE)


class _Reply(msgspec.Struct, array_like=True, gc=False):
    """A parsed body, or the error. Columns of numbers are 64 bits each, in the order of the machine."""

    error: tuple[str, str, str] | None = None
    meter: bytes | list[str] = b""
    start_s: bytes = b""
    energy_wh: bytes = b""
    line: bytes = b""
    signature: list[str | None] | None = None
    refused: dict[int, str] = msgspec.field(default_factory=dict)


_REPLY_DECODER = msgspec.msgpack.Decoder(_Reply)


def write_reply(stream: BinaryIO, media_type: str, body: bytes, interval_s: int) -> None:
    """Parse a body, and write the batch or the error."""
    try:
        batch, refused = PARSERS_BY_MEDIA_TYPE[media_type](body, interval_s=interval_s)
    except ReadingError as error:
        reply = _Reply(error=(error.field, str(error.value), error.allowed))
    except MemoryError:
        reply = _Reply(error=("body", "too large", "needs too much memory; send several"))
    else:
        start_s, energy_wh, line = (
            np.ascontiguousarray(column, np.int64).tobytes() for column in (batch.start_s, batch.energy_wh, batch.line)
        )
        reply = _Reply(
            meter=batch.meter.tobytes() if isinstance(batch.meter, np.ndarray) else list(batch.meter),
            start_s=start_s,
            energy_wh=energy_wh,
            line=line,
            signature=None if batch.signature is None else list(batch.signature),
            refused=refused,
        )
    data = msgspec.msgpack.encode(reply)
    stream.writelines((_REPLY_HEAD.pack(len(data)), data))
    stream.flush()


def read_reply(stream: BinaryIO) -> tuple[ReadingBatch, Refusals]:
    """Read a reply. Raises ReadingError for a refused body, and EOFError or ValueError if the other process failed."""
    head = stream.read(_REPLY_HEAD.size)
    if len(head) < _REPLY_HEAD.size:
        raise EOFError
    (size,) = _REPLY_HEAD.unpack(head)
    if size > MAX_DECODER_BYTES:
        raise ValueError("a reply that no decoder has memory for")
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    reply = _REPLY_DECODER.decode(data)
    if reply.error is not None:
        raise ReadingError(*reply.error)
    start_s, energy_wh, line = (np.frombuffer(data, np.int64) for data in (reply.start_s, reply.energy_wh, reply.line))
    meter = np.frombuffer(reply.meter, np.int64) if isinstance(reply.meter, bytes) else reply.meter
    columns = (meter, start_s, energy_wh, line, *(() if reply.signature is None else (reply.signature,)))
    if len({len(column) for column in columns}) != 1:
        raise ValueError("columns of several lengths")
    return ReadingBatch(
        meter=meter, start_s=start_s, energy_wh=energy_wh, line=line, signature=reply.signature
    ), reply.refused


def serve_requests(requests: BinaryIO, replies: BinaryIO) -> None:
    """Parse body after body, until there are no more. Each may take `MAX_CPU_S`."""
    while head := requests.read(REQUEST_HEAD.size):
        kind, interval_s, size = REQUEST_HEAD.unpack(head)
        body = requests.read(size)
        if len(body) < size:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + MAX_CPU_S, hard))
        write_reply(replies, FORMATS[kind], body, interval_s)


if __name__ == "__main__":
    memory_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold readings
    serve_requests(sys.stdin.buffer, sys.stdout.buffer)
