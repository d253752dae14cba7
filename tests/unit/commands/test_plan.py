"""`murmurate plan` as a person runs it."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.special import ndtr

from murmurate.commands.plan import print_plan
from murmurate.commands.zone_inputs import read_meter_summary
from murmurate.errors import MeterError, PrivacyError
from murmurate.lab.sample_file import LabeledSample, read_sample, with_tested_distributions
from murmurate.planning.plan import make_plan, prove_plan
from murmurate.planning.plan_file import load_plan
from murmurate.planning.plan_prediction import forecast_errors
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, MeterSummary, parse_zone
from murmurate.planning.zone_forecast import EXAMPLE_FORECAST

COMMAND = Path(sys.executable).with_name("murmurate")
BOTH = 'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
BRIEF = EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["interval: 0.5"]')  # soon planned
EXACT = BRIEF.replace('"range"', '"exact"')


def run(*arguments, cwd):
    return subprocess.run([COMMAND, "plan", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def write_sample(path, correlation=0.0, intervals=960, homes=8, seed=5, kind=None):
    """A sample of flats with occupancy, by the laws of the example, whose ranks remember by `correlation`."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((intervals, homes))
    for t in range(1, intervals):
        z[t] = correlation * z[t - 1] + np.sqrt(1 - correlation**2) * z[t]
    home = rng.random((intervals, homes)) < 0.5
    energy = np.floor(ndtr(z) * np.where(home, 601, 301)).astype(int)
    last = "" if kind is None else f",{kind}"
    rows = [f"{t},{i},{energy[t, i]},{int(home[t, i])}{last}" for t in range(intervals) for i in range(homes)]
    head = "interval,household,energy_wh,occupied" + ("" if kind is None else ",kind")
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


def test_the_page_says_what_an_operator_must_know_and_the_file_proves_it(tmp_path):
    example = run("--example", cwd=tmp_path)
    assert example.stdout == EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST
    page = Path(__file__).parents[3] / "docs" / "how-to" / "zone-file.md"
    assert f"```toml\n{example.stdout}```" in page.read_text(encoding="utf-8")
    (tmp_path / "zone.toml").write_text(example.stdout, encoding="utf-8")
    done = run("zone.toml", "--out", "harbour.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in (
        "Plan for harbour: 801 households",
        "any 24 h: epsilon 1, delta 1e-06",
        "an attacker's AUC is at most",
        "forecast only, no data",
        "Its error was not measured: deviations are taken as usual.",
        "It pays: the releases add",
        "Mispricing costs the zone",
        "One household's year",
        "Stands on:",
        "Does not cover:",
        "the operator, who sees every reading",
    ):
        assert words in done.stdout, words
    assert load_plan((tmp_path / "harbour.json").read_text(encoding="utf-8")).zone.name == "harbour"


