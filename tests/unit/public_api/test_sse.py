"""A client of the stream receives every price once, from the one after its last."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st
from tests.support.zone_views import until as until_decided
from tests.support.zone_views import view_of

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.notifications import MAX_QUEUED_PRICES, PriceStream
from murmurate.service.public_api.worker_threads import WorkerThreads

THREADS = WorkerThreads(1, "test")
ALL = view_of(tuple(range(8000, 8060)))
FIRST = ALL.first_priced


def until(decided: int) -> ZoneView:
    """The zone when so much was decided."""
    return until_decided(ALL, decided)


def price_intervals(message: bytes) -> list[int]:
    """The intervals of the prices in some events."""
    lines = message.decode().splitlines()
    prices = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    names = [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]
    for price, name in zip(prices, names, strict=True):
        assert price["price_ticks"] == ALL.prices[name].ticks
    return names


async def listen(known: int, published_before: int, published_after: int, after: int | None) -> list[int]:
    """The prices that a client receives that subscribed after `known` of them, while more came before it listened."""
    stream, views = PriceStream(THREADS), [until(FIRST + known - 1)]
    line = stream.subscribe(lambda: views[-1], after)

    def publish(count: int) -> None:
        for _ in range(count):
            views.append(until(views[-1].last_decided + 1))
            stream.publish_prices(views[-1], [views[-1].prices[views[-1].last_decided]])

    publish(published_before)
    got = price_intervals(await anext(line))
    publish(published_after)
    last = views[-1].last_decided
    while not got or got[-1] != last:
        got += price_intervals(await asyncio.wait_for(anext(line), 60))
    await line.aclose()
    assert len(stream) == 0
    return got


@given(st.integers(1, 20), st.integers(0, 10), st.integers(0, 20), st.none() | st.integers(-5, 25))
def test_no_price_is_missed_or_received_twice(known: int, before: int, later: int, after: int | None) -> None:
    stood = known + before  # when it begins to listen
    since = stood - 2 if after is None else after - 1
    expected = [FIRST + number for number in range(max(0, since + 1), stood + later)]
    if expected:
        assert asyncio.run(listen(known, before, later, None if after is None else FIRST + after - 1)) == expected


def test_who_does_not_keep_up_is_let_go() -> None:
    async def slow() -> list[bytes]:
        stream, view = PriceStream(THREADS), until(FIRST)
        line = stream.subscribe(lambda: view, None)
        got = [await anext(line)]
        for _ in range(MAX_QUEUED_PRICES + 1):
            stream.publish_prices(ALL, [ALL.prices[FIRST + 1]])
        assert len(stream) == 0
        return got + [message async for message in line]

    assert len(asyncio.run(slow())) <= MAX_QUEUED_PRICES + 2
