"""`murmurate prices` on copies of a log: what it shows is verified, by the zone's clock, with the cheapest hours."""

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_logs import FIRST, OLD, OTHER, PLAN, UNKNOWN_SIGNER, edit_rows, log

from murmurate.commands.prices import EXPECTED, ShownPrice, ZonePrices, find_cheapest, print_prices, show_prices
from murmurate.errors import MurmurateError
from murmurate.operations.console import stdout

HOUR_S, LEAD = 3600, 2
DAY = datetime(2024, 10, 4, tzinfo=UTC)  # on which the log begins, in UTC: interval 480,000 is its hour 0


def copy_of(shard, path, zone="harbour"):
    """The lines of a zone, as `log.jsonl` has them."""
    plans = [PLAN, OTHER]
    path.write_text("\n".join([*plans, *shard.lines(zone)]) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def source(tmp_path):
    return copy_of(log(), tmp_path / "log.jsonl")


def shown(capsys, source, **options):
    show_prices(source, zone="harbour", **options)
    return capsys.readouterr().out


def test_a_day_is_shown_with_kinds_bars_and_the_cheapest_hours(source, capsys):
    printed = shown(capsys, source, day=DAY)
    assert "harbour: Friday, 4 October 2024, UTC, in EUR cent/kWh" in printed
    rows = {line[:5]: line for line in printed.splitlines() if line[2:3] == ":"}
    assert "20.00" in rows["02:00"]
    assert "measured" in rows["02:00"]
    assert "fallback" in rows["07:00"]
    assert rows["08:00"].split()[1:] == ["withheld", "withheld"]
    assert "expected" in rows["23:00"]
    assert len(rows) == 22  # the first two hours have no price
    assert {at for at, row in rows.items() if " cheap" in row} == set(
        printed.split("Cheapest hours: ")[1].split(".")[0].split(", ")
    )
    assert "Verified: signatures" in printed
    assert "first key was trusted" in printed
    assert "first key was trusted" not in shown(capsys, source, day=DAY, key=OLD.public_key)


def test_json_holds_the_last_prices_and_their_kinds(source, capsys):
    document = json.loads(shown(capsys, source, last=9, as_json=True))
    assert document["verified"]
    assert (document["zone"], document["timezone"], document["interval_s"]) == ("harbour", "UTC", HOUR_S)
    kinds = [price["kind"] for price in document["prices"]]
    assert kinds == ["measured"] * 5 + ["fallback", "withheld", "measured", "measured"]
    assert document["prices"][0]["start"] == "2024-10-04T02:00:00Z"
    assert document["prices"][0]["price"] == pytest.approx(0.2)
    assert document["prices"][6]["price"] is None


@given(values=st.lists(st.none() | st.floats(-0.5, 0.5).map(lambda value: round(value, 5)), min_size=1, max_size=24))
def test_a_bar_runs_from_zero_and_is_as_long_as_its_price(values):
    prices = [
        ShownPrice(n * HOUR_S, (n + 1) * HOUR_S, value, None, None, "EUR", "measured") for n, value in enumerate(values)
    ]
    with stdout.capture() as printed:
        print_prices(ZonePrices("harbour", "EUR", ZoneInfo("UTC"), HOUR_S, tuple(prices), is_verified=False), None, 0)
    bars = [line[21:51] for line in printed.get().splitlines() if line[6:7] == ":"]
    known = [value for value in values if value is not None]
    width = max(0.0, *known, 0.0) - min(0.0, *known, 0.0) or 1.0
    zero = round(30 * -min(0.0, *known, 0.0) / width)
    for value, bar in zip(values, bars, strict=True):
        below, above = (len(part.strip()) for part in (bar[:zero], bar[zero:]))
        assert abs((above or -below) - 30 * (value or 0.0) / width) <= 0.51


def test_a_zone_that_was_just_opened_says_when_its_first_price_is_paid(tmp_path):
    opened = copy_of(log(measured=0).cut(1), tmp_path / "log.jsonl")
    with pytest.raises(MurmurateError, match=r"its first is paid from Fri 04 Oct 2024, 02:00 \(UTC\)"):
        show_prices(opened, zone="harbour")


def test_the_clock_of_another_place_shows_its_own_day(source, capsys):
    printed = shown(capsys, source, day=DAY, time_zone="Asia/Kolkata")
    assert printed.splitlines()[1].startswith("07:30")
    with pytest.raises(MurmurateError, match="without a price on 2024-10-02"):
        shown(capsys, source, day=datetime(2024, 10, 2, tzinfo=UTC))


def test_a_log_that_is_not_right_shows_no_price(tmp_path, capsys):
    made = log()
    cheaper = edit_rows(made.tiles[3], made.table_of(made.tiles[3]), lambda rows: rows["price_ticks"].fill(1), OLD)
    with pytest.raises(MurmurateError, match="not right"):
        show_prices(copy_of(made.cut(4).add(cheaper), tmp_path / "two.jsonl"), zone="harbour", day=DAY)
    assert capsys.readouterr().out == ""
    source = copy_of(made, tmp_path / "log.jsonl")
    with pytest.raises(MurmurateError, match="not the key you expect"):
        show_prices(source, zone="harbour", day=DAY, key=UNKNOWN_SIGNER.public_key)
    with pytest.raises(MurmurateError, match="name the zone"):
        show_prices(source)


def test_the_cheapest_hours_are_those_of_the_lowest_mean():
    values = [5.0, 1.0, 4.0, None, 2.0, 3.0, 9.0, 7.0, 8.0, 6.5, 6.0, 9.5, 9.7]
    prices = [
        ShownPrice(n * HOUR_S, (n + 1) * HOUR_S, value, None, "", "EUR", EXPECTED) for n, value in enumerate(values)
    ]
    assert find_cheapest(prices) == [HOUR_S, 4 * HOUR_S, 5 * HOUR_S]
    assert find_cheapest(prices, from_s=4.5 * HOUR_S) == [4 * HOUR_S, 5 * HOUR_S]
    assert find_cheapest(prices[:3]) == []
    assert FIRST * HOUR_S % 86_400 == 0
