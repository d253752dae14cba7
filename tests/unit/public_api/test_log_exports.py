"""Logs of zones go to a few clients at once. One that reads slowly makes room for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from starlette.exceptions import HTTPException

from murmurate.service.public_api import log_api
from murmurate.service.public_api.log_api import ExportEndedError, LogExport, LogExports
from murmurate.service.public_api.worker_threads import WorkerThreads
from murmurate.service.web.address_counts import AddressCounts

CHUNK = b"x" * 1000


def run(scene: Callable[[LogExports], Awaitable[None]], max_exports: int = 2, max_each: int = 9) -> None:
    threads = WorkerThreads(1, "test")
    try:
        asyncio.run(scene(LogExports(threads, AddressCounts(max_each), max_exports)))  # type: ignore[arg-type]
    finally:
        threads.stop()


async def read_all(exports: LogExports, address: str) -> AsyncIterator[bytes]:
    """The chunks of a log as a response sends them: it holds its place meanwhile."""
    export = LogExport()
    with exports.held(export, address):
        async for chunk in exports.send_chunks(export, iter([CHUNK] * 1000)):
            yield chunk


async def begin(exports: LogExports, address: str = "192.0.2.1") -> AsyncIterator[bytes]:
    """A client that has read one chunk of many."""
    exports.make_room(address)
    chunks = read_all(exports, address)
    assert await anext(chunks) == CHUNK
    return chunks


@pytest.mark.slow
def test_a_fast_client_keeps_its_place_and_reads_all() -> None:
    async def scene(exports: LogExports) -> None:
        clients = [await begin(exports) for _ in range(2)]
        with pytest.raises(HTTPException, match="503"):
            exports.make_room("192.0.2.2")
        assert [len([chunk async for chunk in chunks]) for chunks in clients] == [999, 999]
        exports.make_room("192.0.2.2")

    run(scene)


@pytest.mark.slow
def test_a_slow_client_is_ended_when_another_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_api, "READ_GRACE_S", 0.05)

    async def scene(exports: LogExports) -> None:
        slow, fast = await begin(exports), await begin(exports)
        await asyncio.sleep(0.1)  # neither reads
        new = await begin(exports, "192.0.2.2")
        with pytest.raises(ExportEndedError):
            await anext(slow)
        assert [len([chunk async for chunk in chunks]) for chunks in (fast, new)] == [999, 999]

    run(scene)


def test_a_slow_client_stays_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_api, "READ_GRACE_S", 0.0)

    async def scene(exports: LogExports) -> None:
        slow = await begin(exports)
        await asyncio.sleep(0.05)
        await begin(exports)
        assert await anext(slow) == CHUNK

    run(scene)


def test_no_client_reads_beyond_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_api, "MAX_EXPORT_S", 0.05)

    async def scene(exports: LogExports) -> None:
        slow = await begin(exports)
        await asyncio.sleep(0.1)
        with pytest.raises(ExportEndedError):
            await anext(slow)

    run(scene)


def test_an_address_has_a_share_of_the_places() -> None:
    async def scene(exports: LogExports) -> None:
        first = await begin(exports)
        with pytest.raises(HTTPException, match="429"):
            exports.make_room("192.0.2.1")
        await first.aclose()  # type: ignore[attr-defined]
        await begin(exports)

    run(scene, max_each=1)
