"""`murmurate habits`, from a sample to a plan that is proven with what was learned."""

import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.support.labeled_samples import resident_chains, write_labeled_sample

from murmurate.commands.habits import HabitOptions, learn_habits, make_cells
from murmurate.errors import ModelError, MurmurateError, PrivacyError, ReadingError, ZoneFileError
from murmurate.operations.sample_ledger import ledger_path
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.leakage import periodic_leakage, with_periodic_prior
from murmurate.privacy.noise import SeededNoise

COMMAND = Path(sys.executable).with_name("murmurate")
BOTH = 'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
HOURLY = EXAMPLE_ZONE_FILE.replace("interval_minutes = 15", "interval_minutes = 60").replace(
    BOTH, 'promise = ["any moment: 2"]'
)
MONDAY = 20_458  # 2026-01-05
OPTIONS = HabitOptions(epsilon="20", interval_minutes=60, periods="07:00,08:00,16:00,23:00")


class UnusedNoise:
    """Noise that must not be drawn."""

    test_only = True

    def draw(self, *_):
        raise AssertionError


class NegativeNoise(UnusedNoise):
    """Noise that leaves no arrival and no departure."""

    def draw(self, _, scale_wh, *__):
        return -np.ceil(30 * scale_wh).astype(np.int64)


def with_models(zone_text, models, *names):
    """The zone file with the learned models for its flats."""
    listed = ", ".join(f'"{name}"' for name in names)
    return zone_text.replace('occupancy = "resident"', f"occupancy = [{listed}]", 1) + "\n" + models


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("sample") / "sample.parquet"
    return write_labeled_sample(path, households=500, days=7, seed=3)


@pytest.fixture(scope="module")
def learned(sample, tmp_path_factory):
    out = tmp_path_factory.mktemp("learned") / "habits.toml"
    own = shutil.copy(sample, out.with_name("sample.parquet"))  # nothing was drawn from this copy
    learn_habits(own, out, OPTIONS, SeededNoise(1))
    return out.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_plan_is_proven_with_learned_habits_and_states_what_they_cost(learned):
    text = with_models(HOURLY, learned, "learned", "learned_bound")
    plan = make_plan(parse_zone(text))
    assert plan.costs[0].spent <= 2
    document = json.loads(plan.to_json())
    assert document["learned"] == [
        {
            "name": "learned",
            "bound": "learned_bound",
            "epsilon": "20",
            "households": 500,
            "confidence": 0.99,
            "proven": True,
        }
    ]
    assert load_plan(plan.to_json()).zone.learned == plan.zone.learned
    by_hand = make_plan(parse_zone(HOURLY))
    assert by_hand.noise_variance.max() < plan.noise_variance.max()
    loss = float(1000 / plan.scale_wh[0])
    truth = with_periodic_prior(resident_chains(1))
    assert float(periodic_leakage(truth, loss).max()) <= 2  # the habits that the sample was drawn from


def test_a_plan_without_learned_habits_has_no_such_member():
    text = HOURLY.replace('"any moment: 2"', '"interval: 0.5"')
    assert "learned" not in make_plan(parse_zone(text)).to_document()


def test_the_estimate_is_near_the_truth_and_the_first_model(learned):
    tables = tomllib.loads(learned)
    assert list(tables["occupancy"]) == ["learned", "learned_bound"]
    estimate = tables["occupancy"]["learned"]
    assert list(estimate["arrive"].values()) == pytest.approx([0.98, 0.05, 0.99, 0.01], abs=0.03)
    assert list(estimate["leave"].values()) == pytest.approx([0.05, 0.95, 0.05, 0.995], abs=0.06)


