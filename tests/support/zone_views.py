"""Views of zones as the public API has them: one built from arguments, and random ones from Hypothesis."""

from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from itertools import cycle, islice
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from murmurate.public_log.record import RecordKind
from murmurate.service.log_reader.zone_view import Price, ZoneView
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
    return int(datetime(*when, tzinfo=UTC).timestamp())


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
    day = 86_400 // interval_s
    prices = [_price(first + n, tick, own, interval_s, lead) for n, own in enumerate(ticks)]
    return ZoneView(
        zone=zone,
        display=ZoneDisplay(timezone=ZoneInfo(timezone), country=country),
        currency=currency,
        tick=tick,
        interval_s=interval_s,
        lead_intervals=lead,
        plan_digest="0" * 64,
        opening_key="0" * 64,
        key="0" * 64,
        seq=len(ticks),
        opened_s=begin_s - 7200.5,
        first_priced=first,
        last_decided=first + len(ticks) - 1,
        prices={price.interval: price for price in prices[dropped:]},
        expected_ticks=tuple(islice(cycle(expected), day)),
        total_epsilon_micro=0,
        total_rho_micro=0,
    )


def _price(interval: int, tick: Fraction, ticks: int | None, interval_s: int, lead: int) -> Price:
    kind = RecordKind.WITHHELD if ticks is None else RecordKind.FORECAST if interval % 7 == 0 else RecordKind.MEASURED
    taken_s = (interval + 1 - lead) * interval_s + 61.25
    return Price(interval, kind, ticks, tick, 100.0 if kind is RecordKind.MEASURED else None, taken_s)


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
