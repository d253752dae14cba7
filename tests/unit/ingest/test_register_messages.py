"""What a register shows, read from a message: exact, whatever its value; what is no number is refused."""

import json
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ReadingError
from murmurate.readings.field_values import MAX_WH, parse_time_ns
from murmurate.service.ingest.cumulative_register import RegisterReading, parse_register_reading

CANARY = 8675309


@given(st.integers(-MAX_WH, MAX_WH))
def test_a_bare_number_is_wh_at_the_time_of_its_arrival(wh):
    assert parse_register_reading(str(wh).encode(), 77) == (RegisterReading(77, wh), False)


@given(st.integers(0, 2**43), st.sampled_from([("Wh", 0), ("kWh", 3), ("MWh", 6)]), st.integers(0, 4 * 10**9))
def test_a_register_in_any_unit_is_exact_to_the_wh(wh, unit, at_s):
    name, digits = unit
    text = f"{wh // 10**digits}.{wh % 10**digits:0{digits}d}" if digits else str(wh)
    payload = f'{{"timestamp": {at_s}, "value": {text}, "unit": "{name}"}}'.encode()
    assert parse_register_reading(payload, 0) == (RegisterReading(at_s, wh), True)


@pytest.mark.parametrize(
    "payload",
    [b'{"timestamp":"1970-01-01T01:00:30.999+01:00","value":5}', b'{"value": 0.005, "unit": "kWh", "timestamp": 30}'],
)
def test_a_time_is_rfc_3339_or_whole_seconds(payload):
    assert parse_register_reading(payload, 0) == (RegisterReading(30, 5), True)


@given(st.fractions(max_denominator=10**6).map(lambda one: f"{float(one)!r}"), st.sampled_from(["Wh", "kWh", "MWh"]))
def test_a_fraction_is_rounded_down(text, unit):
    wh = {"Wh": 1, "kWh": 1000, "MWh": 10**6}[unit]
    point, _ = parse_register_reading(f'{{"value": {text}, "unit": "{unit}"}}'.encode(), 0)
    assert point.total_wh == min(max(floor(Fraction(text) * wh), -MAX_WH), MAX_WH)


CUT = {
    b"9" * 400: MAX_WH,
    b"1e400": MAX_WH,
    b"-1e400": -MAX_WH,
    b"1e999999999": MAX_WH,
    b"-1e99999999999999999999": -MAX_WH,
    b"1e-999999999": 0,
    b"-1e-99999999999999999999": -1,
    b"0e999999999": 0,
    b'{"value": 1e20, "unit": "MWh"}': MAX_WH,
    b'{"value": -5.5, "unit": "MWh"}': -5_500_000,
}


@pytest.mark.parametrize("payload", CUT, ids=range(len(CUT)))
def test_no_value_is_refused_however_large(payload):
    assert parse_register_reading(payload, 77)[0] == RegisterReading(77, CUT[payload])


BAD = [
    b"",
    b"\x00",
    b"\xff\xfe1",
    b"true",
    b"null",
    b'"5"',
    b"[5]",
    b"{}",
    b"NaN",
    b"-Infinity",
    b"[" * 4000,
    b'{"a":' * 800,
    b"1" * 4097,
    b'{"value": "\\ud800"}',
    b'{"value": 1, "unit": ["kWh"]}',
    b'{"value": 1, "time": 5}',
    *(
        f.replace("#", str(CANARY)).encode()
        for f in (
            '{"value": #, "unit": "J"}',
            '{"value": #, "value": #}',
            '{"value": #, "timestamp": "2026-01-01T00:00:00"}',
            '{"value": #, "timestamp": #000000}',
            '{"value": "#"}',
            '{"value": #',
            '{"value": #, "wh": #}',
            '{"value": {"v": #}}',
            "# #",
        )
    ),
]


@pytest.mark.parametrize("payload", BAD, ids=range(len(BAD)))
def test_what_is_no_register_is_refused_without_a_word_of_its_value(payload):
    with pytest.raises(ReadingError) as caught:
        parse_register_reading(payload, 0)
    assert str(CANARY) not in str(caught.value) + repr(caught.value)
    assert caught.value.__context__ is None  # a parser's own error would quote the message


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_no_message_raises_anything_else(payload):
    try:
        point, _ = parse_register_reading(payload, 0)
    except ReadingError:
        return
    assert -MAX_WH <= point.total_wh <= MAX_WH


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:01Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00+25:00",
        "20260101T000000Z",
        "2026-W01-1T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "٢026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z" + "0" * 100,
        "1767225600",
        -1,
        10**400,
        True,
        1.0,
        None,
    ],
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ReadingError):
        parse_time_ns("interval_start", text)
