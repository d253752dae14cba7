"""A client of the stream receives every price once, from the one after its last."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.support.zone_views import view_of

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.sse import MAX_QUEUED_PRICES, PriceStream

ALL = view_of(tuple(range(8000, 8060)))
FIRST = ALL.first_priced


def until(decided: int) -> ZoneView:
    """The zone when so much was decided."""
    return replace(ALL, last_decided=decided, prices={at: one for at, one in ALL.prices.items() if at <= decided})


def price_interval(message: bytes) -> int | None:
    lines = message.decode().splitlines()
    if "event: price" not in lines:
        return None
    (data,) = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
    (name,) = (int(line.removeprefix("id: ")) for line in lines if line.startswith("id: "))
    assert data["price_ticks"] == ALL.prices[name].ticks
    return name


async def listen(known: int, published_before: int, published_after: int, after: int | None) -> list[int]:
    """The prices that a client receives that subscribed after `known` of them, while more came before it listened."""
    stream, views = PriceStream(), [until(FIRST + known - 1)]
    line = stream.subscribe(lambda: views[-1], after)

    def publish(count: int) -> None:
        for _ in range(count):
            views.append(until(views[-1].last_decided + 1))
            stream.publish_prices(views[-1], [views[-1].prices[views[-1].last_decided]])

    publish(published_before)
    got = [price_interval(await anext(line))]
    publish(published_after)
    last = views[-1].last_decided
    while got[-1] != last:
        got.append(price_interval(await asyncio.wait_for(anext(line), 1)))
    await line.aclose()
    assert len(stream) == 0
    return [one for one in got if one is not None]


@given(st.integers(1, 20), st.integers(0, 10), st.integers(0, 20), st.none() | st.integers(-5, 25))
def test_no_price_is_missed_or_received_twice(known: int, before: int, later: int, after: int | None) -> None:
    stood = known + before  # when it begins to listen
    since = stood - 2 if after is None else after - 1
    expected = [FIRST + number for number in range(max(0, since + 1), stood + later)]
    if expected:
        assert asyncio.run(listen(known, before, later, None if after is None else FIRST + after - 1)) == expected


def test_who_does_not_keep_up_is_let_go() -> None:
    async def slow() -> list[bytes]:
        stream, view = PriceStream(), until(FIRST)
        line = stream.subscribe(lambda: view, None)
        got = [await anext(line)]
        for _ in range(MAX_QUEUED_PRICES + 1):
            stream.publish_prices(ALL, [ALL.prices[FIRST + 1]])
        assert len(stream) == 0
        return got + [message async for message in line]

    assert len(asyncio.run(slow())) <= MAX_QUEUED_PRICES + 2
