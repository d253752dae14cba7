"""Bodies made into slips: what is written is read again, what is broken is refused by line, no refusal has a value."""

import csv
import io
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murmurate.errors import ReadingError
from murmurate.service.doors import parquet_body
from murmurate.service.doors.formats import csv_rows, json_lines
from murmurate.service.doors.parquet_body import parquet_rows

INTERVAL_S = 900
START_S = 1_767_225_600  # 2026-01-01T00:00:00Z
CANARY = 8675309

names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)
starts = st.integers(0, 2**31 // INTERVAL_S).map(lambda k: k * INTERVAL_S)
energy = st.integers(0, 2**53 - 1)
zones = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
rows = st.lists(st.tuples(names, starts, energy, st.none() | st.binary(min_size=1, max_size=64).map(bytes.hex)))


def rfc_3339(seconds, zone=UTC):
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(zone).isoformat()


def columns(slip):
    signatures = slip.signature or [None] * len(slip)
    return list(zip(list(slip.meter), slip.start_s.tolist(), slip.energy_wh.tolist(), signatures, strict=True))


def parquet(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def table(meters, start_s, energy_wh, unit="us"):
    meter = pa.array(meters, pa.string() if meters and isinstance(meters[0], str) else pa.int64())
    start = pa.array(start_s, pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))
    name = "meter_id" if pa.types.is_string(meter.type) else "meter"
    return pa.table({name: meter, "interval_start": start, "energy_wh": pa.array(energy_wh, pa.int64())})


def line(**changes):
    return json.dumps({"meter": "a", "interval_start": START_S, "energy_wh": 5} | changes).encode()


@given(rows, zones, st.data())
def test_json_lines_are_read_as_they_were_written(readings, zone, data):
    body = io.StringIO()
    for meter, start_s, energy_wh, signature in readings:
        row = {"meter": meter, "energy_wh": energy_wh}
        row["interval_start"] = data.draw(st.sampled_from([start_s, rfc_3339(start_s, zone)]))
        row |= data.draw(st.sampled_from([{}, {"interval_end": rfc_3339(start_s + INTERVAL_S)}]))
        body.write(json.dumps(row | ({"signature": signature} if signature else {})) + "\n")
    slip, refused = json_lines(body.getvalue().encode(), interval_s=INTERVAL_S)
    assert not refused
    assert columns(slip) == readings
    assert slip.line.tolist() == list(range(1, len(readings) + 1))


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
    slip, refused = csv_rows(body, interval_s=INTERVAL_S)
    assert not refused
    assert columns(slip) == readings
    assert slip.line.tolist() == list(range(2, len(readings) + 2))


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), starts, energy)) | st.lists(st.tuples(names, starts, energy)),
    st.sampled_from(["s", "ms", "us", "INT96"]),
    st.sampled_from(["snappy", "zstd", "none", "gzip"]),
    st.integers(1, 10),
)
def test_parquet_is_read_as_it_was_written(readings, unit, compression, group):
    parts = [list(part) for part in zip(*readings, strict=True)] or [[], [], []]
    old = unit == "INT96"
    body = parquet(
        table(*parts, unit="us" if old else unit),
        compression=compression,
        row_group_size=group,
        use_deprecated_int96_timestamps=old,
    )
    slip, refused = parquet_rows(body, interval_s=INTERVAL_S)
    assert not refused
    assert [list(slip.meter), slip.start_s.tolist(), slip.energy_wh.tolist()] == parts
    assert slip.line.tolist() == list(range(1, len(readings) + 1))


@given(st.lists(st.booleans(), min_size=1))
def test_what_is_refused_and_what_is_taken_are_all_that_was_sent(good):
    """Each line is in one of the two, whatever stands beside it."""
    energies = [5 if one else -5 for one in good]
    head = b"meter;interval_start;energy_wh\n"
    bodies = [
        (json_lines, b"\n".join(line(energy_wh=wh) for wh in energies), 1),
        (csv_rows, head + b"\n".join(b"a;%d;%d" % (START_S, wh) for wh in energies), 2),
        (parquet_rows, parquet(table(["a"] * len(good), [START_S] * len(good), energies)), 1),
    ]
    for read, body, first in bodies:
        slip, refused = read(body, interval_s=INTERVAL_S)
        assert slip.line.tolist() == [n for n, one in enumerate(good, first) if one]
        assert list(refused) == [n for n, one in enumerate(good, first) if not one]


NUMBERED = [{"meter": 17}, {"meter": "17"}]


@pytest.mark.parametrize("change", NUMBERED)
def test_a_meter_by_number_is_named_by_its_digits(change):
    slip, _ = json_lines(line(**change), interval_s=INTERVAL_S)
    assert slip.meter == ["17"]


