"""Green Button feeds: they are read whatever their order and prefixes, and what is missing is not guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cpu_time import work_of
from tests.support.green_button_feeds import DELTA, Meter, entries, entry, feed, kind_entry, one, reading

from murmurate.errors import ReadingError
from murmurate.readings import green_button
from murmurate.readings.green_button import parse_green_button

INTERVAL_S = 900
CANARY = 8675309

names = st.text("abcdefXYZ0123456789-_.", min_size=1, max_size=12)
whole = st.tuples(
    st.integers(0, 10**7).map(lambda k: k * INTERVAL_S), st.just(INTERVAL_S), st.integers(-(10**9), 10**9)
)
meter_lists = st.lists(
    st.builds(Meter, names, st.lists(whole, max_size=4)), max_size=4, unique_by=lambda meter: meter.name
)


@given(meter_lists, st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_feed_is_read_as_it_was_written_in_whatever_order_its_entries_come(meters, power, random):
    parts = list(entries(meters, {"07": DELTA | {"powerOfTenMultiplier": power}}))
    random.shuffle(parts)
    batch, refused = parse_green_button(feed(parts), interval_s=INTERVAL_S)
    assert not refused
    expected = [(m.name, start, value * 10**power) for m in meters for start, _, value in m.readings]
    assert sorted(zip(batch.meter, batch.start_s.tolist(), batch.energy_wh.tolist(), strict=True)) == sorted(expected)
    assert batch.line.tolist() == list(range(1, len(expected) + 1))


@given(st.integers(-(10**30), 10**30), st.integers(-12, 12))
def test_energy_is_the_value_times_its_power_of_ten_rounded_down(value, power):
    batch, refused = parse_green_button(one((0, 900, value), powerOfTenMultiplier=power), interval_s=INTERVAL_S)
    exact = value * 10 ** (power + 12) // 10**12
    assert (batch.energy_wh.tolist(), refused) == ([min(max(exact, -(2**63)), 2**63 - 1)], {})


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_each_reading_is_either_taken_or_refused_by_its_ordinal(good):
    batch, refused = parse_green_button(one(*((0 if fine else 1, 900, 5) for fine in good)), interval_s=INTERVAL_S)
    assert batch.line.tolist() == [n for n, fine in enumerate(good, 1) if fine]
    assert list(refused) == [n for n, fine in enumerate(good, 1) if not fine]


@given(st.binary(max_size=200), st.floats(0, 1))
def test_no_bytes_raise_anything_but_a_reading_error(some, place):
    body = one((0, 900, CANARY), (900, 900, -CANARY))
    at = int(place * len(body))
    for spoiled in (some, body[:at], body[:at] + some + body[at:], body[:at] + some + body[at + len(some) :]):
        try:
            _, refused = parse_green_button(spoiled, interval_s=INTERVAL_S)
        except ReadingError as error:
            assert str(CANARY) not in str(error)  # noqa: PT017 - some are read all the same
        else:
            assert str(CANARY) not in str(refused)


REFUSED = [
    ((0, 900, CANARY), {"uom": 169}, "uom is another unit: must be 72"),
    ((0, 900, CANARY), {"flowDirection": 19}, "reading is delivered or received alone"),
    ((0, 900, CANARY), {"flowDirection": 4}, "flowDirection is another"),
    ((0, 900, CANARY), {"accumulationBehaviour": 3}, "send totals to the MQTT register topic"),
    ((0, 900, CANARY), {"accumulationBehaviour": 1}, "send totals to the MQTT register topic"),
    ((0, 900, CANARY), {"accumulationBehaviour": 12}, "must be 4, that is deltaData"),
    ((0, 900, CANARY), {"powerOfTenMultiplier": 999999999}, "powerOfTenMultiplier is out of range"),
    ((0, 900, CANARY), {"powerOfTenMultiplier": CANARY}, "powerOfTenMultiplier is out of range"),
    ((0, 900, CANARY), {"powerOfTenMultiplier": ""}, "powerOfTenMultiplier is out of range"),
    ((0, 900, f"{CANARY},5"), {}, "reading is not whole"),
    ((0, 900, f"<v>{CANARY}</v>"), {}, "reading is not whole"),
    ((0, 900, ""), {}, "reading is not whole"),
    ((0, 900, "1" * 5000), {}, "reading is not whole"),
    ((0.0, 900, CANARY), {}, "reading is not whole"),
    ((0, 900, "٣"), {}, "reading is not whole"),
    (("2026-01-01T00:00:00Z", 900, CANARY), {}, "reading is not whole"),
    ((450, 900, CANARY), {}, "must begin on an interval boundary"),
    ((-900, 900, CANARY), {}, "start is no time"),
    ((10**17, 900, CANARY), {}, "start is no time"),
    ((0, 3600, CANARY), {}, "several intervals long"),
    ((0, 300, CANARY), {}, "reading is of another length"),
    ((0, 0, CANARY), {}, "reading is of another length"),
    ((0, 900, f"{CANARY}</value><value>{CANARY}"), {}, "reading is not whole"),
]


@pytest.mark.parametrize(("sent", "changes", "why"), REFUSED, ids=range(len(REFUSED)))
def test_a_reading_that_breaks_a_rule_is_refused_by_it_without_a_word_of_its_value(sent, changes, why):
    batch, refused = parse_green_button(one(sent, **changes), interval_s=INTERVAL_S)
    assert (len(batch), list(refused)) == (0, [1])
    assert why in refused[1]
    assert str(CANARY) not in refused[1]


@pytest.mark.parametrize("missing", ["uom", "flowDirection", "accumulationBehaviour"])
def test_what_a_type_does_not_say_is_not_guessed(missing):
    fields = {key: value for key, value in DELTA.items() if key != missing}
    body = feed(entries([Meter("1", [(0, 900, 5)])], {"07": fields}))
    assert list(parse_green_button(body, interval_s=INTERVAL_S)[1]) == [1]


def test_a_type_without_a_power_of_ten_means_its_unit():
    fields = {key: value for key, value in DELTA.items() if key != "powerOfTenMultiplier"}
    body = feed(entries([Meter("1", [(0, 900, 5)])], {"07": fields}))
    assert parse_green_button(body, interval_s=INTERVAL_S)[0].energy_wh.tolist() == [5]


def test_each_meter_reading_is_of_the_type_that_it_links_to():
    meters = [Meter("in", [(0, 900, 5)], "07"), Meter("out", [(0, 900, 6)], "08"), Meter("kilo", [(0, 900, 7)], "09")]
    kinds = {"07": DELTA, "08": DELTA | {"flowDirection": 19}, "09": DELTA | {"powerOfTenMultiplier": 3}}
    batch, refused = parse_green_button(feed(entries(meters, kinds)), interval_s=INTERVAL_S)
    assert (batch.meter, batch.energy_wh.tolist(), list(refused)) == (["in", "kilo"], [5, 7000], [2])


def test_without_a_link_the_only_type_counts_and_of_two_none():
    meters = [Meter("1", [(0, 900, 5)], "")]
    assert len(parse_green_button(feed(entries(meters, {"07": DELTA})), interval_s=INTERVAL_S)[0]) == 1
    batch, refused = parse_green_button(feed(entries(meters, {"07": DELTA, "08": DELTA})), interval_s=INTERVAL_S)
    assert (len(batch), "of no ReadingType" in refused[1]) == (0, True)
    batch, refused = parse_green_button(
        feed(entries([Meter("1", [(0, 900, 5)], "99")], {"07": DELTA})), interval_s=INTERVAL_S
    )
    assert (len(batch), "of no ReadingType" in refused[1]) == (0, True)


def test_a_block_of_a_usage_point_that_the_feed_does_not_hold_is_refused():
    parts = [part for part in entries([Meter("1", [(0, 900, 5)])], {"07": DELTA}) if "<UsagePoint>" not in part]
    batch, refused = parse_green_button(feed(parts), interval_s=INTERVAL_S)
    assert (len(batch), "of no UsagePoint" in refused[1]) == (0, True)


def test_two_usage_points_of_one_name_are_ambiguous():
    other = entry("<UsagePoint/>", "https://data.example/espi/1_1/resource/RetailCustomer/8/UsagePoint/1")
    with pytest.raises(ReadingError, match="UsagePoint is ambiguous"):
        parse_green_button(feed([*entries([Meter("1", [(0, 900, 5)])], {"07": DELTA}), other]), interval_s=INTERVAL_S)


def test_one_type_that_says_two_things_is_ambiguous():
    other = kind_entry("07", DELTA | {"flowDirection": 19})
    with pytest.raises(ReadingError, match="ReadingType is ambiguous"):
        parse_green_button(feed([*entries([Meter("1", [(0, 900, 5)])], {"07": DELTA}), other]), interval_s=INTERVAL_S)


def test_prefixes_do_not_matter_and_namespaces_do():
    body = one((0, 900, 5)).decode()
    swapped = body.replace("<a:", "<").replace("</a:", "</").replace("xmlns:a=", "xmlns=", 1)
    swapped = swapped.replace(' xmlns="http://naesb.org/espi"', "")
    for kind in ("UsagePoint", "MeterReading", "ReadingType", "IntervalBlock"):
        for end in (">", "/>"):
            swapped = swapped.replace(f"<content><{kind}{end}", f'<content><{kind} xmlns="http://naesb.org/espi"{end}')
    assert len(parse_green_button(swapped.encode(), interval_s=INTERVAL_S)[0]) == 1
    other = body.replace("naesb.org/espi", "example.org/espi", 1)
    assert len(parse_green_button(other.encode(), interval_s=INTERVAL_S)[0]) == 0


FEED, END = '<feed xmlns="http://www.w3.org/2005/Atom">', "</feed>"
LAUGHS = '<!ENTITY a "ha">' + "".join(f'<!ENTITY a{i} "{f"&a{i - 1 if i else str()};" * 10}">' for i in range(9))
XML = '<?xml version="1.0" encoding="{}"?>' + FEED + END
HOSTILE = {  # what is sent, and what the refusal says
    f"<!DOCTYPE feed>{FEED}{END}": "DOCTYPE",
    f"<!DOCTYPE feed [{LAUGHS}]>{FEED}&a8;{END}": "DOCTYPE",
    f'<!DOCTYPE feed [<!ENTITY x SYSTEM "file:///etc/passwd">]>{FEED}&x;{END}': "DOCTYPE",
    f'<!DOCTYPE feed SYSTEM "http://127.0.0.1:9/x.dtd">{FEED}{END}': "DOCTYPE",
    f"{FEED}&x;{END}": "not XML",
    "": "not XML",
    f"{FEED}\x00{END}": "not XML",
    f"{FEED}&#xD800;{END}": "not XML",
    f"{FEED}{END}{FEED}{END}": "not XML",
    XML.format("no-such"): "not XML",
    XML.format("shift_jis"): "not XML",
    XML.format("zlib"): "not XML",
    "<html/>": "not Green Button",
    '<entry xmlns="http://www.w3.org/2005/Atom"/>': "not Green Button",
    f"{FEED}<feed/>{END}": "not Green Button",
    f"{FEED}<entry><entry/></entry>{END}": "not Green Button",
    f'{FEED}<IntervalReading xmlns="http://naesb.org/espi"/>{END}': "not Green Button",
    f"{FEED}{'<a>' * 100_000}{'</a>' * 100_000}{END}": "feed is too large",
    f'{FEED}<link rel="self" href="{"x" * 5000}"/>{END}': "link is too long",
}


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_xml_is_refused_as_a_whole(body):
    with pytest.raises(ReadingError, match=HOSTILE[body]):
        parse_green_button(body.encode(), interval_s=INTERVAL_S)


def test_bytes_that_are_not_utf_8_are_refused():
    with pytest.raises(ReadingError):
        parse_green_button(one((0, 900, "5")).replace(b"974", b"\xff"), interval_s=INTERVAL_S)


@pytest.mark.parametrize(("bound", "most"), [("MAX_FEED_ELEMENTS", 10), ("MAX_FEED_ENTRIES", 2), ("MAX_FEED_DEPTH", 4)])
def test_more_than_a_feed_may_have_is_refused(monkeypatch, bound, most):
    monkeypatch.setattr(green_button, bound, most)
    with pytest.raises(ReadingError, match="feed is too large"):
        parse_green_button(one((0, 900, 5)), interval_s=INTERVAL_S)


def test_a_reading_around_a_reading_does_not_count_it_twice():
    inner = f"5</value>{reading(900, 900, 6)}<value>7"
    batch, refused = parse_green_button(one((0, 900, inner)), interval_s=INTERVAL_S)
    assert (batch.energy_wh.tolist(), list(refused)) == ([6], [2])


@pytest.mark.slow
def test_a_year_of_quarter_hours_is_quick():
    body = one(*((i * 900, 900, 5) for i in range(35_000)))
    assert work_of(lambda: parse_green_button(body, interval_s=INTERVAL_S)) < 150
    assert len(parse_green_button(body, interval_s=INTERVAL_S)[0]) == 35_000
