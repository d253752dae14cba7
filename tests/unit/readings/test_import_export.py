"""Export of a meter: it is subtracted from import of the same interval, in every dialect, and nothing is guessed."""

from __future__ import annotations

import csv
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.green_button_feeds import DELTA, Meter, entries, feed, one
from tests.support.reading_dialects import day_rows, import_paths, run_import, time_rows, to_text, utc, write_imported
from typer.testing import CliRunner

from murmurate.cli import app
from murmurate.errors import ReadingError
from murmurate.readings import cell_values as why
from murmurate.readings.cell_values import EnergyUnit, parse_energy
from murmurate.readings.columns import ColumnNames, find_columns
from murmurate.readings.green_button import parse_green_button
from murmurate.readings.import_run import ImportSummary, RefusedCells
from murmurate.readings.imported_file import read_past_readings, read_sample

START = utc("2025-06-20T22:00")
HALVES = [START + 1800 * n for n in range(48)]
KEYS = [(meter, at) for meter in "AB" for at in HALVES]
energies = st.lists(st.integers(0, 9999), min_size=len(KEYS), max_size=len(KEYS)).map(
    lambda wh: dict(zip(KEYS, wh, strict=True))
)


def net_of(imported, exported):
    return {key: imported[key] - exported[key] for key in imported.keys() & exported.keys()}


def two_columns(imported, exported):
    yield ["meter", "timestamp", "export_kWh", "import_kWh"]
    for (meter, at), wh in sorted(imported.items()):
        yield [meter, at, f"{exported[meter, at] / 1000:.3f}", f"{wh / 1000:.3f}"]


