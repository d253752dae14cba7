"""Clients that nobody invited: many connections, each from an address of its own, that ask for one thing on and on.

    python -m benchmarks.anonymous_clients PORT KIND CONNECTIONS SECONDS FIRST_S LAST_S

Run by `benchmarks.anonymous_load`, in a process of its own. Prints how many answers
there were, by status, as JSON. A client that is refused asks again at once: it does not read Retry-After.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from murmurate.service.ingest.message_ingest import BATCH_TOPIC
from murmurate.service.web.server import raise_descriptor_limit

ZONES, LONG_ZONE, DAY_S, TILES = 200, "year", 86_400, 3_000
SLOW_BYTES_PER_S, SLOW_HEAD_PERIOD_S, MESSAGE_PERIOD_S = 327_000, 0.5, 0.1


class Wanted(NamedTuple):
    """What a client asks for, and how it reads the answer."""

    make_path: Callable[[random.Random, int, int], str]  # from the first and the last second of the long zone
    headers: str = ""  # lines beside Host and Content-Length
    body: bytes = b""  # with one it is a POST
    reads_slowly: bool = False
    slow_head: bytes | None = None  # sent instead of a request, a byte at a time; empty: nothing is sent


def _zone_path(end: str) -> Callable[[random.Random, int, int], str]:
    return lambda rng, _first, _last: f"/zones/zone-{rng.randrange(ZONES):03d}{end}"


def _history_path(rng: random.Random, first_s: int, last_s: int) -> str:
    start_s = rng.randrange(first_s, max(first_s + 1, last_s - 31 * DAY_S), 900)
    times = (datetime.fromtimestamp(at_s, UTC) for at_s in (start_s, min(last_s, start_s + 31 * DAY_S)))
    start, end = (at.strftime("%Y-%m-%dT%H:%M:%SZ") for at in times)
    return f"/zones/{LONG_ZONE}/history.csv?start={start}&end={end}"


PUBLIC_KINDS: dict[str, Wanted] = {
    "now": Wanted(_zone_path("/now")),
    "zone page": Wanted(_zone_path("")),
    "history": Wanted(_history_path),
    "events": Wanted(lambda rng, *_: f"/openadr3/3.1.0/events?skip={rng.randrange(1200)}"),
    "zone list": Wanted(lambda rng, *_: f"/zones?after=zone-{rng.random()}"),
    "tiles": Wanted(lambda rng, *_: f"/tiles/{LONG_ZONE}/{rng.randrange(TILES)}"),
    "streams": Wanted(_zone_path("/stream"), headers="last-event-id: 0\r\n"),
    "log, slowly": Wanted(lambda *_: f"/zones/{LONG_ZONE}/log.jsonl", reads_slowly=True),
}

_FORM = "content-type: application/x-www-form-urlencoded\r\n"
_LINES = "content-type: application/x-ndjson\r\n"
_READINGS = b'{"meter":"m-1","interval_start":1794657600,"energy_wh":250}\n' * 1_700  # some 100 kB
_OPERATOR = "authorization: Basic b3BlcmF0b3I6d3Jvbmc=\r\n"  # operator:wrong


def _fixed_path(path: str) -> Callable[[random.Random, int, int], str]:
    return lambda *_: path


PRIVATE_KINDS: dict[str, Wanted] = {
    "wrong secrets": Wanted(
        _fixed_path("/auth/token"), _FORM, b"grant_type=client_credentials&client_id=head-end&client_secret=wrong"
    ),
    "readings, no token": Wanted(_fixed_path("/readings"), _LINES, _READINGS),
    "readings, wrong token": Wanted(
        _fixed_path("/readings"), f"{_LINES}authorization: Bearer {'0' * 64}\r\n", _READINGS
    ),
    "readyz": Wanted(_fixed_path("/readyz")),
    "healthz": Wanted(_fixed_path("/healthz")),
    "operator": Wanted(_fixed_path("/operator")),
    "metrics, wrong secret": Wanted(_fixed_path("/metrics"), _OPERATOR),
    "idle": Wanted(_fixed_path("/"), slow_head=b""),
    "slow heads": Wanted(_fixed_path("/"), slow_head=b"POST /readings HTTP/1.1\r\nhost: x\r\nx-slow: " + b"x" * 600),
}


_KINDS = PUBLIC_KINDS | PRIVATE_KINDS
BROKER_KINDS = {  # payloads, at QoS 0
    "messages of unknown meters": b'{"meter":"stranger","interval_start":1794657600,"energy_wh":250}',
    "messages that are none": b"\xff" * 1_000,
}


class AnonymousClient:
    """One connection at a time, from one address."""

    def __init__(self, port: int, number: int, wanted: Wanted, counts: Counter[str]) -> None:
        self._port, self._wanted, self._counts = port, wanted, counts
        self._address = f"127.0.{1 + number // 250}.{1 + number % 250}"
        self._rng = random.Random(number)  # noqa: S311  which zone is asked for is no secret

    async def run(self, first_s: int, last_s: int) -> None:
        """Ask until it is cancelled."""
        while True:
            try:
                opened = asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._address, 0))
                reader, writer = await asyncio.wait_for(opened, 30)
            except (OSError, TimeoutError):
                self._counts["not connected"] += 1
                await asyncio.sleep(0.1)
                continue
            try:
                while not reader.at_eof():
                    if (head := self._wanted.slow_head) is not None:
                        await self._send_slowly(reader, writer, head)
                    else:
                        await self._ask(reader, writer, self._wanted.make_path(self._rng, first_s, last_s))
            except (OSError, asyncio.IncompleteReadError, ValueError):
                self._counts["cut"] += 1
            finally:
                writer.close()
            await asyncio.sleep(0)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        body, more = self._wanted.body, self._wanted.headers
        method, length = ("POST", f"content-length: {len(body)}\r\n") if body else ("GET", "")
        writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\n{length}{more}\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = head.split(b" ", 2)[1].decode()
        self._counts[status] += 1
        if b"transfer-encoding: chunked" in head:
            await self._read_chunks(reader)
            return
        (size,) = (line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(size.partition(b":")[2]))

    @staticmethod
    async def _send_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        """Send a byte every now and then until the server closes the connection. Raises IncompleteReadError then."""
        closed = asyncio.create_task(reader.readexactly(1))
        try:
            for byte in head:
                writer.write(bytes([byte]))
                await asyncio.wait([closed], timeout=SLOW_HEAD_PERIOD_S)
                if closed.done():
                    break
            await closed
        finally:
            closed.cancel()

    async def _read_chunks(self, reader: asyncio.StreamReader) -> None:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
            if self._wanted.reads_slowly:
                await asyncio.sleep(size / SLOW_BYTES_PER_S)
        await reader.readexactly(2)


class AnonymousPublisher:
    """One connection to a broker, which publishes the same message as fast as the broker reads."""

    def __init__(self, port: int, number: int, payload: bytes, counts: Counter[str]) -> None:
        self._port, self._counts, self._name = port, counts, b"stranger-%05d" % number
        body = len(BATCH_TOPIC).to_bytes(2, "big") + BATCH_TOPIC.encode() + payload
        self._message = b"\x30" + _encode_length(len(body)) + body

    async def run(self, _first_s: int, _last_s: int) -> None:
        """Publish until it is cancelled."""
        writer = (await asyncio.open_connection("127.0.0.1", self._port))[1]
        head = b"\0\4MQTT\4\2\0\0" + len(self._name).to_bytes(2, "big") + self._name
        writer.write(b"\x10" + _encode_length(len(head)) + head)
        while True:
            writer.write(self._message)
            await writer.drain()
            self._counts["published"] += 1
            await asyncio.sleep(MESSAGE_PERIOD_S)


def _encode_length(length: int) -> bytes:
    """The length of an MQTT packet: 7 bits a byte, below 16,384."""
    return bytes([length]) if length < 128 else bytes([length % 128 | 128, length // 128])


def _make_client(port: int, number: int, kind: str, counts: Counter[str]) -> AnonymousClient | AnonymousPublisher:
    if kind in BROKER_KINDS:
        return AnonymousPublisher(port, number, BROKER_KINDS[kind], counts)
    return AnonymousClient(port, number, _KINDS[kind], counts)


async def run_clients(port: int, kind: str, connections: int, seconds: float, first_s: int, last_s: int) -> None:
    """Ask for some time, and print what came."""
    counts: Counter[str] = Counter()
    clients = [_make_client(port, number, kind, counts) for number in range(connections)]
    tasks = [asyncio.create_task(client.run(first_s, last_s)) for client in clients]
    begin = time.monotonic()
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(dict(sorted(counts.items())) | {"seconds": round(time.monotonic() - begin, 1)}))


if __name__ == "__main__":
    raise_descriptor_limit()
    _, port, kind, connections, seconds, first_s, last_s = sys.argv
    asyncio.run(run_clients(int(port), kind, int(connections), float(seconds), int(first_s), int(last_s)))
