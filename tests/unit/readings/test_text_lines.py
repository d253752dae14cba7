"""Bodies read as batches: what is written is read again, what is broken is refused by line, no refusal has a value."""

import csv
import io
import json
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cpu_time import work_of
from tests.support.request_bodies import (
    CANARY,
    INTERVAL_S,
    START_S,
    columns,
    line,
    parquet,
    rfc_3339,
    rows,
    table,
    zones,
)

from murmurate.errors import ReadingError
from murmurate.readings.parquet import parse_parquet
from murmurate.readings.text_lines import parse_csv, parse_json_lines


@given(rows, zones, st.data())
def test_json_lines_are_read_as_they_were_written(readings, zone, data):
    body = io.StringIO()
    for meter, start_s, energy_wh, signature in readings:
        row = {"meter": meter, "energy_wh": energy_wh}
        row["interval_start"] = data.draw(st.sampled_from([start_s, rfc_3339(start_s, zone)]))
        row |= data.draw(st.sampled_from([{}, {"interval_end": rfc_3339(start_s + INTERVAL_S)}]))
        body.write(json.dumps(row | ({"signature": signature} if signature else {})) + "\n")
    batch, refused = parse_json_lines(body.getvalue().encode(), interval_s=INTERVAL_S)
    assert not refused
    assert columns(batch) == readings
    assert batch.line.tolist() == list(range(1, len(readings) + 1))


@given(
    rows,
    zones,
    st.sampled_from(",;"),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.permutations(range(5)),
    st.booleans(),
)
def test_csv_is_read_as_it_was_written(readings, zone, delimiter, end, mark, order, ended):
    text = io.StringIO(newline="")
    write = csv.writer(text, delimiter=delimiter, lineterminator=end)
    header = ["meter_id", "interval_start", "interval_end", "energy_wh", "signature"]
    for row in [
        header,
        *(
            (meter, rfc_3339(s, zone), s + INTERVAL_S if ended else "", wh, signature or "")
            for meter, s, wh, signature in readings
        ),
    ]:
        write.writerow([row[i] for i in order])
    body = text.getvalue().encode("utf-8-sig" if mark else "utf-8")
    batch, refused = parse_csv(body, interval_s=INTERVAL_S)
    assert not refused
    assert columns(batch) == readings
    assert batch.line.tolist() == list(range(2, len(readings) + 2))


@given(st.lists(st.booleans(), min_size=1))
def test_what_is_refused_and_what_is_taken_are_all_that_was_sent(good):
    """Each line is in one of the two, whatever stands beside it."""
    start = [START_S if one else START_S + 1 for one in good]
    head = b"meter;interval_start;energy_wh\n"
    bodies = [
        (parse_json_lines, b"\n".join(line(interval_start=one) for one in start), 1),
        (parse_csv, head + b"\n".join(b"a;%d;5" % one for one in start), 2),
        (parse_parquet, parquet(table(["a"] * len(good), start, [5] * len(good))), 1),
    ]
    for read, body, first in bodies:
        batch, refused = read(body, interval_s=INTERVAL_S)
        assert batch.line.tolist() == [n for n, one in enumerate(good, first) if one]
        assert list(refused) == [n for n, one in enumerate(good, first) if not one]


NUMBERED = [{"meter": 17}, {"meter": "17"}]


@pytest.mark.parametrize("change", NUMBERED)
def test_a_meter_by_number_is_named_by_its_digits(change):
    batch, _ = parse_json_lines(line(**change), interval_s=INTERVAL_S)
    assert batch.meter == ["17"]


