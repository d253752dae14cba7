"""Connections for threads that come and go: each is used by one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Closing(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closing)


class Pool(Generic[T]):
    """As many of a thing as were ever in use at once."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._idle: deque[T] = deque()

    @contextmanager
    def one(self) -> Iterator[T]:
        try:
            mine = self._idle.pop()  # the one used last: its connection is the least likely to have gone
        except IndexError:
            mine = self._make()
        try:
            yield mine
        except BaseException:
            mine.close()
            raise
        finally:
            self._idle.append(mine)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