BROKEN = {  # what is written, and what the refusal says
    '{"meter":"a","interval_start":0,"energy_wh":-#}': "energy_wh is negative",
    '{"meter":"a","interval_start":0,"energy_wh":#.0}': "energy_wh is no whole number",
    '{"meter":"a","interval_start":0,"energy_wh":"#"}': "energy_wh is no whole number",
    '{"meter":"a","interval_start":0,"energy_wh":true}': "energy_wh is no whole number",
    '{"meter":"a","interval_start":0,"energy_wh":[#]}': "energy_wh is no whole number",
    '{"meter":"a","interval_start":0,"energy_wh":#e400}': "energy_wh is no whole number",
    '{"meter":"a","interval_start":0,"energy_wh":#e99999999999999999999}': "line is no JSON",
    '{"meter":"a","interval_start":0,"energy_wh":NaN}': "line is with NaN or Infinity",
    '{"meter":"a","interval_start":0,"energy_wh":-Infinity}': "line is with NaN or Infinity",
    '{"meter":"a","interval_start":0,"energy_wh":#0000000000}': "energy_wh is too large",
    '{"meter":"a","interval_start":0,"energy_wh":1' + "0" * 400 + "}": "energy_wh is too large",
    '{"meter":"a","interval_start":0}': "energy_wh is no whole number",
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
    slip, refused = json_lines(b"\n".join([line(), b"", bad, b" \r", line()]), interval_s=INTERVAL_S)
    assert slip.line.tolist() == [1, 5]
    assert list(refused) == [3]
    assert BROKEN[body] in refused[3]
    assert str(CANARY) not in refused[3]


CSV_BROKEN = {
    "a,0,900,-#": "energy_wh is negative",
    "a,0,900,#.0": "energy_wh is no whole number",
    "a,0,900,+#": "energy_wh is no whole number",
    "a,0,900,1_#": "energy_wh is no whole number",
    "a,0,900,٣": "energy_wh is no whole number",
    "a,0,900,#0000000000": "energy_wh is too large",
    "a,0,900,1" + "0" * 400: "energy_wh is too large",
    "a,0,900,1" + "0" * 4050: "energy_wh is no whole number",
    "a,0,900,": "energy_wh is no whole number",
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
    slip, refused = csv_rows(body_, interval_s=INTERVAL_S)
    assert slip.line.tolist() == [2, 5]
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
        csv_rows(body, interval_s=INTERVAL_S)
    assert str(CANARY) not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    "body", [b"8675309", b"meter,energy_wh\na,8675309", b"PAR1\x00", b"[" * 4000, b"[\n]", b"\xff\xfe{\x00"]
)
def test_what_has_no_json_object_on_any_line_is_refused_as_a_whole(body):
    with pytest.raises(ReadingError, match="body is not JSON lines") as caught:
        json_lines(body, interval_s=INTERVAL_S)
    assert str(CANARY) not in str(caught.value)


def test_a_body_of_nothing_but_faults_does_not_fill_the_memory():
    for read, body in [
        (json_lines, b"{}\n" * 200_000),
        (csv_rows, b"meter,interval_start,energy_wh\n" + b"x\n" * 200_000),
    ]:
        with pytest.raises(ReadingError, match="body is full of faults"):
            read(body, interval_s=INTERVAL_S)
    nothing = pa.array([None] * 200_000, pa.int64())
    start = pa.array([None] * 200_000, pa.timestamp("us", "UTC"))
    body = parquet(pa.table({"meter": nothing, "interval_start": start, "energy_wh": nothing}))
    with pytest.raises(ReadingError, match="body is full of faults"):
        parquet_rows(body, interval_s=INTERVAL_S)


@pytest.mark.parametrize("read", [json_lines, csv_rows, parquet_rows])
@given(body=st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_reading_error(read, body):
    for some in (body, b"meter,interval_start,energy_wh\n" + body, b"{}\n" + body, b"PAR1" + body + b"PAR1"):
        try:
            read(some, interval_s=INTERVAL_S)
        except ReadingError as error:
            assert error.__cause__ is None  # noqa: PT017 - most bodies raise, some do not


def test_parquet_rows_that_break_a_rule_are_refused_by_it():
    utc = pa.timestamp("ms", "UTC")
    sent = {
        "meter_id": ["a", None, "a", "a", "a", "a", "a", " a", "x" * 129, "a\n", "", "a", "a", "b"],
        "interval_start": [0, 0, None, 0, 1000, 900_500, -900_000, 0, 0, 0, 0, 0, 0, 0],
        "interval_end": [900_000] * 4 + [901_000, 1_800_500, 0] + [900_000] * 4 + [1_800_000, 900_001, 900_000],
        "energy_wh": [-CANARY, CANARY, CANARY, None, *[CANARY] * 9, 5],
    }
    kinds = {"meter_id": pa.string(), "interval_start": utc, "interval_end": utc, "energy_wh": pa.int64()}
    body = parquet(pa.table({name: pa.array(sent[name], kinds[name]) for name in sent}))
    slip, refused = parquet_rows(body, interval_s=INTERVAL_S)
    assert columns(slip) == [("b", 0, 5, None)]
    assert slip.line.tolist() == [14]
    rules = [
        "negative",
        "nulls",
        "nulls",
        "nulls",
        "boundary",
        "boundary",
        "1970",
        *["printable"] * 4,
        "stretch",
        "stretch",
    ]
    assert list(refused) == list(range(1, 14))
    assert all(rule in why for rule, why in zip(rules, refused.values(), strict=True))
    assert str(CANARY) not in str(refused)


def test_parquet_energy_beyond_two_to_the_53_is_refused_and_far_times_do_not_wrap():
    body = parquet(table([1, 2], [0, 2**43 // 900 * 900], [2**53, 5], unit="us"))
    assert [why.split(":")[0] for why in parquet_rows(body, interval_s=INTERVAL_S)[1].values()] == [
        "energy_wh is too large",
        "interval_start is no time",
    ]


UTC_US = pa.timestamp("us", "UTC")
TYPES = [
    {"energy_wh": pa.float64()},
    {"energy_wh": pa.uint64()},
    {"energy_wh": pa.string()},
    {"energy_wh": pa.bool_()},
    {"energy_wh": pa.list_(pa.int64())},
    {"meter": pa.string()},
    {"meter": pa.float32()},
    {"interval_start": pa.timestamp("us")},
    {"interval_start": pa.timestamp("ns", "UTC")},
    {"interval_start": pa.timestamp("us", "Europe/Berlin")},
    {"interval_start": pa.int64()},
    {"interval_start": pa.date32()},
    {"interval_end": pa.int64()},
    {"meter_id": pa.string()},
    {"meter": None},
    {"energy_wh": None},
    {"interval_start": None},
    {"meter": None, "meter_id": pa.binary()},
    {"meter": None, "meter_id": pa.int64()},
    {"meter": None, "meter_id": pa.list_(pa.string())},
    {"meter": None, "x": pa.struct([("meter", pa.int64())])},
    {"interval_start": None, "x": pa.struct([("interval_start", UTC_US)])},
]


@pytest.mark.parametrize("change", TYPES, ids=str)
def test_parquet_with_other_columns_is_refused_as_a_whole(change):
    kinds = {"meter": pa.int64(), "interval_start": UTC_US, "energy_wh": pa.int64()} | change
    body = parquet(pa.table({name: pa.array([None], kind) for name, kind in kinds.items() if kind is not None}))
    with pytest.raises(ReadingError, match="must"):
        parquet_rows(body, interval_s=INTERVAL_S)


def test_parquet_columns_that_nobody_needs_are_left_alone():
    more = table(["a"], [0], [5]).append_column("note", [["x"]])
    assert columns(parquet_rows(parquet(more), interval_s=INTERVAL_S)[0]) == [("a", 0, 5, None)]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_parquet_text_is_text_however_it_was_held(kind):
    one = table(["a", "b", "a"], [0, 0, 0], [5, 6, 7])
    meters = one["meter_id"]
    held = meters.dictionary_encode() if pa.types.is_dictionary(kind) else meters.cast(kind)
    slip, refused = parquet_rows(parquet(one.set_column(0, "meter_id", held)), interval_s=INTERVAL_S)
    assert (slip.meter, refused) == (["a", "b", "a"], {})


def test_parquet_with_too_many_rows_is_refused_before_any_is_decoded():
    body = parquet(table([1, 2, 3], [0, 0, 0], [5, 5, 5]))
    assert len(parquet_rows(body, interval_s=INTERVAL_S, most_rows=3)[0]) == 3
    data = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    empty = body[:4] + bytes(data - 4) + body[data:]  # its footer is whole, its pages cannot be decoded
    with pytest.raises(ReadingError, match="unreadable"):
        parquet_rows(empty, interval_s=INTERVAL_S, most_rows=3)
    with pytest.raises(ReadingError, match="body is too long: must have at most 2 rows"):
        parquet_rows(empty, interval_s=INTERVAL_S, most_rows=2)


def test_a_parquet_bomb_is_refused_by_what_it_says_of_itself():
    note = pa.array([bytes(2**20)] * 300, pa.binary())
    start = pa.array([0] * 300, UTC_US)
    bomb = pa.table({"meter": range(300), "interval_start": start, "energy_wh": range(300), "note": note})
    body = parquet(bomb, compression="zstd", use_dictionary=False, row_group_size=10)
    assert len(body) < 2**18
    with pytest.raises(ReadingError, match="body is too large"):
        parquet_rows(body, interval_s=INTERVAL_S)


def test_one_long_name_shared_by_many_rows_does_not_fill_the_memory():
    meters = pa.DictionaryArray.from_arrays(np.zeros(50_000, np.int32), pa.array(["x" * 10**6]))
    one = table(["a"] * 50_000, [0] * 50_000, [5] * 50_000).set_column(0, "meter_id", meters)
    before = pa.total_allocated_bytes()
    slip, refused = parquet_rows(parquet(one, store_schema=False), interval_s=INTERVAL_S)
    assert (len(slip), len(refused)) == (0, 50_000)
    assert pa.total_allocated_bytes() - before < 10**7


def test_parquet_text_that_is_not_utf_8_is_refused():
    body = parquet(
        table(["meter-one"] * 3, [0] * 3, [5] * 3), compression="none", use_dictionary=False, write_statistics=False
    )
    assert body.count(b"meter-one") == 3
    with pytest.raises(ReadingError, match="must be a Parquet file"):
        parquet_rows(body.replace(b"meter-one", b"meter-\xff\xfe\xfd"), interval_s=INTERVAL_S)


VALID = [
    parquet(table(["a", "b", "c"] * 50, [0, 900, 1800] * 50, [CANARY, 6, 7] * 50), compression=how, row_group_size=60)
    for how in ("snappy", "zstd", "none")
] + [parquet(table([1, 2, 3] * 50, [0, 900, 1800] * 50, [CANARY, 6, 7] * 50), use_deprecated_int96_timestamps=True)]


@settings(max_examples=600)
@given(
    st.sampled_from(VALID),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=6),
    st.floats(0, 1),
    st.booleans(),
)
@example(VALID[0], [], 1.0, True)
def test_a_spoiled_parquet_file_is_refused_or_read_and_never_anything_else(body, flips, cut, tail):
    spoiled = bytearray(body)
    for place, flip in flips:
        spoiled[int(place * len(body))] ^= flip
    kept = bytes(spoiled) if tail else bytes(spoiled[: int(cut * len(body))])
    try:
        slip, refused = parquet_rows(kept, interval_s=INTERVAL_S)
    except ReadingError as error:
        assert str(CANARY) not in str(error)  # noqa: PT017 - some are read all the same
    else:
        assert len(slip.start_s) == len(slip.energy_wh) == len(slip.meter) == len(slip.line)
        assert (slip.energy_wh >= 0).all()
        assert str(CANARY) not in " ".join(refused.values())


SWEEP = """
import sys
from murmurate.errors import ReadingError
from murmurate.service.doors.parquet_body import parquet_rows
body = sys.stdin.buffer.read()
for place in range(len(body)):
    for flip in (1, 16):
        spoiled = bytearray(body)
        spoiled[place] ^= flip
        try:
            parquet_rows(bytes(spoiled), interval_s=900)
        except ReadingError:
            pass
"""


def test_no_spoiled_byte_of_a_parquet_file_ends_the_process():
    """Arrow ends it (std::terminate) if Python asks nine of these footers for a column chunk; hence a process apart."""
    body = parquet(
        table([1, 2, 3], [0, 900, 1800], [5, 6, 7]), compression="none", store_schema=False, use_dictionary=False
    )
    done = subprocess.run([sys.executable, "-c", SWEEP], input=body, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_hundred_thousand_rows_are_quick():
    """Generous bounds: the machine may be busy. They catch what is quadratic."""
    count = 100_000
    bodies = {
        json_lines: (line() + b"\n") * count,
        csv_rows: b"meter_id,interval_start,energy_wh\n" + b"a,2026-01-01T00:00:00Z,5\n" * count,
        parquet_rows: parquet(table([f"meter {i}" for i in range(count)], [0] * count, [5] * count)),
    }
    for read, body in bodies.items():
        begin = time.process_time()
        assert len(read(body, interval_s=INTERVAL_S)[0]) == count
        assert time.process_time() - begin < (0.5 if read is parquet_rows else 4)


def test_no_rule_has_room_for_a_value():
    """What a refusal says is made of constants and of the interval's length alone."""
    assert all(not re.search(r"\d{5,}", rule) for rule in parquet_body._rules(INTERVAL_S))