BROKEN = {  # what is written, and what the refusal says
    '{"meter":"a","interval_start":0,"energy_wh":"#"}': "energy_wh is no number",
    '{"meter":"a","interval_start":0,"energy_wh":null}': "energy_wh is no number",
    '{"meter":"a","interval_start":0,"energy_wh":true}': "energy_wh is no number",
    '{"meter":"a","interval_start":0,"energy_wh":[#]}': "energy_wh is no number",
    '{"meter":"a","interval_start":0,"energy_wh":+#}': "line is no JSON",
    '{"meter":"a","interval_start":0.0,"energy_wh":#}': "interval_start is no time",
    '{"meter":"a","interval_start":0,"energy_wh":NaN}': "line is with NaN or Infinity",
    '{"meter":"a","interval_start":0,"energy_wh":-Infinity}': "line is with NaN or Infinity",
    '{"meter":"a","interval_start":0}': "energy_wh is no number",
    '{"meter":"a","energy_wh":#}': "interval_start is no time",
    '{"interval_start":0,"energy_wh":#}': "meter is no name",
    '{"meter":true,"interval_start":0,"energy_wh":#}': "meter is no name",
    '{"meter":"","interval_start":0,"energy_wh":#}': "meter is no name",
    '{"meter":"a\\u0000","interval_start":0,"energy_wh":#}': "meter is no name",
    '{"meter":"\\ud800","interval_start":0,"energy_wh":#}': "meter is no name",
    '{"meter":" a","interval_start":0,"energy_wh":#}': "meter is no name",
    '{"meter":"' + "a" * 129 + '","interval_start":0,"energy_wh":#}': "meter is no name",
    '{"meter":"a","interval_start":"2026-01-01T00:00:00","energy_wh":#}': "interval_start is without a zone",
    '{"meter":"a","interval_start":"2026-01-01T00:07:00Z","energy_wh":#}': "must begin on an interval boundary",
    '{"meter":"a","interval_start":"2026-01-01T00:00:00.000000001Z","energy_wh":#}': "begin on an interval boundary",
    '{"meter":"a","interval_start":"#","energy_wh":#}': "interval_start is no time",
    '{"meter":"a","interval_start":0,"interval_end":1800,"energy_wh":#}': "another stretch than an interval of 900 s",
    '{"meter":"a","interval_start":900,"interval_end":0,"energy_wh":#}': "another stretch than an interval of 900 s",
    '{"meter":"a","interval_start":0,"energy_wh":#,"energy_wh":#}': "line is with a member twice",
    '{"meter":"a","interval_start":0,"energy_wh":#,"energy_#":#}': "line is with a member too many",
    '{"meter":"a","interval_start":0,"energy_wh":#,"signature":"#"}': "signature is no signature",
    '{"meter":"a","interval_start":0,"energy_wh":#,"signature":5}': "signature is no signature",
    '{"meter":"a","interval_start":0,"energy_wh":#': "line is no JSON",
    '{"meter":"a\x00","interval_start":0,"energy_wh":#}': "line is no JSON",
    '["a",0,#]': "line is no JSON",
    "#": "line is no JSON",
    '{"energy_wh":' + "[" * 4000: "line is no JSON",
    '{"energy_wh":' * 300: "line is no JSON",
    '{"meter":"a","energy_wh":#}' + " " * 4096: "line is too long",
    '{"meter":"\udcff","energy_wh":#}': "line is no text",
}


@pytest.mark.parametrize("body", BROKEN, ids=range(len(BROKEN)))
def test_a_json_line_that_breaks_a_rule_is_refused_by_it_and_the_rest_goes_on(body):
    bad = body.replace("#", str(CANARY)).encode("utf-8", "surrogateescape")
    batch, refused = parse_json_lines(b"\n".join([line(), b"", bad, b" \r", line()]), interval_s=INTERVAL_S)
    assert batch.line.tolist() == [1, 5]
    assert list(refused) == [3]
    assert BROKEN[body] in refused[3]
    assert str(CANARY) not in refused[3]


CSV_BROKEN = {
    "a,0,900,1_#": "energy_wh is no number",
    "a,0,900,٣": "energy_wh is no number",
    "a,0,900,nan": "energy_wh is no number",
    "a,0,900,# Wh": "energy_wh is no number",
    "a,0,900,.": "energy_wh is no number",
    "a,0,900,--#": "energy_wh is no number",
    "a,0,900,0x1": "energy_wh is no number",
    'a,0,900,"#,5"': "energy_wh is no number",
    "a,0,900,": "energy_wh is no number",
    "a,0,1800,#": "another stretch",
    "a,7,907,#": "must begin on an interval boundary",
    "a,2026-01-01T00:00:00,,#": "interval_start is without a zone",
    "a,2026-01-01T00:00:00Z,2026-01-01T00:15:00,#": "interval_end is without a zone",
    "a,#": "line is of another length",
    "a,0,900,#,": "line is of another length",
    '"a,0,900,#': "line is no CSV",
    '"a"b,0,900,#': "line is no CSV",
    "a\rb,0,900,#": "line is no CSV",
    "a\x00b,0,900,#": "meter is no name",
    ",0,900,#": "meter is no name",
    "\udcff,0,900,#": "line is no text",
    '"' + "x" * 200_000 + '",0,900,#': "line is too long",
}


