"""Views of many zones: in order, from the shard that has them."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.zone_views import shard_of

from murmurate.public_log.tile import RowKind, row_dtype
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.service.log_reader.price_columns import PriceColumns
from murmurate.service.log_reader.zone_view import ShardView, ZoneViews
from murmurate.service.settings import ZoneDisplay


def shard(name: str, zones: list[str], ticks: int = 100) -> ShardView:
    rows = [ZoneRow(zone, "0" * 64, "CHF", "1/100000", 1000) for zone in sorted(zones)]
    return shard_of(rows, [[ticks] * 4] * len(rows), name=name)


def empty_views() -> ZoneViews:
    return ZoneViews(lambda _: ZoneDisplay(timezone=ZoneInfo("UTC")), pytest.fail)


@given(st.lists(st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=6), max_size=5), st.text(max_size=4))
def test_all_zones_are_there_in_order_and_pages_make_up_the_whole(groups: list[set[str]], after: str) -> None:
    views, known = empty_views(), set[str]()
    for number, group in enumerate(groups):
        own = group - known
        if own:
            assert set(views.put(shard(f"shard {number}", list(own)))) == own
        known |= own
        assert list(views) == sorted(known)
    assert len(views) == len(known)
    assert all(views[zone].zone == zone for zone in known)
    page, found = views.names_after("", 2), list[str]()
    while page:
        found += page
        page = views.names_after(page[-1], 2)
    assert found == sorted(known)
    assert list(views.names_after(after, 3)) == [zone for zone in sorted(known) if zone > after][:3]


def test_a_zone_stays_in_the_shard_that_showed_it_first() -> None:
    views = empty_views()
    views.put(shard("one", ["a", "b"], 100))
    assert views.put(shard("two", ["b", "c"], 200)) == ("c",)
    assert views.put(shard("one", ["a", "aa", "b"], 100)) == ("aa",)
    assert list(views) == ["a", "aa", "b", "c"]
    assert views["b"].prices[1002].ticks == 100
    assert views.shard_of("b") == "one"


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40), st.booleans())
def test_columns_hold_any_price_and_any_core_and_forget_in_order(prices: list[int], huber: bool) -> None:
    table = ZoneTable((ZoneRow("a", "0" * 64, "CHF", "1", 0), ZoneRow("b", "0" * 64, "CHF", "1", 0)))
    columns = PriceColumns(table, 4)
    rows = np.zeros(2, row_dtype())
    for interval, ticks in enumerate(prices):
        rows["kind"], rows["price_ticks"], rows["scale_wh"] = RowKind.MEASURED, [ticks, -ticks], 2.5
        rows["core_wh"] = [interval if huber else 0, 0]
        columns.write(interval, rows, table, float(interval), None)
    kept = range(max(0, len(prices) - columns.width), len(prices))
    for interval in kept:
        core_wh = interval if huber else 0
        assert columns.read(interval, 0) == (RowKind.MEASURED, prices[interval], 2.5, core_wh, float(interval))
    assert columns.read_span(kept, 1)[1] == [-prices[interval] for interval in kept]
    swapped = ZoneTable((replace_zone(table.rows[1], "0b"), table.rows[0]))
    again = columns.reordered(table, swapped)
    assert [again.read(interval, 1)[1] for interval in kept] == [prices[interval] for interval in kept]
    assert again.count_kinds(kept)[:, 1].tolist() == [0, len(kept), 0, 0, 0]


def replace_zone(row: ZoneRow, zone: str) -> ZoneRow:
    return row._replace(zone=zone)


def test_a_view_that_was_handed_out_stays_as_it_is() -> None:
    first = shard("one", ["a"])
    views = empty_views()
    views.put(first)
    view = views["a"]
    views.put(replace(first, last=first.last - 1))
    assert (view.last_decided, views["a"].last_decided) == (first.last + 2, first.last + 1)
