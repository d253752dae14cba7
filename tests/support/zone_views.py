"""Views of zones as the public API has them: one built from arguments, and random ones from Hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import cycle, islice
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st

from murmurate.planning.release_terms import HiddenHouseholds, ReleaseTerms
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log.tile import RowKind, Tile, TileHeader, TileKind, row_dtype
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.service.log_reader.price_columns import PriceColumns
from murmurate.service.log_reader.zone_view import Price, ShardView, ZoneView
from murmurate.service.public_api.openadr import event_days, event_document, programs_of_zone
from murmurate.service.settings import ZoneDisplay

AWKWARD = (
    "Europe/Zurich",
    "America/New_York",
    "America/Havana",  # springs over midnight, falls back onto it
    "Asia/Beirut",  # springs over midnight
    "Australia/Lord_Howe",  # half an hour of summer time
    "Asia/Kolkata",  # half an hour
    "Asia/Kathmandu",  # three quarters of an hour
    "America/St_Johns",
    "Pacific/Chatham",  # 12:45 and 13:45
    "Pacific/Apia",  # has jumped over a day
    "Pacific/Kiritimati",  # 14 hours ahead
    "America/Nuuk",  # changes at 22:00 and 23:00 of the day before
)
TICK = Fraction(1, 100_000)


def seconds(*when: int) -> int:
    """Of UTC, from year, month, day, hour, minute."""
    year, month, day, hour, minute = (*when, 0, 0)[:5]
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp())


def view_of(
    ticks: Sequence[int | None] = (8120, None, 0, 12000),
    *,
    begin_s: int = seconds(2026, 11, 14),
    interval_s: int = 900,
    timezone: str = "Europe/Zurich",
    zone: str = "harbour",
    currency: str = "CHF",
    dropped: int = 0,
    expected: Sequence[int] = (9000,),
    tick: Fraction = TICK,
    country: str | None = "CH",
    lead: int = 2,
) -> ZoneView:
    """A zone that begins at `begin_s` and has decided `ticks`, of which the view has dropped the first few."""
    first = -(-begin_s // interval_s)
    terms = terms_with(expected, interval_s, currency)
    display = ZoneDisplay(timezone=ZoneInfo(timezone), country=country)
    row = ZoneRow(zone, "0" * 64, currency, str(tick), first - lead)
    shard = shard_of([row], [list(ticks)], interval_s=interval_s, lead=lead, name=f"shard of {zone}")
    shard = replace(shard, first=shard.first + dropped)
    return ZoneView(shard, row, display, lambda _: terms)


def shard_of(
    rows: Sequence[ZoneRow],
    ticks: Sequence[Sequence[int | None]],  # [zone][interval]
    *,
    interval_s: int = 900,
    lead: int = 2,
    name: str = "shard",
) -> ShardView:
    """A shard whose zones began together, as if it had been read from the log. Nothing in it is signed."""
    table = ZoneTable(tuple(rows))
    since, count = rows[0].since, len(ticks[0])
    columns = PriceColumns(table, max(count, 1))
    written = np.zeros(len(rows), row_dtype())
    for n in range(count):
        paid = since + n + lead
        kinds = [_kind(paid, own[n]) for own in ticks]
        written["kind"], written["price_ticks"] = kinds, [own[n] or 0 for own in ticks]
        written["scale_wh"] = [100.0 if kind is RowKind.MEASURED else 0.0 for kind in kinds]
        columns.write(since + n, written, table, (since + n + 1) * interval_s + 61.25, None)
    header = TileHeader(
        shard=name,
        seq=count,
        kind=TileKind.RELEASE if count else TileKind.OPEN,
        interval=since + count - 1,
        interval_s=interval_s,
        lead=lead,
        table=table.digest,
        prev="0" * 64,
        key="0" * 64,
    )
    head = ShardHead(
        Tile(header, "", written[:0]), table, np.zeros((len(rows), 32), np.uint8), np.zeros((2, len(rows)), np.int64)
    )
    return ShardView(head, "0" * 64, columns, since, since + count - 1)


def _kind(interval: int, ticks: int | None) -> RowKind:
    return RowKind.WITHHELD if ticks is None else RowKind.FALLBACK if interval % 7 == 0 else RowKind.MEASURED


def terms_with(expected: Sequence[int], interval_s: int, currency: str) -> ReleaseTerms:
    """Terms of a plan that expects these prices, again and again."""
    day = 86_400 // interval_s
    cost = np.full(day, 1000)
    return ReleaseTerms(
        plan_digest="0" * 64,
        zone="harbour",
        currency=currency,
        curve=RateCurve.affine(alpha="0.0002", beta="0.08", tick="0.00001", floor="0", cap="2"),
        distribution=NoiseDistribution.LAPLACE,
        scale_wh=np.full(day, 5000.0),
        core_wh=0 * cost,
        epsilon_micro=cost,
        rho_micro=0 * cost,
        forecast_ticks=np.array(list(islice(cycle(expected), day)), np.int64),
        hidden_households=HiddenHouseholds(by_kind={}, unknown_kind_wh=1000, public_wh=0),
    )


def with_terms(view: ZoneView, terms: ReleaseTerms) -> ZoneView:
    return replace(view, load_terms=lambda _: terms)


def until(view: ZoneView, last_decided: int) -> ZoneView:
    """The zone when so much was decided."""
    last = last_decided - view.lead_intervals
    header = replace(view.shard.head.tile.header, interval=last)
    head = replace(view.shard.head, tile=replace(view.shard.head.tile, header=header))
    return replace(view, shard=replace(view.shard, head=head, last=last))


def with_totals(view: ZoneView, epsilon_micro: int, rho_micro: int = 0) -> ZoneView:
    totals = np.array([[epsilon_micro], [rho_micro]])
    return replace(view, shard=replace(view.shard, head=replace(view.shard.head, totals=totals)))


def with_keys(view: ZoneView, opening_key: str, key: str) -> ZoneView:
    header = replace(view.shard.head.tile.header, key=key)
    head = replace(view.shard.head, tile=replace(view.shard.head.tile, header=header))
    return replace(view, shard=replace(view.shard, head=head, opening_key=opening_key))


def with_prices(view: ZoneView, prices: Mapping[int, Price]) -> ZoneView:
    """The zone with these prices instead of some of its own."""
    return replace(view, archived=dict(view.prices) | dict(prices))


TICKS = st.integers(min_value=-(10**6), max_value=10**7)
_CHANGES = (
    seconds(2026, 3, 28),
    seconds(2026, 10, 24),
    seconds(2026, 3, 7),
    seconds(2026, 10, 31),
    seconds(2026, 7, 1),
)


@st.composite
def views(draw: st.DrawFn, *, currency: str | None = None) -> ZoneView:
    """Three days at most, often around a change of the clock; some prices are withheld, some are dropped."""
    interval_s = draw(st.sampled_from((300, 900, 1200, 1800, 2700, 3600, 7200, 21_600)))
    count = draw(st.integers(min_value=0, max_value=3 * 86_400 // interval_s))
    pattern = draw(st.lists(st.none() | TICKS, min_size=1, max_size=13))
    ticks = list(islice(cycle(pattern), count))
    return view_of(
        ticks,
        begin_s=draw(st.sampled_from(_CHANGES)) + draw(st.integers(min_value=0, max_value=86_400)),
        interval_s=interval_s,
        timezone=draw(st.sampled_from(AWKWARD)),
        zone=draw(st.text(max_size=20)),
        currency=currency or draw(st.sampled_from(("CHF", "EUR", "JPY"))),
        dropped=draw(st.integers(min_value=0, max_value=count)),
        expected=draw(st.lists(TICKS, min_size=1, max_size=5)),
        tick=draw(st.sampled_from((TICK, Fraction(1, 100), Fraction(1, 7), Fraction(1)))),
        country=draw(st.none() | st.just("CH")),
        lead=draw(st.integers(min_value=1, max_value=8)),
    )


def event_documents(view: ZoneView) -> list[dict[str, object]]:
    """The OpenADR events of a zone's programs, sorted by program and day."""
    return [event_document(day) for program in programs_of_zone(view) for day in event_days(program)]
