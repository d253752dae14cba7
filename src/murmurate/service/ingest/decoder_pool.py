"""Parse costly bodies in other processes, each within a bound of memory and of CPU time.

A Parquet file of 60 kB can take gigabytes once it is decompressed, and its footer may state less. A large body of any
format takes a core for seconds, during which this process could answer nothing else.

    python -m murmurate.service.ingest.decoder_pool <bytes of memory>

is such a process. It reads requests from standard input and writes replies to standard output. It knows no database and
no key. It ends with its input, or when a body breaks a bound: then that body is refused.

A reply is MessagePack of one known shape after its length. Nothing in it is executed: the process that parses may have
been taken over by what it parsed.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import numpy as np

from murmurate.errors import ReadingError
from murmurate.readings.batch import ReadingBatch, Refusals
from murmurate.readings.green_button import parse_green_button
from murmurate.readings.parquet import parse_parquet
from murmurate.readings.text_lines import parse_csv, parse_json_lines

MAX_DECODER_BYTES = 2**30  # of memory, of one process; 0.3 GB of it are libraries
MAX_CPU_S = 60  # of one body; a CSV body of the largest size was seen to take 32 s
_REQUEST_HEAD = struct.Struct("<IIQ")  # number of the format, interval_s, bytes of the body
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
MAX_DECODERS = min(4, os.cpu_count() or 1)
MAX_INLINE_BYTES = 64 * 1024  # a smaller body in lines takes some ms here, and is not sent to a decoder
MAX_DECODE_S = 300.0  # by the wall clock; the bound of CPU time comes first unless the machine is very busy
MAX_IDLE_BYTES = 384 * 2**20  # a process that once took more memory is ended, so that it gives it back
_MAX_TRIES = 2  # of a body whose decoder was killed by another process, or exited without output
_NO_FAULT_OF_BODY = {0, -signal.SIGKILL}  # exit statuses
_TOO_COSTLY = ("body", "too large", "needs too much memory or time to be read; send several")


class DecoderPool:
    """Parses bodies. Any number of threads may call it; at most `max_processes` bodies are parsed at the same time."""

    def __init__(self, *, max_processes: int = MAX_DECODERS, memory_bytes: int = MAX_DECODER_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._free = threading.BoundedSemaphore(max_processes)
        self._lock = threading.Lock()
        self._idle: list[_Decoder] = []

    def parse(self, media_type: str, body: bytes, *, interval_s: int) -> tuple[ReadingBatch, Refusals]:
        """Parse a body of one of `PARSERS_BY_MEDIA_TYPE`. Raises ReadingError, also where it breaks a bound."""
        if media_type != PARQUET and len(body) <= MAX_INLINE_BYTES:
            return PARSERS_BY_MEDIA_TYPE[media_type](body, interval_s=interval_s)
        with self._free:
            for _ in range(_MAX_TRIES):
                decoder = self._take_decoder()
                try:
                    parsed = decoder.parse(media_type, body, interval_s)
                except ReadingError:
                    self._keep(decoder)
                    raise
                except (EOFError, OSError, ValueError):  # msgspec's errors are ValueErrors
                    if decoder.kill() not in _NO_FAULT_OF_BODY:
                        break
                except BaseException:
                    decoder.kill()
                    raise
                else:
                    self._keep(decoder)
                    return parsed
            raise ReadingError(*_TOO_COSTLY)

    def _take_decoder(self) -> _Decoder:
        with self._lock:
            while self._idle:
                decoder = self._idle.pop()
                if decoder.is_running():
                    return decoder
                decoder.kill()
        return _Decoder(self._memory_bytes)

    def _keep(self, decoder: _Decoder) -> None:
        if decoder.peak_bytes() > MAX_IDLE_BYTES:
            decoder.kill()
            return
        with self._lock:
            self._idle.append(decoder)

    def close(self) -> None:
        """End the idle processes. The next body starts another one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for decoder in idle:
            decoder.kill()


DECODERS = DecoderPool()  # of this process: HTTP and MQTT share them


class _Decoder:
    """A process that parses one body at a time. It gets no connection string or password, and reserves no memory."""

    def __init__(self, memory_bytes: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "murmurate.service.ingest.decoder_pool", str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a traceback might quote a body
            env={name: value for name, value in os.environ.items() if not name.startswith("MURMURATE_")}
            | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1"},
        )
        self._requests, self._replies = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)

    def parse(self, media_type: str, body: bytes, interval_s: int) -> tuple[ReadingBatch, Refusals]:
        timer = threading.Timer(MAX_DECODE_S, self._process.terminate)
        timer.daemon = True
        timer.start()
        try:
            self._requests.write(_REQUEST_HEAD.pack(FORMATS.index(media_type), interval_s, len(body)))
            self._requests.write(body)
            self._requests.flush()
            return read_reply(self._replies)
        finally:
            timer.cancel()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def peak_bytes(self) -> int:
        """Return its peak memory; 0 where the system does not tell. The peak of the parent does not count."""
        with suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii", errors="replace")
            return int(status.partition("VmHWM:")[2].split()[0]) * 1024
        return 0

    def kill(self) -> int:
        """End it, if it runs, and return its exit status: negative if a signal has ended it."""
        for pipe in (self._requests, self._replies):
            with suppress(OSError):
                pipe.close()  # an idle process ends with its input
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            return self._process.wait()


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
        numbers = (batch.start_s, batch.energy_wh, batch.line)
        start_s, energy_wh, line = (np.ascontiguousarray(column, np.int64).tobytes() for column in numbers)
        meter = batch.meter.tobytes() if isinstance(batch.meter, np.ndarray) else list(batch.meter)
        signature = None if batch.signature is None else list(batch.signature)
        reply = _Reply(None, meter, start_s, energy_wh, line, signature, refused)
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
    batch = ReadingBatch(meter=meter, start_s=start_s, energy_wh=energy_wh, line=line, signature=reply.signature)
    return batch, reply.refused


def serve_requests(requests: BinaryIO, replies: BinaryIO) -> None:
    """Parse body after body, until there are no more. Each may take `MAX_CPU_S`."""
    while head := requests.read(_REQUEST_HEAD.size):
        kind, interval_s, size = _REQUEST_HEAD.unpack(head)
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
