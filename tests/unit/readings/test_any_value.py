"""No value that a meter measures makes it silent: whatever the number, its reading is taken as 7 Wh would be."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal
from fractions import Fraction
from math import floor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.cpu_time import work_of
from tests.support.green_button_feeds import one
from tests.support.ingestors import BOUND_WH, IMPUTED_WH, OPEN_S, demand_of, new_ingestor
from tests.support.request_bodies import INTERVAL_S, START_S, line, parquet

from murmurate.errors import ReadingError
from murmurate.readings.batch import ReadingBatch
from murmurate.readings.field_values import MAX_WH, floor_to_wh, parse_numeral
from murmurate.readings.green_button import parse_green_button
from murmurate.readings.parquet import parse_parquet
from murmurate.readings.text_lines import parse_csv, parse_csv_strictly, parse_json_lines, parse_json_lines_strictly
from murmurate.service.ingest.ingestor import Receipt
from murmurate.service.landing.readings_file import fingerprint_file, read_readings

whole = st.integers(-(10**30), 10**30).map(str) | st.from_regex(r"-?[1-9][0-9]{0,400}", fullmatch=True)
parts = st.just("") | st.from_regex(r"\.[0-9]{1,60}", fullmatch=True)
powers = (
    st.just("") | st.integers(-(10**30), 10**30).map(lambda e: f"e{e}") | st.integers(-40, 40).map(lambda e: f"E{e:+}")
)
json_numbers = st.builds("{}{}{}".format, whole, parts, powers)
numerals = json_numbers | st.sampled_from(["+7", ".5", "-.5", "5.", "007", "-0", "-0.0", "+1.5e3", "9" * 4000])
EXTREMES = ["-3", "0.5", "-0.5", "1.0", "1e3", "1e999999999", "-1e999999999", "1e-999999999", "0e999999999", str(2**53)]


def outcome(tmp_path_factory, read, body):
    """The receipt for a body, and how many meters of each zone reported."""
    root = tmp_path_factory.mktemp("ingestor")
    ingestor = new_ingestor(root)
    batch, refused = read(body, interval_s=INTERVAL_S)
    receipt = ingestor.ingest_batch(batch, None, Receipt(refused=refused))
    return receipt.to_document(), {zone: reported for zone, (_, reported) in demand_of(ingestor, root).items()}


def as_json(number):
    return b'{"meter":"1","interval_start":%d,"energy_wh":%s}\n' % (OPEN_S, number.encode()) + line(meter=9)


def as_csv(number):
    return b"meter_id,interval_start,energy_wh\n1,%d,%s\n9,%d,5" % (OPEN_S, number.encode(), OPEN_S)


def as_feed(number, power=0):
    return one((OPEN_S, 900, number), (OPEN_S + 1, 900, 5), meter="1", powerOfTenMultiplier=power)


def as_parquet(column):
    start = pa.array([OPEN_S] * 2, pa.timestamp("s", "UTC"))
    return parquet(pa.table({"meter": [1, 9], "interval_start": start, "energy_wh": column}))


@pytest.fixture(scope="module")
def seven(tmp_path_factory):
    """What becomes of 7 Wh in each format, beside a reading that is refused."""
    bodies = {
        parse_json_lines: as_json("7"),
        parse_csv: as_csv("7"),
        parse_green_button: as_feed("7"),
        parse_parquet: as_parquet([7, 5]),
    }
    outcomes = {read: outcome(tmp_path_factory, read, body) for read, body in bodies.items()}
    assert all(
        (receipt["accepted"], receipt["refused"], reported["harbour"]) == (1, 1, 1)
        for receipt, reported in outcomes.values()
    )
    return outcomes


def checked(name):
    """Every extreme, whatever Hypothesis thinks of."""

    def mark(test):
        for extreme in EXTREMES:
            test = example(**{name: extreme})(test)
        return settings(max_examples=40)(test)

    return mark


@pytest.mark.slow
@checked("number")
@given(number=json_numbers)
def test_any_json_number_has_the_fate_of_seven(tmp_path_factory, seven, number):
    assert outcome(tmp_path_factory, parse_json_lines, as_json(number)) == seven[parse_json_lines]


@pytest.mark.slow
@checked("number")
@given(number=numerals)
def test_any_number_in_csv_has_the_fate_of_seven(tmp_path_factory, seven, number):
    assert outcome(tmp_path_factory, parse_csv, as_csv(number)) == seven[parse_csv]


@pytest.mark.slow
@settings(max_examples=40)
@given(number=numerals, power=st.integers(-12, 12))
def test_any_number_in_a_green_button_feed_has_the_fate_of_seven(tmp_path_factory, seven, number, power):
    assert outcome(tmp_path_factory, parse_green_button, as_feed(number, power)) == seven[parse_green_button]


INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]


@st.composite
def parquet_numbers(draw):
    """A column of two numbers in any type that Parquet has for numbers; the second is 5."""
    kind = draw(st.sampled_from([*INTEGERS, pa.float16(), pa.float32(), pa.float64(), "decimal"]))
    if kind == "decimal":
        digits = draw(st.integers(1, 38))
        scale = draw(st.integers(0, digits - 1))
        units = draw(st.integers(-(10**digits) + 1, 10**digits - 1))
        return pa.array([Decimal(f"{units}e-{scale}"), Decimal(5)], pa.decimal128(digits, scale))
    if pa.types.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        return pa.array([draw(st.integers(int(info.min), int(info.max))), 5], kind)
    value = draw(st.floats(allow_nan=False, width=kind.bit_width))
    return pa.array(np.array([value, 5], kind.to_pandas_dtype()), kind)


@pytest.mark.slow
@settings(max_examples=80)
@given(column=parquet_numbers())
@example(column=pa.array([2**64 - 1, 5], pa.uint64()))
@example(column=pa.array([-(2**63), 5], pa.int64()))
@example(column=pa.array([float("inf"), 5.0]))
@example(column=pa.array([-1e300, 5.0]))
@example(column=pa.array([Decimal("-99.5"), Decimal(5)], pa.decimal128(3, 1)))
def test_any_number_in_parquet_has_the_fate_of_seven(tmp_path_factory, seven, column):
    assert outcome(tmp_path_factory, parse_parquet, as_parquet(column)) == seven[parse_parquet]


@given(column=parquet_numbers())
@example(column=pa.array([2**64 - 1, 5], pa.uint64()))
@example(column=pa.array([1e300, 5.0]))
@example(column=pa.array([Decimal("9" * 37 + ".9"), Decimal(5)], pa.decimal128(38, 1)))
def test_parquet_energy_is_rounded_down_and_nothing_wraps(column):
    batch, _ = parse_parquet(as_parquet(column), interval_s=INTERVAL_S)
    number = column[0].as_py()
    exact = number if abs(float(number)) == float("inf") else floor(Fraction(number))
    assert batch.energy_wh.clip(-MAX_WH, MAX_WH).tolist() == [min(max(exact, -MAX_WH), MAX_WH), 5]


def kind_of_record(tmp_path_factory, energy_wh, quorum=0.9):
    """Ten meters, one of them silent: the record of the interval is measured if another nine report."""
    root = tmp_path_factory.mktemp("harbour")
    ingestor = new_ingestor(root, zones=dict.fromkeys(range(10), "harbour"))
    rows = [f"{meter},{OPEN_S},200" for meter in range(2, 10)]
    body = "\n".join(["meter_id,interval_start,energy_wh", *rows, f"0,{OPEN_S},{energy_wh}"]).encode()
    batch, refused = parse_csv(body, interval_s=INTERVAL_S)
    ingestor.ingest_batch(batch, None, Receipt(refused=refused))
    return "measured" if demand_of(ingestor, root)["harbour"][1] >= quorum * 10 else "fallback"


@pytest.mark.parametrize("energy_wh", ["-3", "3", "3.5", "1e30", str(2**53)])
def test_the_kind_of_a_record_does_not_tell_what_a_meter_measured(tmp_path_factory, energy_wh):
    assert kind_of_record(tmp_path_factory, energy_wh) == "measured"


@pytest.mark.parametrize(
    ("sent", "counts"),
    [("-3", 0), ("-0.5", 0), ("12.5", 12), ("1e2", 100), ("999.999", 999), (str(2**53), BOUND_WH), ("1e400", BOUND_WH)],
)
def test_a_value_out_of_range_is_clipped(tmp_path, sent, counts):
    ingestor = new_ingestor(tmp_path)
    batch, _ = parse_json_lines(as_json(sent), interval_s=INTERVAL_S)
    ingestor.ingest_batch(batch, None)
    assert demand_of(ingestor, tmp_path)["harbour"] == (counts + 2 * IMPUTED_WH, 1)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_of_several_readings_of_one_meter_the_largest_counts_after_clipping(tmp_path_factory, energies):
    root = tmp_path_factory.mktemp("ingestor")
    ingestor = new_ingestor(root)
    ingestor.ingest_batch(ReadingBatch.from_numbered_rows([(1, OPEN_S, energy) for energy in energies]), None)
    assert demand_of(ingestor, root)["harbour"] == (min(max(0, *energies), BOUND_WH) + 2 * IMPUTED_WH, 1)


def landed_readings(landing):
    """What our reader finds in the files of an interval."""
    store = landing.store
    files = (fingerprint_file(store, found) for found in store.list_objects(landing.readings_folder(OPEN_S)))
    return [part for file in files for part in read_readings(store, file)]


def landed_wh(landing):
    """What the files of a landing hold, as another program reads them, and as ours does."""
    paths = sorted(landing.root.glob("interval=*/**/*.parquet"))
    plain = [wh for path in paths for wh in pq.read_table(path, partitioning=None)["energy_wh"].to_pylist()]
    ours = [wh for part in landed_readings(landing) for wh in part.energy_wh.tolist()]
    assert plain == ours
    return ours


any_wh = st.integers(-(2**63), 2**63 - 1) | st.integers(-3000, 3000)


@given(st.lists(any_wh, min_size=1, max_size=300))
@example([-(2**63), -1, 0, 5, MAX_WH, 2**53, 2**63 - 1])
@example([MAX_WH, -MAX_WH] * 100)  # the largest steps that the encoding has to hold
def test_what_lies_in_the_landing_has_its_sign_and_is_a_number_that_every_language_can_hold(tmp_path_factory, sent):
    ingestor = new_ingestor(tmp_path_factory.mktemp("ingestor"))
    ingestor.ingest_batch(ReadingBatch.from_numbered_rows([(1, OPEN_S, energy) for energy in sent]), None)
    assert sorted(landed_wh(ingestor.landing)) == sorted(min(max(energy, -MAX_WH), MAX_WH) for energy in sent)


@settings(max_examples=30)
@given(st.integers(-MAX_WH, MAX_WH) | st.integers(-3000, 3000))
def test_a_number_lands_with_its_sign_in_every_format(tmp_path_factory, energy_wh):
    text = str(energy_wh)
    for read, body in (
        (parse_json_lines, as_json(text)),
        (parse_csv, as_csv(text)),
        (parse_green_button, as_feed(text)),
        (parse_parquet, as_parquet([energy_wh, 5])),
    ):
        ingestor = new_ingestor(tmp_path_factory.mktemp("ingestor"))
        ingestor.ingest_batch(read(body, interval_s=INTERVAL_S)[0], None)
        assert landed_wh(ingestor.landing) == [energy_wh]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(-3000, 3000)), min_size=1, max_size=20))
def test_the_largest_of_repeated_readings_is_the_same_by_lines_columns_and_parquet(tmp_path_factory, sent):
    """A meter that feeds in may report twice: -30 and -20 are -20, whatever reads them."""
    lines = b"\n".join(line(meter=str(meter), interval_start=OPEN_S, energy_wh=wh) for meter, wh in sent)
    rows = b"".join(b"\n%d,%d,%d" % (meter, OPEN_S, wh) for meter, wh in sent)
    start = pa.array([OPEN_S] * len(sent), pa.timestamp("s", "UTC"))
    columns = {"meter": [meter for meter, _ in sent], "interval_start": start, "energy_wh": [wh for _, wh in sent]}
    largest = {meter: max(wh for other, wh in sent if other == meter) for meter, _ in sent}
    for read, body in (
        (parse_json_lines, lines),
        (parse_json_lines_strictly, lines),
        (parse_csv, b"meter_id,interval_start,energy_wh" + rows),
        (parse_csv_strictly, b"meter_id,interval_start,energy_wh" + rows),
        (parse_parquet, parquet(pa.table(columns))),
    ):
        ingestor = new_ingestor(tmp_path_factory.mktemp("ingestor"))
        ingestor.ingest_batch(read(body, interval_s=INTERVAL_S)[0], None)
        landed = [
            (int(meter), int(wh))
            for part in landed_readings(ingestor.landing)
            for meter, wh in zip(part.meter, part.energy_wh, strict=True)
        ]
        assert {meter: max(wh for other, wh in landed if other == meter) for meter, _ in landed} == largest


@given(st.fractions(), st.integers(-12, 12), st.integers(0, 40))
def test_a_number_is_rounded_down_exactly_and_kept_within_64_bits(number, power, digits):
    text = f"{floor(number * 10**digits)}e-{digits}"
    exact = floor(Fraction(text) * Fraction(10) ** power)
    assert floor_to_wh("value", parse_numeral(text), power) == min(max(exact, -(2**63)), 2**63 - 1)


@given(st.integers(-(10**40), 10**40), st.integers(-12, 12))
def test_a_whole_number_is_taken_as_the_same_number_in_text(value, power):
    assert floor_to_wh("value", value, power) == floor_to_wh("value", parse_numeral(str(value)), power)


@pytest.mark.parametrize("value", [None, True, "5", "", 5.0, [5], float("nan")])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ReadingError, match="energy_wh is no number: must be a number"):
        floor_to_wh("energy_wh", value)


@pytest.mark.parametrize(
    "sent", ["1e999999999", "-1e999999999999999999999", f"{'9' * 3000}e-99999999999", "1e-99999999"]
)
def test_a_huge_exponent_is_never_written_out(sent):
    tracemalloc.start()
    try:
        for read, body in (
            (parse_json_lines, as_json(sent)),
            (parse_csv, as_csv(sent)),
            (parse_green_button, as_feed(sent, 12)),
        ):
            assert len(read(body, interval_s=INTERVAL_S)[0]) >= 1
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_digits_that_end_in_no_number_are_refused_quickly():
    """The bound catches what is quadratic."""
    texts = ("1" * 4000 + "x", "1" * 2000 + "." + "1" * 2000 + "x", "." + "1" * 4000 + "e")
    assert work_of(lambda: [parse_numeral(text) for text in texts for _ in range(100)]) < 75
    assert [parse_numeral(text) for text in texts] == [None] * 3


def test_where_semicolons_separate_a_comma_is_the_decimal_sign():
    body = b"meter;interval_start;energy_wh\na;%d;12,5\na;%d;12.5\na;%d;-,5" % ((START_S,) * 3)
    batch, refused = parse_csv(body, interval_s=INTERVAL_S)
    assert (batch.energy_wh.tolist(), refused) == ([12, 12, -1], {})
