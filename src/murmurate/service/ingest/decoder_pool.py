"""Parse costly bodies in other processes, each within a bound of memory and of CPU time.

A Parquet file of 60 kB can take gigabytes once it is decompressed, and its footer may state less. A large body of any
format takes a core for seconds, during which this process could answer nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from murmurate.errors import ReadingError
from murmurate.readings.batch import ReadingBatch, Refusals
from murmurate.service.ingest.decoder_process import (
    FORMATS,
    MAX_DECODER_BYTES,
    PARQUET,
    PARSERS_BY_MEDIA_TYPE,
    REQUEST_HEAD,
    read_reply,
)

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
        command = [sys.executable, "-m", "murmurate.service.ingest.decoder_process", str(memory_bytes)]
        self._process = subprocess.Popen(  # noqa: S603
            command,
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
            self._requests.write(REQUEST_HEAD.pack(FORMATS.index(media_type), interval_s, len(body)))
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
            try:
                pipe.close()  # an idle process ends with its input
            except OSError:
                continue
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            return self._process.wait()
