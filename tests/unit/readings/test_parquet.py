"""Parquet bodies: what is written is read again, and no file, however spoiled, does more harm than a refusal."""

import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.forged_parquet import forged_parquet
from tests.support.request_bodies import CANARY, INTERVAL_S, columns, energy, names, parquet, starts, table

from murmurate.errors import ReadingError
from murmurate.readings import parquet as parquet_module
from murmurate.readings.parquet import parse_parquet


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
    batch, refused = parse_parquet(body, interval_s=INTERVAL_S)
    assert not refused
    assert [list(batch.meter), batch.start_s.tolist(), batch.energy_wh.tolist()] == parts
    assert batch.line.tolist() == list(range(1, len(readings) + 1))


def test_parquet_rows_that_break_a_rule_are_refused_by_it():
    utc = pa.timestamp("ms", "UTC")
    sent = {
        "meter_id": ["a", None, "a", "a", "a", "a", "a", " a", "x" * 129, "a\n", "", "a", "a", "b"],
        "interval_start": [0, 0, None, 0, 1000, 900_500, -900_000, 0, 0, 0, 0, 0, 0, 0],
        "interval_end": [900_000] * 4 + [901_000, 1_800_500, 0] + [900_000] * 4 + [1_800_000, 900_001, 900_000],
        "energy_wh": [float("nan"), CANARY, CANARY, None, *[CANARY] * 9, 5],
    }
    kinds = {"meter_id": pa.string(), "interval_start": utc, "interval_end": utc, "energy_wh": pa.float64()}
    body = parquet(pa.table({name: pa.array(sent[name], kinds[name]) for name in sent}))
    batch, refused = parse_parquet(body, interval_s=INTERVAL_S)
    assert columns(batch) == [("b", 0, 5, None)]
    assert batch.line.tolist() == [14]
    rules = [
        "nulls",
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


def test_far_times_do_not_wrap():
    body = parquet(table([1], [2**43 // 900 * 900], [5], unit="us"))
    assert "interval_start is no time" in parse_parquet(body, interval_s=INTERVAL_S)[1][1]


UTC_US = pa.timestamp("us", "UTC")
TYPES = [
    {"energy_wh": pa.decimal256(39, 0)},
    {"energy_wh": pa.string()},
    {"energy_wh": pa.bool_()},
    {"energy_wh": pa.list_(pa.int64())},
    {"meter": pa.string()},
    {"meter": pa.float32()},
    {"meter": pa.uint64()},
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
        parse_parquet(body, interval_s=INTERVAL_S)


def test_parquet_columns_that_nobody_needs_are_left_alone():
    more = table(["a"], [0], [5]).append_column("note", [["x"]])
    assert columns(parse_parquet(parquet(more), interval_s=INTERVAL_S)[0]) == [("a", 0, 5, None)]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_parquet_text_is_text_however_it_was_held(kind):
    one = table(["a", "b", "a"], [0, 0, 0], [5, 6, 7])
    meters = one["meter_id"]
    held = meters.dictionary_encode() if pa.types.is_dictionary(kind) else meters.cast(kind)
    batch, refused = parse_parquet(parquet(one.set_column(0, "meter_id", held)), interval_s=INTERVAL_S)
    assert (batch.meter, refused) == (["a", "b", "a"], {})


def test_parquet_with_too_many_rows_is_refused_before_any_is_decoded():
    body = parquet(table([1, 2, 3], [0, 0, 0], [5, 5, 5]))
    assert len(parse_parquet(body, interval_s=INTERVAL_S, max_rows=3)[0]) == 3
    data = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    empty = body[:4] + bytes(data - 4) + body[data:]  # its footer is whole, its pages cannot be decoded
    with pytest.raises(ReadingError, match="unreadable"):
        parse_parquet(empty, interval_s=INTERVAL_S, max_rows=3)
    with pytest.raises(ReadingError, match="body is too long: must have at most 2 rows"):
        parse_parquet(empty, interval_s=INTERVAL_S, max_rows=2)


@pytest.mark.slow
def test_a_parquet_bomb_is_refused_by_what_it_says_of_itself():
    note = pa.array([bytes(2**20)] * 300, pa.binary())
    start = pa.array([0] * 300, UTC_US)
    bomb = pa.table({"meter": range(300), "interval_start": start, "energy_wh": range(300), "note": note})
    body = parquet(bomb, compression="zstd", use_dictionary=False, row_group_size=10)
    assert len(body) < 2**18
    with pytest.raises(ReadingError, match="body is too large"):
        parse_parquet(body, interval_s=INTERVAL_S)


def test_one_long_name_shared_by_many_rows_does_not_fill_the_memory():
    meters = pa.DictionaryArray.from_arrays(np.zeros(50_000, np.int32), pa.array(["x" * 10**6]))
    one = table(["a"] * 50_000, [0] * 50_000, [5] * 50_000).set_column(0, "meter_id", meters)
    before = pa.total_allocated_bytes()
    batch, refused = parse_parquet(parquet(one, store_schema=False), interval_s=INTERVAL_S)
    assert (len(batch), len(refused)) == (0, 50_000)
    assert pa.total_allocated_bytes() - before < 10**7


def test_parquet_text_that_is_not_utf_8_is_refused():
    body = parquet(
        table(["meter-one"] * 3, [0] * 3, [5] * 3), compression="none", use_dictionary=False, write_statistics=False
    )
    assert body.count(b"meter-one") == 3
    with pytest.raises(ReadingError, match="must be a Parquet file"):
        parse_parquet(body.replace(b"meter-one", b"meter-\xff\xfe\xfd"), interval_s=INTERVAL_S)


VALID = [
    parquet(table(["a", "b", "c"] * 50, [0, 900, 1800] * 50, [CANARY, 6, 7] * 50), compression=how, row_group_size=60)
    for how in ("snappy", "zstd", "none")
] + [parquet(table([1, 2, 3] * 50, [0, 900, 1800] * 50, [CANARY, 6, 7] * 50), use_deprecated_int96_timestamps=True)]


@pytest.mark.slow
@settings(max_examples=5 * settings.default.max_examples)
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
        batch, refused = parse_parquet(kept, interval_s=INTERVAL_S)
    except ReadingError as error:
        assert str(CANARY) not in str(error)  # noqa: PT017 - some are read all the same
    else:
        assert len(batch.start_s) == len(batch.energy_wh) == len(batch.meter) == len(batch.line)
        assert str(CANARY) not in " ".join(refused.values())


SWEEP = """
import sys
from murmurate.errors import ReadingError
from murmurate.readings.parquet import parse_parquet
body = sys.stdin.buffer.read()
for place in range(len(body)):
    for flip in (1, 16):
        spoiled = bytearray(body)
        spoiled[place] ^= flip
        try:
            parse_parquet(bytes(spoiled), interval_s=900)
        except ReadingError:
            pass
"""


@pytest.mark.slow
def test_no_spoiled_byte_of_a_parquet_file_ends_the_process():
    """Arrow ends it (std::terminate) if Python asks nine of these footers for a column chunk; hence a process apart."""
    body = parquet(
        table([1, 2, 3], [0, 900, 1800], [5, 6, 7]), compression="none", store_schema=False, use_dictionary=False
    )
    done = subprocess.run([sys.executable, "-c", SWEEP], input=body, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_rule_has_room_for_a_value():
    """What a refusal says is made of constants and of the interval's length alone."""
    assert all(not re.search(r"\d{5,}", rule) for rule in parquet_module.fault_texts(INTERVAL_S))


def test_a_name_of_many_bytes_is_refused_without_a_look_at_its_characters(monkeypatch):
    looked_at, is_printable = [], pc.utf8_is_printable
    monkeypatch.setattr(pc, "utf8_is_printable", lambda names: looked_at.append(names.nbytes) or is_printable(names))
    batch, refused = parse_parquet(forged_parquet(16), interval_s=INTERVAL_S)
    assert (len(batch), list(refused)) == (0, [1])
    assert max(looked_at) < 1000


@pytest.mark.parametrize(("length", "taken"), [(128, 1), (129, 0)])
def test_a_name_is_measured_in_characters_of_up_to_four_bytes(length, taken):
    batch, _ = parse_parquet(parquet(table(["\N{GRINNING FACE}" * length], [900], [1])), interval_s=INTERVAL_S)
    assert len(batch) == taken
