"""The page on real homes, from made ones: errors, the attack, sentences that follow from numbers, and the command."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from research.command_line import run_program
from research.data_sets.citylearn import read_citylearn
from research.data_sets.homes_data import HomesData
from research.real_homes import page_text
from research.real_homes.__main__ import app
from research.real_homes.homes_report import evaluate_homes, report_numbers
from research.real_homes.occupancy_attack import attack_occupancy
from research.real_homes.page import make_homes_report
from research.real_homes.release_noise import ExampleNoise
from research.real_homes.trial_knowledge import drop_useless_weather, learn_from_trial, split_trial
from research.real_homes.zone_errors import LEAD, HomesWay, measure_zone_errors
from tests.support.made_wheel import write_made_wheel
from typer.testing import CliRunner

from murmurate.errors import ReadingError
from murmurate.lab.audit.attack import Estimate

HOURS = 20 * 7 * 24 + 24
NOISE = ExampleNoise.of_example(3600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return write_made_wheel(tmp_path_factory.mktemp("wheel") / "made.whl", hours=HOURS)


@pytest.fixture(scope="module")
def homes(wheel):
    return read_citylearn(wheel)


@pytest.fixture(scope="module")
def report(homes):
    shares = []
    found = evaluate_homes(homes[:2], 2, lambda _, share: shares.append(share))
    assert sum(shares) == pytest.approx(1)
    return found


def made_zone(households=30, weeks=24, level_after=1.0):
    """Homes that all do the same each day, with a little chance; from the second half on at another level."""
    rng, slots = np.random.default_rng(3), 24
    day = 400 + 300 * np.sin(np.arange(slots) / slots * 2 * np.pi)
    mean = np.tile(day, weeks * 7) * np.repeat([1.0, level_after], weeks * 7 * slots // 2)
    energy = np.rint(mean[:, None] * rng.uniform(0.5, 1.5, (len(mean), households))).astype(np.int64)
    return HomesData(
        name="made",
        licence="none",
        measured=False,
        households=tuple(map(str, range(households))),
        start_s=0,
        interval_s=3600,
        time_zone="UTC",
        energy_wh=energy,
        missing=np.zeros(energy.shape, bool),
    )


def test_the_noise_is_that_of_the_example_and_grows_with_the_bound():
    assert NOISE.promises == ("any 24 h: epsilon 1, delta 1e-06", "any moment, habits known: 1")
    drawn = NOISE.draw(700, (20_000,), 5)
    assert drawn.std() == pytest.approx(NOISE.sd_wh(700), rel=0.03)
    assert NOISE.sd_wh(1400) == pytest.approx(2 * NOISE.sd_wh(700))
    assert 20 < NOISE.sd_wh(1000) / 1000 < 21
    assert np.array_equal(drawn, NOISE.draw(700, (20_000,), 5))


def test_a_trial_teaches_what_is_cut_off_and_how_homes_differ():
    energy = np.random.default_rng(1).integers(0, 1000, (24 * 70, 60))
    when = made_zone().calendar()[: len(energy)]
    found = learn_from_trial(energy, when)
    cut = found.above[2]
    assert cut.bound_wh < energy.max() < found.above[-1].bound_wh
    assert cut.cut_wh[5] == pytest.approx(np.maximum(energy[5::24] - cut.bound_wh, 0).mean())
    assert found.spread.own == pytest.approx(1 / 3**0.5, rel=0.05)  # uniform
    assert found.spread.lasting < 0.1
    always = learn_from_trial(np.tile(energy[:24], (70, 1)), when)
    assert always.spread.own < 0.01
    assert always.spread.lasting == pytest.approx(1 / 3**0.5, rel=0.2)


def test_where_nothing_changes_the_forecast_is_good_and_the_noise_useless():
    found = measure_zone_errors(made_zone(), NOISE, 1)
    error = {way: each.error.mean for way, each in found.ways.items()}
    chance = 0.5 / np.sqrt(3 * 30) * 1.25  # of 30 homes, each uniform within half of its mean; more for the day's shape
    assert error[HomesWay.FORECAST] < chance
    assert error[HomesWay.NOISY_ECHO] > 5 * error[HomesWay.FORECAST]
    assert error[HomesWay.EXACT_ECHO] > 3 * error[HomesWay.FORECAST]  # the day's shape, two hours late
    assert found.ways[HomesWay.FORECAST].against_forecast == Estimate(0.0, 0.0, 0.0)
    assert found.ways[HomesWay.NOISY_ECHO].against_forecast.low > 0


def test_a_level_that_changed_after_the_trial_is_learned_from_exact_releases_and_slowly_from_noisy_ones():
    found = measure_zone_errors(made_zone(households=300, level_after=1.3), NOISE, 1)
    ways = found.ways
    assert ways[HomesWay.FORECAST].error.mean > 0.2
    assert ways[HomesWay.EXACT].against_forecast.high < -0.5
    assert ways[HomesWay.PRIVATE].against_forecast.high < -0.1
    assert ways[HomesWay.EXACT].error.mean < ways[HomesWay.PRIVATE].error.mean


def test_a_prediction_uses_an_interval_only_from_two_intervals_later_on():
    data = made_zone(weeks=20)
    trial, at = split_trial(data), 500
    changed = data.energy_wh.copy()
    changed[trial + at] *= 5
    first, second = (measure_zone_errors(each, NOISE, 1) for each in (data, replace(data, energy_wh=changed)))
    assert np.array_equal(first.predicted_wh[: at + LEAD], second.predicted_wh[: at + LEAD])
    assert first.predicted_wh[at + LEAD] != second.predicted_wh[at + LEAD]
    assert np.flatnonzero(first.demand_wh != second.demand_wh).tolist() == [at]


def test_temperature_is_used_only_where_it_made_forecasts_of_the_trial_better():
    data = made_zone(weeks=20)
    trial, rng = split_trial(data), np.random.default_rng(2)
    outdoors = rng.normal(8, 6, len(data.energy_wh))
    assert drop_useless_weather(data, trial) is data
    assert drop_useless_weather(replace(data, temperature_c=outdoors), trial).temperature_c is None
    heated = data.energy_wh + np.rint(60 * np.maximum(15 - outdoors, 0)).astype(np.int64)[:, None]
    kept = drop_useless_weather(replace(data, energy_wh=heated, temperature_c=outdoors), trial)
    assert np.array_equal(kept.temperature_c, outdoors)


def test_too_few_weeks_are_refused():
    with pytest.raises(ReadingError, match="must have 20 weeks or more"):
        split_trial(made_zone(weeks=18))


def with_occupancy(data, tell):
    """The made zone with occupancy that readings tell, or do not."""
    rng = np.random.default_rng(7)
    home = rng.random(data.energy_wh.shape) < 0.6
    used = np.where(home, 600, 100) if tell else 350
    energy = np.rint(used * rng.uniform(0.8, 1.2, home.shape)).astype(np.int64)
    return replace(data, energy_wh=energy, occupied=home, occupancy_known=np.ones(home.shape, bool))


def test_the_attack_finds_who_is_home_in_exact_demand_and_not_in_noisy_releases():
    found = attack_occupancy([(with_occupancy(made_zone(weeks=20), True), 700)], NOISE, 1, max_targets=4)
    one, two = found.zones[:2]
    assert [zone.homes for zone in found.zones] == [1, 2, 5, 10, 20]
    assert (found.targets, found.eligible, found.households) == (4, 30, 30)
    assert one.exact.auc.mean > 0.99
    assert one.exact.above_clock.low > 0.3
    assert 0.7 < two.exact.same_time_auc.mean < one.exact.same_time_auc.mean
    assert abs(one.noisy.above_clock.mean) < 0.03
    assert abs(one.noisy.same_time_auc.mean - 0.5) < 0.04
    assert found.home_share == pytest.approx(0.6, abs=0.03)


def test_homes_that_are_hardly_ever_away_or_not_labelled_are_no_targets():
    data = with_occupancy(made_zone(weeks=20), True)
    home, known = data.occupied.copy(), data.occupancy_known.copy()
    home[:, 0] = True
    known[5, 1] = False
    found = attack_occupancy([(replace(data, occupied=home, occupancy_known=known), 700)], NOISE, 1, max_targets=2)
    assert (found.targets, found.eligible, found.households) == (2, 28, 30)


def test_half_hours_of_london_are_evaluated_through_a_clock_change(tmp_path):
    """From a file that begins earlier, with a household that lacks a reading."""
    data, start = made_zone(households=5, weeks=40), datetime(2012, 12, 31, tzinfo=UTC)
    rows = ["LCLid,stdorToU,DateTime,KWH/hh (per half hour) "]
    for number, readings in enumerate([*data.energy_wh[:48], *data.energy_wh]):
        moment = start + timedelta(minutes=30 * number)
        rows += [
            f"MAC{home},Std,{moment:%Y-%m-%d %H:%M:%S}.0000000, {wh / 1000} "
            for home, wh in enumerate(readings)
            if (home, number) != (4, 3000)
        ]
    (tmp_path / "lcl.csv").write_text("\r\n".join([*rows, ""]), encoding="utf-8")
    options = ["--format", "lcl", "--from", "2013-01-01", "--days", "140", "--out", str(tmp_path / "page")]
    done = CliRunner().invoke(app, [str(tmp_path / "lcl.csv"), *options])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "Low Carbon London, 4 measured homes" in done.stdout
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "intervals of 30 minutes" in page
    assert "this was not measured" in page


def test_where_readings_tell_nothing_the_attack_finds_nothing():
    found = attack_occupancy([(with_occupancy(made_zone(weeks=20), False), 700)], NOISE, 1, max_targets=4)
    for zone in found.zones:
        assert abs(zone.exact.same_time_auc.mean - 0.5) < 0.05
        assert zone.clock.same_time_auc.mean == 0.5


def test_the_attack_would_notice_releases_without_their_noise():
    class Silent:
        def sd_wh(self, bound_wh):
            return NOISE.sd_wh(bound_wh)

        def draw(self, _bound_wh, shape, _seed):
            return np.zeros(shape, np.int64)

    found = attack_occupancy([(with_occupancy(made_zone(weeks=20), True), 700)], Silent(), 1, max_targets=4)
    assert found.zones[0].noisy.same_time_auc.low > 0.9


def test_the_page_needs_nothing_else_and_has_every_number(report):
    page = make_homes_report(report).to_html("made")
    assert page == make_homes_report(report).to_html("made")
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert page.count("data:image/svg+xml") == 3
    assert "3 measured and 3 modelled homes" in page
    document = report_numbers(report)
    assert document["test_only"] is True
    assert [zone["households"] for zone in document["zones"]] == [3, 3]
    for zone in document["zones"]:
        mean = zone["ways"]["private"]["error"]["mean"]
        assert f"{100 * mean:.1f} %" in page
    assert [zone["homes"] for zone in document["attack"]["zones"]] == [1, 2]


def test_sentences_follow_from_the_numbers_flattering_or_not(report):
    zone = report.zones[0]

    def verdict(low, mean, high):
        ways = zone.ways | {
            HomesWay.PRIVATE: replace(zone.ways[HomesWay.PRIVATE], against_forecast=Estimate(mean, low, high))
        }
        return page_text.error_sentences((replace(zone, ways=ways),))[0]

    assert "off, 20 % worse than the public forecast" in verdict(0.1, 0.2, 0.3)
    assert "off, 20 % better than the public forecast" in verdict(-0.3, -0.2, -0.1)
    assert "off, not measurably different from the public forecast" in verdict(-0.1, 0.0, 0.1)


def test_the_command_refuses_what_it_does_not_know(wheel):
    done = CliRunner().invoke(app, [str(wheel), "--format", "pdf"])
    assert done.exit_code == 2
    assert all(f"'{name}'" in done.stderr for name in ("citylearn", "lcl", "cer", "eco"))
    done = CliRunner().invoke(app, [str(wheel), str(wheel)])
    assert "files is 2: must be one for --format citylearn" in str(done.exception)
    done = CliRunner().invoke(app, ["nowhere.whl"])
    assert (done.exit_code, "does not exist" in done.stderr) == (2, True)


def test_an_error_of_a_file_is_one_line_with_its_remedy(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("no wheel\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["real_homes", str(tmp_path / "file")])
    with pytest.raises(SystemExit) as ended:
        run_program(app, "research.real_homes")
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2
    assert "file is not a ZIP file" in line
    assert "pip download citylearn" in line
