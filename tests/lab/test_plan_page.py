"""`murmurate plan` as a person runs it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from murmurate.curator.planfile import load_plan
from murmurate.curator.zonefile import EXAMPLE

COMMAND = Path(sys.executable).with_name("murmurate")


def run(*arguments, cwd):
    return subprocess.run([COMMAND, "plan", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def write_sample(path, correlation, intervals=240, homes=8):
    """A sample with occupancy whose ranks remember by `correlation`."""
    rng = np.random.default_rng(5)
    z = np.zeros((intervals, homes))
    for t in range(1, intervals):
        z[t] = correlation * z[t - 1] + np.sqrt(1 - correlation**2) * rng.standard_normal(homes)
    home = rng.random((intervals, homes)) < 0.5
    energy = np.rint(np.exp(z) * np.where(home, 200, 80)).astype(int)
    rows = [f"{t},{i},{energy[t, i]},{int(home[t, i])}" for t in range(intervals) for i in range(homes)]
    path.write_text("\n".join(["interval,household,energy_wh,occupied", *rows]) + "\n", encoding="utf-8")


def test_the_page_says_what_an_operator_must_know_and_the_file_proves_it(tmp_path):
    example = run("--example", cwd=tmp_path)
    assert example.stdout == EXAMPLE
    (tmp_path / "zone.toml").write_text(example.stdout, encoding="utf-8")
    done = run("zone.toml", "--out", "harbour.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in (
        "Plan for harbour: 801 households",
        "any 24 h: epsilon 1, delta 1e-06",
        "an attacker's AUC is at most",
        "forecast only, no data",
        "profile 10 % too low",
        "Mispricing costs the zone",
        "One household's year",
        "Stands on:",
        "Does not cover:",
        "the operator, who sees every reading",
    ):
        assert words in done.stdout, words
    assert load_plan((tmp_path / "harbour.json").read_text(encoding="utf-8")).zone.name == "harbour"


def test_a_sample_tests_memory_and_finds_the_bound_with_the_least_error(tmp_path):
    (tmp_path / "zone.toml").write_text(EXAMPLE.replace('"range"', '"exact"'), encoding="utf-8")
    refused = run("zone.toml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "consumption is untested: exact needs a passed independence test" in refused.stderr
    write_sample(tmp_path / "free.csv", correlation=0.0)
    done = run("zone.toml", "--readings", "free.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Sample: no memory found" in done.stdout
    assert "The bound with the least error for readings like these:" in done.stdout
    write_sample(tmp_path / "bound.csv", correlation=0.9)
    done = run("zone.toml", "--readings", "bound.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "consumption is correlated over time" in done.stderr


@pytest.mark.parametrize(("which", "said"), [(0, "count = 800\nbound_wh = 1000"), (1, "count = 1\nbound_wh = 20000")])
def test_meters_are_counted_from_a_file(which, said, tmp_path):
    (tmp_path / "these.csv").write_text("meter_id,bound_wh\na,20900\nb,20700\n", encoding="utf-8")
    (tmp_path / "zone.toml").write_text(EXAMPLE.replace(said, 'meters = "these.csv"'), encoding="utf-8")
    done = run("zone.toml", cwd=tmp_path)
    assert f"{3 if which == 0 else 802} households" in done.stdout
    again = load_plan((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert (again.zone.kinds[which].count, again.zone.kinds[which].bound_wh) == (2, 20900)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "murmurate: a zone file is needed; murmurate plan --example > zone.toml writes one to begin with"),
        (["nowhere.toml"], "murmurate: No such file or directory: nowhere.toml"),
        (["wrong.toml"], "murmurate: wrong.toml:4: promise is 'any moment 1': must read like"),
        (["right.toml", "--readings", "wrong.toml"], "murmurate: wrong.toml is with columns"),
        (["right.toml", "--readings", "half.csv"], "murmurate: half.csv:2 is not readable: must be whole numbers"),
        (["right.toml", "--readings", "twice.csv"], "murmurate: twice.csv is 2 rows: must have one row for each"),
        (["right.toml", "--readings", "minus.csv"], "murmurate: minus.csv[0, 2] is -4: must be 0 or more"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(arguments, says, tmp_path):
    (tmp_path / "wrong.toml").write_text(EXAMPLE.replace("any moment: 1", "any moment 1"), encoding="utf-8")
    (tmp_path / "right.toml").write_text(EXAMPLE, encoding="utf-8")
    samples = {"half": ["0,0,2.5,1"], "twice": ["0,0,2,1", "0,0,3,1"], "minus": ["0,0,-4,1"]}
    for name, rows in samples.items():
        text = "\n".join(["interval,household,energy_wh,occupied", *rows])
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(says), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