@pytest.mark.parametrize(
    "names", [("learned",), ("learned_saturday",), ("learned_sunday", "resident"), ("learned", "learned_sunday")]
)
def test_an_estimate_of_any_type_of_day_is_refused_without_the_bound(learned, names):
    estimate = learned[learned.index("[occupancy.learned]") : learned.index("[occupancy.learned_bound]")]
    others = "".join(
        estimate.replace("occupancy.learned", f"occupancy.learned_{day}") for day in ("saturday", "sunday")
    )
    with pytest.raises(ZoneFileError, match=f"must name learned_bound too: {names[0]} is an estimate with noise"):
        parse_zone(with_models(HOURLY, learned + others, *names))
    parse_zone(with_models(HOURLY, learned + others, *names, "learned_bound"))


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('epsilon = "20"', 'epsilon = "-1"', "epsilon is -1: must be positive"),
        ("confidence = 0.99", "confidence = 1", "confidence below 1"),
        ("households = 500", "households = 0", "must have households"),
        ("households = 500", "people = 500", "key is 'people'"),
        ('bound = "learned_bound"', "", "bound is missing"),
        ("proven = true", "", "proven is missing"),
        ('bound = "learned_bound"', 'bound = "learned"', "must be another occupancy model"),
        ('bound = "learned_bound"', 'bound = "other"', "must be another occupancy model"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(learned, right, wrong, message):
    assert right in learned
    text = with_models(HOURLY, learned.replace(right, wrong, 1), "learned", "learned_bound")
    with pytest.raises(ZoneFileError, match=message) as error:
        parse_zone(text)
    assert error.value.line > 30


@pytest.mark.slow
def test_types_of_day_are_learned_apart(sample, tmp_path):
    out = tmp_path / "habits.toml"
    learn_habits(sample, out, replace(OPTIONS, day_types=True, epsilon="60"), SeededNoise(2))
    text = out.read_text(encoding="utf-8")
    names = ["learned", "learned_saturday", "learned_sunday", "learned_bound"]
    assert f"#   occupancy = {names}".replace("'", '"') in text
    assert [len(kind.models) for kind in parse_zone(with_models(HOURLY, text, *names)).kinds] == [4, 1]


def test_holidays_are_sundays_and_dates_are_checked():
    options = replace(OPTIONS, day_types=True)
    assert make_cells(7 * 24, options, MONDAY).days.tolist() == [5, 1, 1]
    assert make_cells(7 * 24, replace(options, holidays=("2026-01-06",)), MONDAY).days.tolist() == [4, 1, 2]
    with pytest.raises(ReadingError, match="a Saturday and a Sunday"):
        make_cells(5 * 24, options, MONDAY)
    with pytest.raises(ModelError, match="such as 2026-01-05"):
        make_cells(7 * 24, replace(options, holidays=("monday",)))
    with pytest.raises(ReadingError, match="whole days"):
        make_cells(25, OPTIONS)
    for periods in ("07:00,07:00", "07:10", "noon"):
        with pytest.raises(ModelError, match="must be"):
            make_cells(24, replace(OPTIONS, periods=periods))


@pytest.mark.slow
def test_the_bound_without_a_proof_leaks_less(sample, learned, tmp_path):
    out = tmp_path / "habits.toml"
    learn_habits(sample, out, replace(OPTIONS, proven=False), SeededNoise(1))
    zones = [
        parse_zone(with_models(HOURLY, text, "learned", "learned_bound"))
        for text in (out.read_text(encoding="utf-8"), learned)
    ]
    tested, proven = (float(periodic_leakage(zone.kinds[0].models[1], 0.1).max()) for zone in zones)
    estimate = float(periodic_leakage(zones[0].kinds[0].models[0], 0.1).max())
    assert estimate < tested < proven
    assert [zone.learned[0].proven for zone in zones] == [False, True]


@pytest.mark.slow
def test_a_spread_covers_households_that_are_slower_than_the_others(sample, learned, tmp_path):
    out = tmp_path / "habits.toml"
    learn_habits(sample, out, replace(OPTIONS, spread=2.0), SeededNoise(1))
    wide, narrow = (
        parse_zone(with_models(HOURLY, text, "learned", "learned_bound")).kinds[0].models[1]
        for text in (out.read_text(encoding="utf-8"), learned)
    )
    truth = resident_chains(1)
    half = truth.transition.copy()
    half[:, 0, 1], half[:, 1, 0] = half[:, 0, 1] / 2, half[:, 1, 0] / 2
    half[:, 0, 0], half[:, 1, 1] = 1 - half[:, 0, 1], 1 - half[:, 1, 0]
    slow = with_periodic_prior(replace(truth, transition=half))
    loss = 0.1
    leaks = [float(periodic_leakage(model, loss).max()) for model in (slow, wide, narrow)]
    assert leaks[0] <= leaks[1]
    assert leaks[2] < leaks[1]


@pytest.mark.parametrize(
    "wrong", [{"spread": 0.5}, {"confidence": 1.0}, {"name": "a b"}, {"max_changes": 0}, {"spread": float("inf")}]
)
def test_wrong_options_are_refused_before_a_sample_is_read(wrong):
    with pytest.raises(MurmurateError, match=next(iter(wrong))):
        replace(OPTIONS, **wrong)


@pytest.mark.slow
def test_a_file_that_was_paid_for_is_not_overwritten(sample, tmp_path):
    out = tmp_path / "habits.toml"
    out.write_text("paid", encoding="utf-8")
    with pytest.raises(FileExistsError):
        learn_habits(sample, out, OPTIONS, UnusedNoise())
    assert out.read_text(encoding="utf-8") == "paid"


class LedgerNoise(SeededNoise):
    """Noise that notes the lines of a ledger when it is drawn."""

    def draw(self, *scales):
        self.lines = self.ledger.read_text(encoding="utf-8").splitlines()
        return super().draw(*scales)


@pytest.mark.slow
def test_each_run_stands_in_the_ledger_before_its_draw_and_files_state_the_sum(sample, tmp_path, capsys):
    own = shutil.copy(sample, tmp_path / "sample.parquet")
    with pytest.raises(PrivacyError, match="nothing was spent"):
        learn_habits(own, tmp_path / "few.toml", replace(OPTIONS, epsilon="1/10"), UnusedNoise())
    assert not ledger_path(own).exists()
    assert capsys.readouterr().out == ""
    with pytest.raises(PrivacyError, match="take more households"):  # the noise hides everything, and was paid for
        learn_habits(own, tmp_path / "failed.toml", replace(OPTIONS, epsilon="3/2"), NegativeNoise())
    assert not (tmp_path / "failed.toml").exists()
    with pytest.raises(AssertionError):
        learn_habits(own, tmp_path / "stopped.toml", OPTIONS, UnusedNoise())
    noise = LedgerNoise(1)
    noise.ledger = ledger_path(own)
    (tmp_path / "link.csv").symlink_to(own)
    learn_habits(tmp_path / "link.csv", tmp_path / "third.toml", OPTIONS, noise)
    runs = [json.loads(line) for line in noise.lines]
    assert [(run["command"], run["epsilon"], run["out"]) for run in runs] == [
        ("habits", "3/2", "failed.toml"),
        ("habits", "20", "stopped.toml"),
        ("habits", "20", "third.toml"),
    ]
    assert len({run["sample_sha256"] for run in runs}) == 1
    text = (tmp_path / "third.toml").read_text(encoding="utf-8")
    assert parse_zone(with_models(HOURLY, text, "learned", "learned_bound")).learned[0].epsilon == Fraction(83, 2)
    shown = " ".join(capsys.readouterr().out.split())
    assert "Spent epsilon 3/2 of each" in shown
    assert "This sample has spent epsilon 3/2 in 1 run, this one included." in shown
    assert "This sample has spent epsilon 83/2 in 3 runs, this one included." in shown


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ['{"epsilon": "1"', '{"epsilon": "0"}\n', "\n", '{"spent": 1}\n', "[]\n"])
def test_a_ledger_that_cannot_be_read_stops_a_run_before_it_draws(sample, tmp_path, wrong):
    own = shutil.copy(sample, tmp_path / "sample.parquet")
    text = '{"epsilon": "1"}\n' + wrong
    ledger_path(own).write_text(text, encoding="utf-8")
    with pytest.raises(PrivacyError, match=r"sample.parquet.spent.jsonl is unreadable in line 2: .*; nothing"):
        learn_habits(own, tmp_path / "habits.toml", OPTIONS, UnusedNoise())
    assert ledger_path(own).read_text(encoding="utf-8") == text
    assert not (tmp_path / "habits.toml").exists()


