"""What a meter table says about meters that feed in and about meters that are silent, down to the demand."""

import json

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from tests.support.sample_landings import (
    ROWS,
    SHARD_METERS,
    START_S,
    STEP_S,
    Row,
    close_and_aggregate,
    file_of,
    folder_of,
    leave,
)

from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import CONSTANT, SHARE, ZERO, load_table, pin_table

pytestmark = pytest.mark.usefixtures("quick_disk")

HEAD = "meter,zone,bound_wh"


@pytest.fixture
def landing(tmp_path):
    made = Landing.create(tmp_path / "landing", shard_meters=SHARD_METERS)
    leave(made, START_S, ROWS)
    return made


@pytest.mark.parametrize("form", ["csv", "parquet", "folder"])
def test_meters_that_feed_in_count_below_zero_and_widen_the_range_of_their_household(tmp_path, form):
    landing = Landing.create(tmp_path / "landing", shard_meters=2)
    rows = pa.table(
        {
            "meter": [0, 1, 2, 3],
            "zone": ["hill"] * 3 + ["mill"],
            "bound_wh": [500, 100, 900, 50],
            "export_bound_wh": [700, 0, 0, 60],
            "imputed_wh": [-700, 5, 6, -60],
            "household": ["a", "a", "b", "c"],
        }
    )
    source = tmp_path / "meters"
    if form == "csv":
        pa_csv.write_csv(rows, source := tmp_path / "meters.csv")
    elif form == "parquet":
        pq.write_table(rows, source := tmp_path / "meters.parquet")
    else:
        source.mkdir()
        pq.write_table(rows.slice(0, 1), source / "a.parquet")
        pa_csv.write_csv(rows.slice(1), source / "b.csv")
    table = pin_table(landing, source)
    assert table.bounds == ({"": 1300}, {"": 110})
    leave(landing, START_S, [Row(0, -900), Row(1, -4), Row(3, -59)])
    leave(landing, START_S, [Row(0, -800), Row(3, -70)], "later")
    demand = close_and_aggregate(landing, table)[START_S]
    assert demand.energy_wh.tolist() == [-700 + 0 + 6, -59]
    assert demand.bounds == table.bounds


@pytest.mark.parametrize(
    ("column", "imputed", "silent", "counts"),
    [("", "", 900, SHARE), (",imputed_wh", ",0", 0, ZERO), (",imputed_wh", ",7", 0, CONSTANT)],
)
def test_a_table_without_constants_gives_the_bounds_of_silent_meters(
    landing, tmp_path, column, imputed, silent, counts
):
    source = tmp_path / "meters.csv"
    rows = [f"0,hill,500,40{imputed}", f"1,hill,900,30{imputed}", f"5,mill,60,0{imputed}"]
    source.write_text("\n".join([f"{HEAD},export_bound_wh{column}", *rows]) + "\n")
    table = pin_table(landing, source)
    assert table.silent_meters == counts
    leave(landing, START_S + STEP_S, [Row(0, -50, START_S + STEP_S), Row(5, 7, START_S + STEP_S)])
    demand = close_and_aggregate(landing, table, [START_S + STEP_S])[START_S + STEP_S]
    assert demand.imputed.tolist() == [1, 0]
    assert demand.energy_wh.tolist() == [-40 + (7 if counts == CONSTANT else 0), 7]
    assert demand.silent_bound_wh.tolist() == [silent, 0]
    assert demand.silent_export_bound_wh.tolist() == [30 if silent else 0, 0]


def test_a_table_that_an_earlier_version_has_pinned_with_zeros_is_pinned_again(landing, tmp_path):
    source = tmp_path / "meters.csv"
    source.write_text(f"{HEAD}\n0,hill,5\n")
    table = pin_table(landing, source)
    contents = json.loads((folder_of(table) / "table.json").read_bytes())
    del contents["silent_meters"]
    (folder_of(table) / "table.json").write_text(json.dumps(contents))
    load_table.cache_clear()
    assert load_table(table.store, table.version).silent_meters == ""
    assert pin_table(landing, source).silent_meters == SHARE


def test_a_table_without_feed_in_is_kept_as_it_was(landing, tmp_path):
    sources = [tmp_path / "without.csv", tmp_path / "zeros.csv"]
    sources[0].write_text(f"{HEAD}\n0,hill,5\n")
    sources[1].write_text(f"{HEAD},export_bound_wh\n0,hill,5,0\n")
    tables = [pin_table(landing, source) for source in sources]
    assert tables[0].digests == tables[1].digests
    assert "export_bound_wh" not in pq.read_schema(file_of(tables[0], 0)).names