@settings(max_examples=10, deadline=None)
@given(energies, energies, st.booleans(), st.sampled_from([15, 30, 60]))
def test_net_is_import_minus_export_in_every_dialect_and_in_any_order(imported, exported, export_first, minutes):
    """And it is the import of the net readings themselves: net of two columns = difference of nets."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.csv").write_bytes(to_text(time_rows(imported, time="zulu")))
        (folder / "out.csv").write_bytes(to_text(day_rows(exported, by_clock=True)))
        (folder / "net.csv").write_bytes(to_text(time_rows(net_of(imported, exported), time="unix")))
        (folder / "both.csv").write_bytes(to_text(two_columns(imported, exported)))
        meters = [
            Meter(meter, [(at, 1800, wh[meter, at]) for at in HALVES], kind)
            for meter in "AB" for wh, kind in ((imported, "07"), (exported, "08"))
        ]  # fmt: skip
        parts = list(entries(meters, {"07": DELTA, "08": DELTA | {"flowDirection": 19}}))
        parts = [part.replace("MeterReading/01", f"MeterReading/{n // 3}") for n, part in enumerate(parts)]
        (folder / "feed.xml").write_bytes(feed(dict.fromkeys(parts)))
        paths = [folder / "in.csv", folder / "out.csv"]
        expected, _ = import_paths([folder / "net.csv"], folder, minutes=minutes)
        for files, options in (
            (paths[::-1] if export_first else paths, {"export_files": (folder / "out.csv",)}),
            ([folder / "both.csv"], {}),
            ([folder / "feed.xml"], {}),
        ):
            found, summary = import_paths(files, folder, minutes=minutes, **options)
            assert (found, summary.refused.total) == (expected, 0)


@given(st.decimals(-(10**6), 10**6, allow_nan=False), st.sampled_from([1, 1000]))
def test_a_reading_below_zero_is_as_large_as_one_above(energy, unit):
    assert parse_energy(str(-energy), unit, "here") == -parse_energy(str(energy), unit, "here")


def rows(*cells):
    return "meter,timestamp,import_kwh,export_kwh\n" + "".join(
        f"{meter},{START + 1800 * n},{imported},{exported}\n" for meter, n, imported, exported in cells
    )


def test_of_a_meter_with_both_an_interval_with_one_of_the_two_has_no_reading(tmp_path):
    text = rows(("A", 0, "0.3", "0.5"), ("A", 1, "0.3", ""), ("A", 2, "", "0.5"), ("B", 0, "0.1", ""), ("B", 1, "0", "")
    )  # fmt: skip
    found, summary = run_import(tmp_path, text.encode())
    assert found == {("A", START): -200, ("B", START): 100, ("B", START + 1800): 0}  # B has no export at all
    assert summary.refused.counts == {why.MISSING: 4, why.ONE_DIRECTION: 2}
    assert summary.refused.places[why.ONE_DIRECTION] == ["file-0.csv:3, import_kwh", "file-0.csv:4, export_kwh"]


def test_export_below_zero_is_refused_because_it_would_be_added(tmp_path):
    found, summary = run_import(tmp_path, rows(("A", 0, "0.3", "-0.5"), ("A", 1, "0.3", "0.1")).encode())
    assert found == {("A", START + 1800): 200}
    assert summary.refused.counts == {why.NEGATIVE_EXPORT: 1, why.ONE_DIRECTION: 1}


def test_of_a_meter_with_export_alone_the_import_is_asked_for(tmp_path):
    found, summary = run_import(tmp_path, rows(("A", 0, "", "0.5"), ("A", 1, "", "0.2")).encode())
    assert found == {("A", START): -500, ("A", START + 1800): -200}
    assert any("export and no import of 1 meters" in warning for warning in summary.warnings)


@pytest.mark.parametrize(
    ("header", "energy", "export", "unused"),
    [
        ("meter,time,kWh", "kWh", None, ""),
        ("meter,time,kWh,exported_at", "kWh", None, ""),
        ("meter,time,Einspeisung (kWh),Bezug (kWh)", "Bezug (kWh)", "Einspeisung (kWh)", ""),
        ("meter,time,1-1:1.29.0 kWh,1-1:2.29.0 kWh", "1-1:1.29.0 kWh", "1-1:2.29.0 kWh", ""),
        ("meter,time,1.8.0 Wh,2.8.0 Wh", "1.8.0 Wh", "2.8.0 Wh", ""),
        ("meter,time,feed-in kWh,consumption kWh", "consumption kWh", "feed-in kWh", ""),
        ("meter,time,import,export", "import", "export", ""),
        ("meter,time,export_kwh", None, "export_kwh", ""),
        ("meter,time,import_kwh,export_kwh,net_kwh", "net_kwh", None, "export_kwh"),
    ],
)
def test_columns_of_export_are_known_by_their_names(header, energy, export, unused):
    names = header.split(",")
    found = find_columns(names, "here", ColumnNames())
    assert [None if at is None else names[at] for at in (found.energy, found.export)] == [energy, export]
    assert found.unused_export == unused


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("meter,time,import_kwh,export_t1_kwh,export_t2_kwh", "--export-column"),
        ("meter,time,solar_kwh,export_kwh", "--energy-column"),
        ("meter,time,house_kwh,car_kwh,export_kwh", "--energy-column"),
        ("meter,time,import_kwh,export_wh", "must have one unit"),
    ],
)
def test_where_it_is_not_clear_what_is_subtracted_the_columns_must_be_named(header, message):
    with pytest.raises(ReadingError, match=message):
        find_columns(header.split(","), "here", ColumnNames())


def test_a_named_column_of_energy_is_taken_alone_and_the_summary_says_so(tmp_path):
    names = ColumnNames(energy="import_kwh")
    found, summary = run_import(tmp_path, rows(("A", 0, "1", "3"), ("A", 1, "1", "3")).encode(), names=names)
    assert set(found.values()) == {1000}
    assert summary.files[0]["unused_export"] == "export_kwh"
    named = replace(names, export="export_kwh")
    found, summary = run_import(tmp_path, rows(("A", 0, "1", "3"), ("A", 1, "1", "3")).encode(), names=named)
    assert set(found.values()) == {-2000}
    assert summary.files[0]["subtracted"] == "the column export_kwh"


@pytest.mark.parametrize("content", [rows(("A", 0, "1", "3")).encode(), one((0, 900, 5))])
def test_a_file_that_tells_its_directions_is_no_file_of_export(tmp_path, content):
    with pytest.raises(ReadingError, match="without --export-file"):
        run_import(tmp_path, content, export_files=(tmp_path / "file-0.csv",))


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=300))
def test_the_bound_that_is_named_covers_all_but_a_thousandth(fed_in):
    summary = ImportSummary(RefusedCells())
    for wh in fed_in:
        summary.feed_in[-(-wh // 10) * 10] += 1
    summary.below_zero = len(fed_in)
    bound_wh = summary.full_export_bound_wh
    assert 1000 * sum(wh <= bound_wh for wh in fed_in) >= 999 * len(fed_in)
    assert 1000 * sum(wh <= bound_wh - 10 for wh in fed_in) < 999 * len(fed_in)


def run_command(tmp_path, *words):
    path = tmp_path / "pv.csv"
    path.write_text(rows(*(("A", n, "0.1", "0.75") for n in range(40)), *(("B", n, "0.2", "") for n in range(40))))
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["readings", "import", str(path), "--out", str(out), *words])
    assert result.exit_code == 0, result.output
    with (out / "meters.csv").open() as file:
        return " ".join(result.output.split()), list(csv.DictReader(file))


def test_without_a_bound_of_export_the_summary_says_what_feed_in_counts_as(tmp_path):
    text, table = run_command(tmp_path, "--interval-minutes", "30")
    assert "the column export_kwh is export: it is subtracted" in text
    assert "40 readings (50 %) of 1 meters are below zero" in text
    assert "they count as zero while meters.csv has no export_bound_wh" in text
    assert "99.9 % of them count in full if you import again with --export-bound-wh 650" in text
    assert "10 kW feeds in up to 5,000 Wh in 30 minutes" in text
    assert all("export_bound_wh" not in row for row in table)


def test_with_a_bound_of_export_the_meter_table_has_it(tmp_path):
    text, table = run_command(tmp_path, "--interval-minutes", "30", "--export-bound-wh", "600")
    assert "40 readings of 1 meters are below zero" in text
    assert "100 % of them feed in more than --export-bound-wh 600" in text
    assert "count as zero" not in text
    assert [row["export_bound_wh"] for row in table] == ["600", "600"]


def test_a_file_without_feed_in_says_nothing_of_it(tmp_path):
    readings = {("A", at): 100 for at in HALVES}
    _, summary = run_import(tmp_path, to_text(time_rows(readings, time="zulu")), unit=EnergyUnit.KWH)
    assert (summary.below_zero, summary.feeding_meters, summary.full_export_bound_wh) == (0, 0, 0)
    assert not any("below zero" in warning for warning in summary.warnings)


def received(meter, readings):
    """Entries of a second meter reading of a usage point, of received energy."""
    parts = entries([Meter(meter, readings, "08")], {"08": DELTA | {"flowDirection": 19}})
    return [part.replace("MeterReading/01", "MeterReading/02") for part in parts if "<UsagePoint>" not in part]


@given(
    st.dictionaries(st.integers(0, 5), st.integers(-(2**62), 2**62), max_size=6),
    st.dictionaries(st.integers(0, 5), st.integers(-(2**62), 2**62), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_service_takes_delivered_minus_received_and_refuses_one_alone(delivered, exported, random):
    parts = list(entries([Meter("1", [(900 * n, 900, wh) for n, wh in delivered.items()])], {"07": DELTA}))
    parts += received("1", [(900 * n, 900, wh) for n, wh in exported.items()])
    random.shuffle(parts)
    batch, refused = parse_green_button(feed(parts), interval_s=900)
    most = 2**53 - 1
    net = {900 * n: min(max(delivered[n] - exported[n], -most), most) for n in delivered.keys() & exported.keys()}
    assert dict(zip(batch.start_s.tolist(), batch.energy_wh.tolist(), strict=True)) == net
    assert len(refused) == len(delivered.keys() ^ exported.keys())
    assert all("delivered or received alone" in reason for reason in refused.values())


def test_past_readings_below_zero_count_as_zero_and_are_told_and_a_sample_keeps_them(tmp_path):
    """Of each meter, before the meters of a household are added up; occupancy is not touched."""
    energy_wh = np.full((24, 2), 7.0)
    energy_wh[5] = (-300, 7)
    path = write_imported(
        tmp_path / "r.parquet", energy_wh, start_s=0, interval_s=3600, household=["H", "H"], occupied=np.ones((24, 2))
    )
    expected = [[14]] * 5 + [[7]] + [[14]] * 18
    past, sample = read_past_readings(path, 3600, "town"), read_sample(path, 3600)
    assert (past.energy_wh.tolist(), past.below_zero) == (expected, 1)
    assert sample.energy_wh.tolist() == [[14]] * 5 + [[-293]] + [[14]] * 18
    assert sample.occupied.all()