def test_an_exact_plan_needs_a_sample_that_follows_its_laws_and_holds_one_bit_of_it(tmp_path):
    (tmp_path / "zone.toml").write_text(EXACT, encoding="utf-8")
    refused = run("zone.toml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "consumption is untested: exact needs a sample that passes the model test" in refused.stderr
    for seed, kind in ((5, None), (6, "flat")):
        write_sample(tmp_path / "free.csv", seed=seed, kind=kind)
        done = run("zone.toml", "--sample", "free.csv", "--out", f"{seed}.json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Sample: 8 households that agreed, 960 intervals." in done.stdout
        assert "It follows the declared laws, and no memory was found." in done.stdout
        assert "The bound with the least error for readings like these:" in done.stdout
    assert (tmp_path / "5.json").read_bytes() == (tmp_path / "6.json").read_bytes()
    assert json.loads((tmp_path / "5.json").read_text(encoding="utf-8"))["tested"] is True
    assert load_plan((tmp_path / "5.json").read_text(encoding="utf-8")).zone.tested


@pytest.mark.parametrize(
    ("sample", "error"),
    [
        ({"correlation": 0.5}, "sample is refused (memory was found: readings are correlated with those 1 intervals"),
        ({"homes": 1, "intervals": 96}, "sample is too small (96 intervals of 1 households are too few: each needs"),
        ({"kind": "hut"}, "kind is hut: must be a column that names one of flat, fish market"),
        ({"kind": "fish market"}, "sample is without flat: must cover every kind that is not always public"),
    ],
)
def test_a_sample_that_shows_too_little_or_memory_leaves_no_plan(sample, error, tmp_path):
    (tmp_path / "zone.toml").write_text(EXACT, encoding="utf-8")
    write_sample(tmp_path / "sample.csv", **sample)
    done = run("zone.toml", "--sample", "sample.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"murmurate: {error}"), done.stderr
    assert not (tmp_path / "plan.json").exists()


def test_a_range_plan_does_not_depend_on_the_sample_at_all(tmp_path):
    (tmp_path / "zone.toml").write_text(BRIEF, encoding="utf-8")
    assert run("zone.toml", "--out", "without.json", cwd=tmp_path).returncode == 0
    for name, sample in (("free", {}), ("bound", {"correlation": 0.9}), ("short", {"homes": 2, "intervals": 48})):
        write_sample(tmp_path / "sample.csv", **sample)
        done = run("zone.toml", "--sample", "sample.csv", "--out", f"{name}.json", cwd=tmp_path)
        assert "The bound with the least error for readings like these:" in done.stdout
        assert (tmp_path / f"{name}.json").read_bytes() == (tmp_path / "without.json").read_bytes()


SHOP = EXACT.replace('public = "always"', "")


@pytest.mark.parametrize(
    ("text", "kinds", "error"),
    [
        (SHOP, ("", ""), "kind is missing from the sample: must be a column that names one of flat, fish market"),
        (SHOP, ("flat", "flat"), "sample is without fish market"),
        (SHOP.replace("fish market", "flat"), ("flat", "flat"), "households is flat, flat: must have different names"),
    ],
)
def test_every_kind_that_keeps_a_secret_is_in_the_sample_by_name(text, kinds, error):
    nothing = np.zeros((5, 2), np.int64)
    sample = LabeledSample(energy_wh=nothing, occupied=nothing > 0, kind=kinds)
    with pytest.raises(PrivacyError, match=error):
        with_tested_distributions(parse_zone(text), sample)


def test_kinds_are_tested_by_their_own_laws_and_public_ones_not_at_all(tmp_path):
    write_sample(tmp_path / "flats.csv")
    flats = read_sample(tmp_path / "flats.csv")
    market = LabeledSample(
        energy_wh=np.hstack([flats.energy_wh, np.full((960, 1), 20_000)]),
        occupied=np.hstack([flats.occupied, np.ones((960, 1), bool)]),
        kind=("flat",) * 8 + ("fish market",),
    )
    assert with_tested_distributions(parse_zone(EXACT), market).tested
    with pytest.raises(PrivacyError, match="960 readings at home and 0 away of kind 'fish market' are too few"):
        with_tested_distributions(parse_zone(SHOP), market)


@pytest.mark.parametrize("eta", ["0.05", "0.3"])
def test_robust_tests_its_laws_up_to_its_share(eta, tmp_path):
    write_sample(tmp_path / "flats.csv")
    flats = read_sample(tmp_path / "flats.csv")
    flats.energy_wh[np.random.default_rng(1).random(flats.energy_wh.shape) < 0.2] = 1000
    zone = parse_zone(EXAMPLE_ZONE_FILE.replace('"range"', f'"robust"\neta = {eta}'))
    if eta == "0.3":
        assert with_tested_distributions(zone, flats).tested
    else:
        with pytest.raises(
            PrivacyError, match=r"sample is refused \(readings of kind 'flat' do not follow its distribution"
        ):
            with_tested_distributions(zone, flats)


@pytest.mark.parametrize(("which", "bounds"), [(0, "count = 800\nbound_wh = 1000"), (1, "count = 1\nbound_wh = 20000")])
def test_meters_are_counted_from_a_file(which, bounds, tmp_path):
    (tmp_path / "these.csv").write_text("meter_id,bound_wh\na,20900\nb,20700\n", encoding="utf-8")
    (tmp_path / "zone.toml").write_text(EXAMPLE_ZONE_FILE.replace(bounds, 'meters = "these.csv"'), encoding="utf-8")
    done = run("zone.toml", cwd=tmp_path)
    assert f"{3 if which == 0 else 802} households" in done.stdout
    again = load_plan((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert (again.zone.kinds[which].count, again.zone.kinds[which].bound_wh) == (2, 20900)


def test_meters_of_one_household_are_counted_once_with_the_sum_of_their_bounds(tmp_path):
    path = tmp_path / "these.csv"
    path.write_text("bound_wh,household\n700,a\n900,b\n300,a\n", encoding="utf-8")
    assert read_meter_summary(path) == MeterSummary(2, 1000)
    path.write_text("bound_wh,household\n700,a\n900,\n", encoding="utf-8")
    with pytest.raises(MeterError, match="household is empty here and there"):
        read_meter_summary(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "murmurate: a zone file is needed; murmurate plan --example > zone.toml writes one to begin with"),
        (["nowhere.toml"], "murmurate: nowhere.toml is not there"),
        (["wrong.toml"], "murmurate: wrong.toml:5: promise is 'any moment 1': must read like"),
        (["right.toml", "--sample", "wrong.toml"], "murmurate: wrong.toml is with columns"),
        (["right.toml", "--sample", "half.csv"], "murmurate: half.csv:2 is not readable: must be whole numbers"),
        (["right.toml", "--sample", "twice.csv"], "murmurate: twice.csv is 2 rows: must have one row for each"),
        (["right.toml", "--sample", "minus.csv"], "murmurate: minus.csv[0, 2] is -4: must be 0 or more"),
        (["right.toml", "--sample", "kinds.csv"], "murmurate: kinds.csv is with several kinds for a household"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(arguments, says, tmp_path):
    (tmp_path / "wrong.toml").write_text(EXAMPLE_ZONE_FILE.replace("any moment: 1", "any moment 1"), encoding="utf-8")
    (tmp_path / "right.toml").write_text(EXAMPLE_ZONE_FILE, encoding="utf-8")
    samples = {"half": ["0,0,2.5,1"], "twice": ["0,0,2,1", "0,0,3,1"], "minus": ["0,0,-4,1"]}
    for name, rows in samples.items():
        text = "\n".join(["interval,household,energy_wh,occupied", *rows])
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    text = "interval,household,energy_wh,occupied,kind\n0,0,2,1,flat\n1,0,2,1,hut\n"
    (tmp_path / "kinds.csv").write_text(text, encoding="utf-8")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(says), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def printed(plan):
    console = Console(width=100, record=True, file=io.StringIO())
    print_plan(plan, console)
    return " ".join(console.export_text().split())


def test_the_example_pays_by_what_its_page_computes_and_without_a_forecast_it_does_not():
    zone = parse_zone(EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST)
    plan = make_plan(zone)
    errors = forecast_errors(zone, plan.prediction, plan.noise)
    assert errors.exact < errors.private < 0.8 * errors.forecast
    share = (errors.forecast**2 - errors.private**2) / (errors.forecast**2 - errors.exact**2)
    assert f"It pays: the releases add {100 * share:.0f} % of what exact data would add" in printed(plan)
    assert "Worse than the forecast: predict prices" in printed(make_plan(parse_zone(EXAMPLE_ZONE_FILE)))
    tiny = parse_zone((EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST).replace("count = 800", "count = 20"))
    assert "publish the forecast, join zones" in printed(make_plan(tiny))


def test_the_page_says_what_prices_teach_about_habits_and_asks_for_a_long_window():
    plan = make_plan(parse_zone(EXAMPLE_ZONE_FILE))
    shown = printed(plan)
    for words in (
        "any moment, habits known: 1",
        "assumes an attacker who knows the household's habits already",
        "Prices may teach the habits themselves",
        "a day",
        "a year",
        "habits, beyond what windows bound",
    ):
        assert words in shown, words
    asked = re.search(r'"(any 365 d: epsilon [0-9.]+, delta 1e-6)"', shown)[1]
    longer = EXAMPLE_ZONE_FILE.replace('"any moment: 1"', f'"any moment: 1", "{asked}"')
    kept = prove_plan(parse_zone(longer), plan.distribution, plan.scale_wh, plan.core_wh)
    assert kept.costs[-1].spent <= kept.costs[-1].promised
    assert "No promise here bounds that" not in printed(kept)


@pytest.mark.parametrize("calibration", ["range", "shift", "robust", "exact"])
def test_the_page_says_who_is_hidden_under_each_calibration(calibration):
    text = BRIEF.replace('"range"', f'"{calibration}"').replace("[tariff]", "eta = 0.05\n[tariff]")
    shown = printed(make_plan(parse_zone(text, tested=True)))
    joins = "whether a household is in the zone at all (joining and leaving)"
    assert (joins in shown) == (calibration == "range")
    assert ("joining and leaving may show" in shown) == (calibration != "range")


def test_a_weaker_promise_may_take_the_noise_of_another_plan(tmp_path):
    (tmp_path / "zone.toml").write_text(
        EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["any moment: 1"]'), encoding="utf-8"
    )
    weaker = EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["any moment: 3"]')
    (tmp_path / "weaker.toml").write_text(weaker, encoding="utf-8")
    assert run("zone.toml", cwd=tmp_path).returncode == 0
    done = run("weaker.toml", "--noise-of", "plan.json", "--out", "weaker.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, other = (load_plan((tmp_path / name).read_text("utf-8")) for name in ("plan.json", "weaker.json"))
    assert np.array_equal(one.scale_wh, other.scale_wh)
    assert [str(cost.promise) for cost in other.costs] == ["any moment, habits known: 3"]
