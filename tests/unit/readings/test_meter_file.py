"""One reader of the meter table: what a plan counts is what the service counts."""

import csv
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmurate.errors import MeterError, MissingExtraError
from murmurate.operations.plan_files import read_meter_summary
from murmurate.planning.household_bounds import MeterSummary, round_household_count
from murmurate.service.landing.meter_table import read_households_by_zone

houses = st.tuples(
    st.sampled_from("ab"), st.sampled_from(["flat", "shop"]), st.lists(st.integers(1, 10**9), min_size=1)
)
VARIANTS = ("t.csv", "t.txt", "t.parquet", "folder")


def write_table(folder, variant, rows):
    """Write one table in one of the forms that an operator has."""
    path = folder / variant
    if variant == "folder":
        path.mkdir()
        for at, row in enumerate(rows):
            write_table(path, f"{at}.csv", [row])
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    if variant == "t.parquet":
        pq.write_table(pv.read_csv(path), path)  # its households are whole numbers, one of them 0
    return path


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(houses, min_size=1, max_size=6), st.sampled_from(VARIANTS), st.booleans())
def test_a_plan_counts_the_households_that_the_service_counts(homes, variant, has_kinds):
    rows = [
        {"zone": zone, "household": home, "bound_wh": bound_wh} | ({"kind": kind} if has_kinds else {})
        for home, (zone, kind, bounds) in enumerate(homes)
        for bound_wh in bounds
    ]
    rows = [{"meter": meter, "other": "x"} | row for meter, row in enumerate(rows)]
    with tempfile.TemporaryDirectory() as name:
        path = write_table(Path(name), variant, rows)
        for zone, found in read_households_by_zone(path).items():
            for kind, bound_wh in found.bounds.items():
                number = sum(1 for home in homes if home[0] == zone and kind in ("", home[1]))
                expected = MeterSummary(round_household_count(number), bound_wh, is_of_kind=has_kinds)
                assert read_meter_summary(path, zone, kind or "flat") == expected
            assert found.number == sum(1 for home in homes if home[0] == zone)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zone\na\n", "without bound_wh: must have the columns bound_wh, separated by commas"),
        ("bound_wh,zone\n1.5,a\n", "bound_wh is double: must be whole numbers throughout"),
        (f"bound_wh,zone\n{10**20},a\n", "bound_wh is double: must be whole numbers throughout"),
        ("bound_wh,zone\n0,a\n", "must be at least 1 Wh"),
        ("bound_wh,zone\n7,a\n77\n", r"t\.csv is unreadable: must be .* as many cells in each row .* got 1$"),
        ("bound_wh,zone\n", "empty: must have a row for each meter"),
    ],
)
def test_a_plan_refuses_a_table_in_the_words_of_the_service(text, says, tmp_path):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(MeterError, match=says):
        read_meter_summary(tmp_path / "t.csv", "a", "flat")


def test_a_plan_from_a_meter_table_without_arrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("murmurate.extras.find_spec", lambda name: None if name == "pyarrow" else True)
    with pytest.raises(MissingExtraError, match=r'^pyarrow is not installed: run pip install .*\[service\]"$'):
        read_meter_summary(tmp_path / "t.csv", "a", "flat")


def test_names_of_meters_are_not_read_for_a_plan(tmp_path):
    """The service numbers meters; a plan counts households."""
    pq.write_table(pa.table({"meter": ["m0", "m1"], "bound_wh": [300, 500]}), tmp_path / "t.parquet")
    assert read_meter_summary(tmp_path / "t.parquet", "a", "flat") == MeterSummary(5, 500, is_of_kind=False)
    with pytest.raises(MeterError, match="without zone"):
        read_households_by_zone(tmp_path / "t.parquet")
