"""Households in the meter table: meters that belong together, kinds that stay, and the bounds that follow."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.sample_landings import Meter, bounds_by_hand, folder_of, in_households, meter_csv, meter_rows

from murmurate.errors import MeterError
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import load_table, pin_table
from murmurate.types import UNPROTECTED_KIND

pytestmark = pytest.mark.usefixtures("quick_disk")

HEAD = "meter,zone,bound_wh,household,kind"
SOME = st.builds(
    Meter,
    st.just(0),
    st.sampled_from(["hill", "harbour"]),
    st.integers(500, 3000),
    st.just(0),
    export_bound_wh=st.integers(0, 9),
)


@pytest.fixture
def landing(tmp_path):
    return Landing.create(tmp_path / "landing", shard_meters=3)


def pin_text(landing, *rows, head=HEAD):
    source = landing.root.parent / "meters.csv"
    source.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return pin_table(landing, source)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=50)
def test_the_bound_of_a_household_is_the_sum_of_its_meters_whatever_the_order_and_the_shards(tmp_path_factory, data):
    numbers = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True))
    meters = data.draw(in_households([data.draw(SOME)._replace(number=number) for number in numbers]))
    folder = tmp_path_factory.mktemp("any")
    pq.write_table(meter_rows(data.draw(st.permutations(meters))), folder / "meters.parquet")
    for shard_meters in (1, 4, 100):
        landing = Landing.create(folder / str(shard_meters), shard_meters=shard_meters)
        table = pin_table(landing, folder / "meters.parquet")
        expected = {zone: bounds_by_hand([m for m in meters if m.zone == zone]) for zone in table.zones}
        assert dict(zip(table.zones, table.bounds, strict=True)) == expected


def test_two_meters_of_one_household_count_with_both_bounds(landing):
    rows = ["0,hill,600,a,", "1,hill,500,a,", "2,hill,700,b,", "3,mill,9,c,mill", "9,mill,8,d,"]
    assert pin_text(landing, *rows).bounds == ({"": 1100}, {"mill": 9, "": 8})


def test_a_household_that_is_not_protected_counts_as_such_and_as_its_kind(landing):
    head = "meter,zone,bound_wh,protected,kind"
    table = pin_text(landing, "0,hill,600,false,", "1,hill,500,false,mill", "2,hill,400,true,", head=head)
    assert table.bounds == ({UNPROTECTED_KIND: 600, "mill": 500, "": 400},)


@pytest.mark.parametrize("kind", [pa.int16(), pa.int64(), pa.string(), pa.large_string()])
def test_a_household_is_text_or_a_whole_number(tmp_path, landing, kind):
    rows = meter_rows([Meter(n, "hill", 5) for n in range(3)])
    names = pa.array(["7", "8", "7"]).cast(kind)
    pq.write_table(rows.append_column("household", names), tmp_path / "meters.parquet")
    assert pin_table(landing, tmp_path / "meters.parquet").bounds == ({"": 10},)


def test_names_of_households_in_a_csv_are_text(landing):
    assert pin_text(landing, "0,hill,600,7,", "1,hill,500,07,", "2,hill,400,7,").bounds == ({"": 1000},)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["0,hill,5,a,", "1,mill,5,a,"], "household is 'a': must have one zone: its meters differ in zone"),
        (["0,hill,5,a,flat", "1,hill,5,a,"], "household is 'a': must have one kind: its meters differ in kind"),
        (["0,hill,5,a,flat", "1,hill,5,a,inn"], "household is 'a': must have one kind: its meters differ in kind"),
        (["0,hill,5,a,", "1,hill,5,,"], "household is empty here and there: must be text or whole numbers throughout"),
        (["0,hill,5,a,(public)"], "kind is (public): is not a name for a kind; set protected = false instead"),
    ],
)
def test_households_that_make_no_sense_are_refused_and_not_kept(landing, rows, says):
    with pytest.raises(MeterError) as refusal:
        pin_text(landing, *rows)
    assert says in str(refusal.value)
    assert not list(landing.root.glob("_meters/*"))


@pytest.mark.parametrize("column", [{"kind": pa.array([1, 2])}, {"household": pa.array([1.5, 2.5])}])
def test_columns_of_other_types_are_refused(tmp_path, landing, column):
    plain = {"meter": pa.array([0, 1]), "zone": pa.array(["hill", "hill"]), "bound_wh": pa.array([5, 5])}
    pq.write_table(pa.table(plain | column), tmp_path / "meters.parquet")
    with pytest.raises(MeterError, match="must be text"):
        pin_table(landing, tmp_path / "meters.parquet")


MUST_STAY = "must stay: a plan proves its promises for households that keep their kind and their protection"
CHANGES = {
    "another kind": (["4,hill,5,a,inn"], "kind of meter 4 is 'inn', was 'flat'"),
    "no kind any more": (["4,hill,5,a,"], "kind of meter 4 is '', was 'flat'"),
    "another meter's kind": (["3,hill,5,b,flat", "4,hill,5,a,inn"], "kind of meter 4 is 'inn', was 'flat'"),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("between", [None, "3,hill,5,b,inn", "4,hill,5,a,flat"])
def test_a_household_does_not_change_its_kind(landing, how, between):
    """Nor by way of a table that does not have it."""
    rows, says = CHANGES[how]
    pin_text(landing, "4,hill,5,a,flat", "5,hill,5,c,")
    if between and not (between.startswith("3") and how == "another meter's kind"):
        pin_text(landing, between, "6,hill,5,d,")
    kept = sorted(path.name for path in landing.root.glob("_meters/*"))
    with pytest.raises(MeterError) as refusal:
        pin_text(landing, *rows)
    assert str(refusal.value) == f"{says}: {MUST_STAY}"
    assert sorted(path.name for path in landing.root.glob("_meters/*")) == kept


def test_a_new_number_a_new_bound_and_a_kind_that_was_not_said_are_taken(landing):
    pin_text(landing, "4,hill,5,a,flat", "5,hill,5,c,")
    pin_text(landing, "5,hill,7,c,inn", "6,hill,5,a,inn")
    assert pin_text(landing, "4,mill,9,x,flat", "5,hill,8,y,inn").bounds == ({"inn": 8}, {"flat": 9})


@pytest.mark.parametrize(("before", "after"), [("true", "false"), ("false", "true")])
def test_a_household_does_not_change_whether_it_is_protected(landing, before, after):
    head = "meter,zone,bound_wh,protected"
    pin_text(landing, f"0,hill,5,{before}", "1,hill,5,true", head=head)
    with pytest.raises(MeterError) as refusal:
        pin_text(landing, f"0,hill,5,{after}", "1,hill,5,true", head=head)
    assert str(refusal.value) == f"protected of meter 0 is {after}, was {before}: {MUST_STAY}"


def test_a_table_that_was_pinned_without_bounds_is_not_known_until_it_is_pinned_again(tmp_path, landing):
    table = pin_table(landing, meter_csv(tmp_path / "meters.csv"))
    contents = json.loads((folder_of(table) / "table.json").read_bytes())
    del contents["bounds"]
    (folder_of(table) / "table.json").write_text(json.dumps(contents), encoding="utf-8")
    (table.store.root / table.names[-1]).unlink()
    load_table.cache_clear()
    assert load_table(table.store, table.version).bounds is None
    assert pin_table(landing, tmp_path / "meters.csv").bounds == table.bounds
