"""A process that parses bodies of readings, one after the other, within bounds of memory and CPU time.

    python -m murmurate.service.ingest.decoder_process <bytes of memory>

It reads requests from standard input and writes batches to standard output. It knows no database and no key. It ends
with its input, or when a body breaks a bound: then that body is refused.
"""

from __future__ import annotations

import resource
import struct
import sys
from typing import BinaryIO

from murmurate.errors import ReadingError
from murmurate.service.ingest.body_formats import PARSERS_BY_MEDIA_TYPE
from murmurate.service.ingest.decoded_batch import write_batch, write_error

MAX_CPU_S = 60  # of one body; a CSV body of the largest size was seen to take 32 s
REQUEST_HEAD = struct.Struct("<IIQ")  # number of the format, interval_s, bytes of the body
FORMATS = tuple(PARSERS_BY_MEDIA_TYPE)


def serve_requests(requests: BinaryIO, replies: BinaryIO) -> None:
    """Parse body after body, until there are no more."""
    while head := requests.read(REQUEST_HEAD.size):
        kind, interval_s, size = REQUEST_HEAD.unpack(head)
        body = requests.read(size)
        if len(body) < size:
            return
        _allow_cpu_time()
        _parse_body(FORMATS[kind], body, interval_s, replies)


def _parse_body(media_type: str, body: bytes, interval_s: int, replies: BinaryIO) -> None:
    try:
        batch, refused = PARSERS_BY_MEDIA_TYPE[media_type](body, interval_s=interval_s)
    except ReadingError as error:
        write_error(replies, error)
    except MemoryError:
        write_error(replies, ReadingError("body", "too large", "needs too much memory; send several"))
    else:
        write_batch(replies, batch, refused)


def _limit_memory(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold readings


def _allow_cpu_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + MAX_CPU_S, hard))


if __name__ == "__main__":
    _limit_memory(int(sys.argv[1]))
    serve_requests(sys.stdin.buffer, sys.stdout.buffer)
