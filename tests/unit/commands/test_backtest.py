"""`murmurate backtest` as it is typed: what it prints and writes, and who may read it."""

import csv
import json

import numpy as np
import pytest
from tests.support.predicted_zones import plan_text
from tests.support.reading_dialects import write_imported
from typer.testing import CliRunner

from murmurate.cli import app
from murmurate.errors import PrivacyError, ReadingError

HOMES, HOURS = 40, 72


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plan for 39 flats and a market, and three days of readings of 40 homes."""
    made = tmp_path_factory.mktemp("backtest")
    (made / "plan.json").write_text(plan_text(households=HOMES - 1), encoding="utf-8")
    energy_wh = np.random.default_rng(1).integers(100, 900, (HOURS, HOMES))
    names = [f"H{n}" for n in range(HOMES)]
    path, place = made / "readings.parquet", {"start_s": 490_000 * 3600, "interval_s": 3600}
    write_imported(path, energy_wh.astype(float), household=names, zone=["harbour"] * HOMES, **place)
    return made


def backtest(folder, *arguments):
    command = ["backtest", folder / "plan.json", "--readings", folder / "readings.parquet", "--draws", 3, *arguments]
    return CliRunner().invoke(app, [str(part) for part in command])


@pytest.fixture(scope="module")
def done(folder):
    """The command, with a file of bills over one that everybody may read."""
    (folder / "homes.csv").write_text("old", encoding="utf-8")
    (folder / "homes.csv").chmod(0o644)
    return backtest(folder, "--out", folder / "out", "--json", "--households", folder / "homes.csv")


@pytest.mark.slow
def test_findings_page_and_results_are_written_and_no_home_is_named(folder, done):
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed == json.loads((folder / "out" / "results.json").read_text(encoding="utf-8"))
    assert (printed["households"], printed["lead"], printed["draws"]) == (HOMES, 2, 3)
    totals = [sum(month["bills"][rate] for month in printed["months"]) for rate in printed["months"][0]["bills"]]
    assert totals == pytest.approx([printed["revenue"] / HOMES] * 4)
    page = (folder / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("<img") == 1
    assert all(said in page for said in ("Each rate collects the same", "What this does not show", "2025-11"))
    assert "H17" not in page + json.dumps(printed)
    assert "http" not in page  # nothing is loaded from elsewhere


@pytest.mark.slow
def test_a_demand_that_is_scaled_is_said(folder, tmp_path):
    (tmp_path / "plan.json").write_text(plan_text(households=49), encoding="utf-8")
    (tmp_path / "readings.parquet").symlink_to(folder / "readings.parquet")
    done = backtest(tmp_path, "--out", tmp_path / "out")
    assert (
        "The demand is multiplied by 1.250: the plan is made for 50 households, and these are readings of 40"
        in " ".join(done.output.split())
    )
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert (results["plan_households"], results["demand_times"]) == (50, 1.25)


def test_bills_of_each_home_are_written_if_asked_for_and_only_the_owner_may_read_them(folder, done):
    assert "personal data" in done.stderr
    asked = folder / "homes.csv"
    assert asked.stat().st_mode & 0o777 == 0o600
    with asked.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["household"] for row in rows] == [f"H{n}" for n in range(HOMES)]
    flat, private = (sum(float(row[f"{rate}_eur"]) for row in rows) for rate in ("flat", "private"))
    assert flat == pytest.approx(private, abs=0.01)
    assert all(float(row["noise_sd_eur"]) > 0 for row in rows)


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [('"count":39', '"count":38', PrivacyError, "the file was changed"), ("", "", ReadingError, "about as many")],
)
def test_a_plan_that_does_not_fit_is_refused(folder, tmp_path, old, new, error, said):
    text = plan_text(households=HOMES - 1) if old else plan_text()
    (tmp_path / "plan.json").write_text(text.replace(old, new) if old else text, encoding="utf-8")
    (tmp_path / "readings.parquet").symlink_to(folder / "readings.parquet")
    done = backtest(tmp_path, "--out", tmp_path / "out")
    assert isinstance(done.exception, error)
    assert said in str(done.exception)