@pytest.mark.parametrize("body", CSV_BROKEN, ids=range(len(CSV_BROKEN)))
def test_a_csv_row_that_breaks_a_rule_is_refused_by_it_and_the_rest_goes_on(body):
    bad = body.replace("#", str(CANARY)).encode("utf-8", "surrogateescape")
    good = b"a,0,900,5"
    body_ = b"\n".join([b"meter_id,interval_start,interval_end,energy_wh", good, b"", bad, good])
    batch, refused = parse_csv(body_, interval_s=INTERVAL_S)
    assert batch.line.tolist() == [2, 5]
    assert list(refused) == [4]
    assert CSV_BROKEN[body] in refused[4]
    assert str(CANARY) not in refused[4]


HEADERS = [
    b"",
    b"\n",
    b"17,2026-01-01T00:00:00Z,8675309\n",
    b"meter,meter_id,interval_start,energy_wh",
    b"meter,interval_start,interval_start,energy_wh",
    b"meter,interval_start,energy",
    b"meter,interval_start,energy_wh,8675309",
    b"\xff\xfem\x00e\x00t\x00e\x00r\x00",
    b'"meter,interval_start,energy_wh',
    b"meter,interval_start,energy_wh" + b"," * 5000,
    b"\x00" * 5000,
]


@pytest.mark.parametrize("body", HEADERS, ids=range(len(HEADERS)))
def test_csv_without_its_header_is_refused_as_a_whole_and_its_first_row_not_told(body):
    with pytest.raises(ReadingError) as caught:
        parse_csv(body, interval_s=INTERVAL_S)
    assert str(CANARY) not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    "body", [b"8675309", b"meter,energy_wh\na,8675309", b"PAR1\x00", b"[" * 4000, b"[\n]", b"\xff\xfe{\x00"]
)
def test_what_has_no_json_object_on_any_line_is_refused_as_a_whole(body):
    with pytest.raises(ReadingError, match="body is not JSON lines") as caught:
        parse_json_lines(body, interval_s=INTERVAL_S)
    assert str(CANARY) not in str(caught.value)


@pytest.mark.slow
def test_a_body_of_nothing_but_faults_does_not_fill_the_memory():
    for read, body in [
        (parse_json_lines, b"{}\n" * 200_000),
        (parse_csv, b"meter,interval_start,energy_wh\n" + b"x\n" * 200_000),
    ]:
        with pytest.raises(ReadingError, match="body is full of faults"):
            read(body, interval_s=INTERVAL_S)
    nothing = pa.array([None] * 200_000, pa.int64())
    start = pa.array([None] * 200_000, pa.timestamp("us", "UTC"))
    body = parquet(pa.table({"meter": nothing, "interval_start": start, "energy_wh": nothing}))
    with pytest.raises(ReadingError, match="body is full of faults"):
        parse_parquet(body, interval_s=INTERVAL_S)


@pytest.mark.parametrize("read", [parse_json_lines, parse_csv, parse_parquet])
@given(body=st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_reading_error(read, body):
    for some in (body, b"meter,interval_start,energy_wh\n" + body, b"{}\n" + body, b"PAR1" + body + b"PAR1"):
        try:
            read(some, interval_s=INTERVAL_S)
        except ReadingError as error:
            assert error.__cause__ is None  # noqa: PT017 - most bodies raise, some do not


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_quick():
    """The bounds catch what is quadratic."""
    count = 100_000
    bodies = {
        parse_json_lines: (line() + b"\n") * count,
        parse_csv: b"meter_id,interval_start,energy_wh\n" + b"a,2026-01-01T00:00:00Z,5\n" * count,
        parse_parquet: parquet(table([f"meter {i}" for i in range(count)], [0] * count, [5] * count)),
    }
    for read, body in bodies.items():
        assert work_of(partial(read, body, interval_s=INTERVAL_S)) < (25 if read is parse_parquet else 150)
        assert len(read(body, interval_s=INTERVAL_S)[0]) == count
