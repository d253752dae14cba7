"""A few threads for answers that take long, so that the event loop and the follower of the log stay responsive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from starlette.exceptions import HTTPException

ParamsT = ParamSpec("ParamsT")
ResultT = TypeVar("ResultT")

MAX_TURN_WAIT_S = 5.0  # for a thread, before a request is refused
BUSY_RETRY_AFTER_S = 5


class WorkerThreads:
    """Runs functions in its own threads, in the order of the requests."""

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = asyncio.Semaphore(threads)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until a thread is free, and keep it while the block runs. Raises HTTPException (503) if none is in time.

        What the event loop has to do for a long answer belongs into the block as well: it is done for few at once.
        """
        try:
            async with asyncio.timeout(MAX_TURN_WAIT_S):
                await self._free.acquire()
        except TimeoutError:
            retry = {"retry-after": str(BUSY_RETRY_AFTER_S)}
            raise HTTPException(503, "too many requests of this kind; try again", retry) from None
        try:
            yield
        finally:
            self._free.release()

    async def run(self, function: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ResultT:
        """The result of a function. Raises HTTPException (503) if no thread is free in time."""
        async with self.turn():
            return await self.run_in_turn(function, *args, **kwargs)

    async def run_next_piece(
        self, function: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """The same for a part of an answer that has begun: it waits as long as it takes."""
        async with self._free:
            return await self.run_in_turn(function, *args, **kwargs)

    async def run_in_turn(
        self, function: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """The result of a function, within `turn`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args, **kwargs))

    def stop(self) -> None:
        """Drop what waits. What runs ends by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)
