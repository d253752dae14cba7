"""Cheap and dear: the level of a price, and the cheapest and dearest hours ahead, against brute force."""

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.zone_views import seconds, view_of, views
from tests.unit.public_api.test_pages import BASE, KEY, NOW_S, Parsed

from murmurate.service.public_api.pages.zone_page import (
    ChartFrame,
    PriceLevel,
    day_levels,
    known_prices,
    windows_ahead,
    zone_page,
)
from murmurate.translations.language import GERMAN


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(view=views(), at=st.floats(min_value=-0.2, max_value=1.2))
def test_no_stretch_ahead_is_cheaper_or_dearer_than_the_one_shown(view, at):
    now = view.first_priced + int(at * (view.last_decided + 1 - view.first_priced))
    ahead = range(now + 1, now + 1 + 86_400 // view.interval_s)
    prices = known_prices(view, ahead)
    for hours, (cheapest, dearest) in windows_ahead(view, now).items():
        count = hours * 3600 // view.interval_s
        means = {
            first: sum(prices[n] for n in range(first, first + count)) / count
            for first in ahead
            if all(n in prices for n in range(first, first + count))
        }
        assert cheapest.mean == min(means.values())
        assert dearest.mean == max(means.values())
        assert cheapest.intervals.start == min(means, key=means.get)
        for window in (cheapest, dearest):
            assert len(window.intervals) == count
            assert window.is_final == (window.intervals[-1] <= view.last_decided)


@settings(max_examples=15, deadline=None)
@given(view=views())
def test_every_price_of_a_day_has_one_level_and_a_withheld_one_has_none(view):
    intervals = range(view.first_priced, view.last_decided + 4)
    found = day_levels(view, intervals)
    for n in intervals:
        if n in view.prices and view.prices[n].ticks is None:
            assert n not in found.levels
    for n, level in found.levels.items():
        distance = found.prices[n] - found.mean
        far = distance != 0 and 10 * abs(distance) >= abs(found.mean)
        assert (level is PriceLevel.CHEAP, level is PriceLevel.DEAR) == (far and distance < 0, far and distance > 0)


def test_a_day_of_equal_prices_is_normal_throughout():
    found = day_levels(view_of((0, 0, 0), expected=(0,)), view_of((0, 0, 0)).known_intervals)
    assert set(found.levels.values()) == {PriceLevel.NORMAL}
    assert found.mean == 0


@pytest.mark.parametrize(
    ("ticks", "word", "sentence"),
    [
        (4500, "cheap", "Cheap: 50 % below the mean of the day."),
        (9000, "normal", "Normal: within 10 % of the mean of the day."),
        (13_500, "dear", "Dear: 50 % above the mean of the day."),
    ],
)
def test_the_level_is_on_the_page_in_words_and_not_in_colour_alone(ticks, word, sentence):
    """Almost all of the day is expected at 9,000 ticks; the percentages are rounded down."""
    view = view_of((ticks,), expected=(9000,), begin_s=seconds(2026, 11, 14))
    html = zone_page(view, view.start_s(view.first_priced), BASE, KEY)
    text = Parsed(html).text
    assert any(sentence.replace("50", number) in text for number in ("50", "49"))
    assert f'<p class="level {word}">' in html


def test_the_cheapest_hours_tomorrow_are_named_with_their_day_and_as_expected():
    """One cheap hour, 02:00 to 03:00 UTC: 03:00 to 04:00 in Zürich."""
    day = [9000] * 96
    first = 2 * 4
    view = view_of((9000,) * 40, begin_s=seconds(2026, 11, 14))
    slots = [(n - view.lead_intervals) % 96 for n in range(first, first + 4)]
    for slot in slots:
        day[slot] = 3000
    view = view_of((9000,) * 40, begin_s=seconds(2026, 11, 14), expected=day)
    html = zone_page(view, NOW_S + 6 * 3600, BASE, KEY)
    row = html.partition("1 hour</th>")[2].partition("</td>")[0]
    assert "03:00–04:00" in row
    assert "tomorrow" in row
    assert "expected, about 3.0" in row
    german = zone_page(view, NOW_S + 6 * 3600, BASE, KEY, GERMAN)
    row = german.partition("1 Stunde</th>")[2].partition("</td>")[0]
    assert "03:00–04:00" in row
    assert "morgen" in row
    assert "erwartet, etwa 3.0" in row


@settings(max_examples=15, deadline=None)
@given(view=views())
def test_lines_of_cheap_and_dear_prices_are_near_them_on_their_own_side(view):
    """A line is 8 px from the nearest price of its run, below cheap ones and above dear ones."""
    intervals = range(view.first_priced, view.last_decided + 4)
    day = day_levels(view, intervals)
    frame = ChartFrame(
        intervals, float(min(day.prices.values(), default=0)) - 1, float(max(day.prices.values(), default=1))
    )
    for level, side in ((PriceLevel.CHEAP, 1), (PriceLevel.DEAR, -1)):
        own = {n: float(day.prices[n]) for n, each in day.levels.items() if each is level}
        lines = re.findall(r"M(\d+) ([\d.]+)H(\d+)", frame.level_lines(own, level))
        runs = [range(intervals[0] + int(begin), intervals[0] + int(end)) for begin, _, end in lines]
        assert sorted(n for run in runs for n in run) == sorted(own)
        for run, (_, height, _) in zip(runs, lines, strict=True):
            assert min(side * (float(height) - frame.y(own[n])) for n in run) == pytest.approx(8, abs=0.1)


def test_intervals_longer_than_an_hour_have_only_windows_of_whole_intervals():
    view = view_of((9000,) * 12, interval_s=7200)
    ((hours, (cheapest, _)),) = windows_ahead(view, view.first_priced).items()
    assert (hours, cheapest.mean) == (2, Fraction(9, 100))
