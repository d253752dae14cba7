"""Whoever holds the line hears every price once, from wherever it left off."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from murmurate.service.board.stream import MOST_WAITING, Stream
from murmurate.service.board.view import ZoneView
from tests.board.views import view_of

ALL = view_of(tuple(range(8000, 8060)))
FIRST = ALL.first


def until(decided: int) -> ZoneView:
    """The zone when so much was decided."""
    return replace(ALL, decided=decided, prices={at: one for at, one in ALL.prices.items() if at <= decided})


def heard(message: bytes) -> int | None:
    lines = message.decode().splitlines()
    if "event: price" not in lines:
        return None
    (data,) = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
    (name,) = (int(line.removeprefix("id: ")) for line in lines if line.startswith("id: "))
    assert data["price_ticks"] == ALL.prices[name].ticks
    return name


async def listen(known: int, told_before: int, told_after: int, after: int | None) -> list[int]:
    """What a listener hears that asked when `known` prices stood, of which more came before it began to listen."""
    stream, views = Stream(), [until(FIRST + known - 1)]
    line = stream.listen(lambda: views[-1], after)

    def tell(count: int) -> None:
        for _ in range(count):
            views.append(until(views[-1].decided + 1))
            stream.tell(views[-1], [views[-1].prices[views[-1].decided]])

    tell(told_before)
    got = [heard(await anext(line))]
    tell(told_after)
    last = views[-1].decided
    while got[-1] != last:
        got.append(heard(await asyncio.wait_for(anext(line), 1)))
    await line.aclose()
    assert len(stream) == 0
    return [one for one in got if one is not None]


@given(st.integers(1, 20), st.integers(0, 10), st.integers(0, 20), st.none() | st.integers(-5, 25))
def test_no_price_is_missed_or_heard_twice(known: int, before: int, later: int, after: int | None) -> None:
    stood = known + before  # when it begins to listen
    since = stood - 2 if after is None else after - 1
    expected = [FIRST + number for number in range(max(0, since + 1), stood + later)]
    if expected:
        assert asyncio.run(listen(known, before, later, None if after is None else FIRST + after - 1)) == expected


def test_who_does_not_keep_up_is_let_go() -> None:
    async def slow() -> list[bytes]:
        stream, view = Stream(), until(FIRST)
        line = stream.listen(lambda: view, None)
        got = [await anext(line)]
        for _ in range(MOST_WAITING + 1):
            stream.tell(ALL, [ALL.prices[FIRST + 1]])
        assert len(stream) == 0
        return got + [message async for message in line]

    assert len(asyncio.run(slow())) <= MOST_WAITING + 2
