"""Which meters are one household: an import takes it from a column, or says that it cannot, and writes it down."""

import csv
import json

import pyarrow.parquet as pq
import pytest
from tests.support.reading_dialects import run_import, to_text
from typer.testing import CliRunner

from murmurate.cli import app
from murmurate.errors import ReadingError
from murmurate.readings.columns import ColumnNames

HOURS = range(4)
TWO_OF_A = (("m1", "A"), ("m2", "A"), ("m3", "B"))  # meters and their customers


def rows_of(header, meters=TWO_OF_A):
    """A row for each meter and hour: the columns of the meter, a time and an energy."""
    rows = [[*header, "timestamp", "kwh"]]
    return rows + [[*meter, f"2026-01-05T0{hour}:00:00Z", "0.2"] for meter in meters for hour in HOURS]


def import_rows(folder, rows, **names):
    return run_import(folder, to_text(rows), minutes=60, time_zone=None, names=ColumnNames(**names))[1]


def table_of(folder):
    with (folder / "out" / "meters.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def households_of(folder):
    return {row["id"]: row["household"] for row in table_of(folder)}


@pytest.mark.parametrize(
    "name",
    ["customer", "Customer ID", "account", "household", "Kunde", "Kundennummer", "Vertragskonto", "Anschlussnutzer"],
)
def test_a_column_of_the_customer_beside_the_meter_is_the_household(name, tmp_path):
    summary = import_rows(tmp_path, rows_of(["meter", name]))
    assert households_of(tmp_path) == dict(TWO_OF_A)
    assert (summary.to_document()["households"], summary.to_document()["household_column"]) == (2, name)
    (warning,) = summary.warnings
    assert warning.startswith(
        "The largest household has 2 meters: its bound of 2 × 1000 Wh sets the noise of its zone."
    )


def test_a_column_that_is_named_is_the_household(tmp_path):
    summary = import_rows(tmp_path, rows_of(["meter", "owner"]), household="owner")
    assert households_of(tmp_path) == dict(TWO_OF_A)
    assert summary.to_document()["households"] == 2


@pytest.mark.parametrize("name", ["household", "customer", "household_id", "home"])
def test_a_household_column_alone_is_the_meter_too(name, tmp_path):
    summary = import_rows(tmp_path, rows_of([name], [("A",), ("B",)]))
    assert households_of(tmp_path) == {"A": "A", "B": "B"}
    assert summary.warnings == []


def test_a_number_of_the_row_is_no_meter_where_a_household_is_named(tmp_path):
    rows = rows_of(["id", "household"], [("1", "A"), ("2", "B")])
    import_rows(tmp_path, [rows[0], *([str(at), *row[1:]] for at, row in enumerate(rows[1:]))])
    assert households_of(tmp_path) == {"A": "A", "B": "B"}


def test_meters_taken_for_households_are_said_with_the_column_that_may_name_them(tmp_path):
    header = ["meter", "owner", "tariff", "note"]
    meters = [("m1", "A", "day"), ("m2", "A", "day"), ("m3", "B", "night"), ("m4", "C", "night")]
    rows = rows_of(header, [(*meter, "x") for meter in meters])
    for number, row in enumerate(rows[1:]):
        row[3] = str(number)  # differs within a meter
    summary = import_rows(tmp_path, rows)
    assert "household" not in table_of(tmp_path)[0]
    alone, candidate = summary.warnings
    assert alone.startswith("Each meter is taken for a household of its own")
    assert "--household-column" in alone
    assert "column owner has 3 values for 4 meters" in candidate
    assert "--household-column owner" in candidate
    assert summary.to_document()["household_column"] is None


def test_no_column_is_named_where_none_can_be_the_household(tmp_path):
    rows = rows_of(["meter", "unit", "serial"], [("m1", "kWh", "1"), ("m2", "kWh", "2")])
    (alone,) = import_rows(tmp_path, rows).warnings
    assert alone.startswith("Each meter is taken")


def test_the_meter_column_as_household_says_that_each_meter_is_one(tmp_path):
    summary = import_rows(tmp_path, rows_of(["meter", "customer"]), household="meter")
    assert households_of(tmp_path) == {"m1": "m1", "m2": "m2", "m3": "m3"}
    assert summary.warnings == []


@pytest.mark.parametrize("names", [{}, {"household": "customer"}])
def test_a_meter_whose_household_changes_is_refused(names, tmp_path):
    rows = rows_of(["meter", "customer"])
    rows[3][1] = "Z"
    with pytest.raises(ReadingError, match=r"file-0.csv:4, customer is of another household than before, for meter m1"):
        import_rows(tmp_path, rows, **names)


def test_an_empty_household_is_refused(tmp_path):
    with pytest.raises(ReadingError, match="household of meter m2 is empty"):
        import_rows(tmp_path, rows_of(["meter", "customer"], [("m1", "A"), ("m2", "")]))


def test_a_file_without_the_household_of_the_others_is_refused(tmp_path):
    with_it, without = rows_of(["meter", "customer"]), rows_of(["meter"], [("m9",)])
    with pytest.raises(ReadingError, match=r"household of meter m9 is not in the files"):
        run_import(tmp_path, to_text(with_it), to_text(without), minutes=60, time_zone=None)


@pytest.mark.parametrize(("column", "values"), [("zone", "ab"), ("kind", ("flat", "shop"))])
def test_a_household_in_two_zones_or_kinds_is_refused(column, values, tmp_path):
    rows = rows_of(["meter", "customer", column], [("m1", "A", values[0]), ("m2", "A", values[1])])
    with pytest.raises(ReadingError, match=rf"household 'A' is in several {column}s"):
        import_rows(tmp_path, rows, **{column: column})


def test_readings_say_the_household_of_each_meter(tmp_path):
    import_rows(tmp_path, rows_of(["meter", "customer"]))
    table = pq.read_table(tmp_path / "out" / "readings.parquet")
    assert set(zip(table["meter_id"].to_pylist(), table["household"].to_pylist(), strict=True)) == set(TWO_OF_A)


def test_columns_of_zone_and_kind_are_taken_where_they_are_named(tmp_path):
    meters = [("m1", "A", "a", "flat"), ("m2", "A", "a", "flat"), ("m3", "B", "a", "shop"), ("m0", "C", "b", "flat")]
    rows = rows_of(["meter", "customer", "zone", "kind"], meters)
    import_rows(tmp_path, rows, zone="zone", kind="kind")
    found = [(row["meter"], row["id"], row["household"], row["zone"], row["kind"]) for row in table_of(tmp_path)]
    assert found == [(str(at), *meter) for at, meter in enumerate(meters)]  # numbered zone by zone
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["a.toml", "b.toml", "meters.csv", "readings.parquet"]
    zone_a = (tmp_path / "out" / "a.toml").read_text(encoding="utf-8")
    assert [line for line in zone_a.splitlines() if line.startswith("name = ")] == [
        'name = "a"', 'name = "flat"', 'name = "shop"',
    ]  # fmt: skip


def test_the_rate_of_the_zone_file_does_not_tell_the_number_of_households(tmp_path):
    def alpha(homes):
        import_rows(tmp_path, rows_of(["household"], [(f"h{home}",) for home in range(homes)]))
        text = (tmp_path / "out" / "zone.toml").read_text(encoding="utf-8")
        return next(line for line in text.splitlines() if line.startswith("alpha"))

    assert alpha(8) == alpha(11) == 'alpha = "0.016000"'


def test_the_command_says_loudly_that_meters_are_taken_for_households(tmp_path):
    path = tmp_path / "readings.csv"
    path.write_bytes(to_text(rows_of(["meter", "owner"])))
    arguments = ["readings", "import", str(path), "--interval-minutes", "60", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, arguments).output
    assert "Warning: Each meter is taken for a household of its own" in shown
    assert "from 3 meters of 3 households" in shown
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (found["households"], len(found["warnings"])) == (3, 2)
    arguments += ["--household-column", "owner"]
    assert "from 3 meters of 2 households (column owner)" in CliRunner().invoke(app, arguments).output