@pytest.mark.slow
def test_the_command_draws_new_noise_each_time_and_says_what_it_spends(sample, tmp_path):
    arguments = ["--epsilon", "20", "--interval-minutes", "60", "--periods", OPTIONS.periods]
    texts = []
    for name in ("one.toml", "two.toml"):
        done = subprocess.run(
            [COMMAND, "habits", str(sample), *arguments, "--out", name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "Took 500 households" in done.stdout
        assert "Spent epsilon 20 of each" in done.stdout
        assert "spends as much again" in " ".join(done.stdout.split())
        texts.append((tmp_path / name).read_text(encoding="utf-8"))
    assert texts[0] != texts[1]


def test_only_the_households_of_a_kind_are_taken(tmp_path, capsys):
    kinds = ["flat"] * 5 + ["shop"]
    path = write_labeled_sample(tmp_path / "sample.parquet", households=6, days=1, seed=1, kinds=kinds)
    with pytest.raises(ReadingError, match="must be one of flat, shop"):
        learn_habits(path, tmp_path / "h.toml", replace(OPTIONS, kind="farm"), UnusedNoise())
    with pytest.raises(PrivacyError, match="households is 5: "):
        learn_habits(path, tmp_path / "h.toml", replace(OPTIONS, kind="flat"), UnusedNoise())
    assert capsys.readouterr().out == ""
