"""An honest plan withstands every attack; one that claims more than its noise keeps is found out. Seeded."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from murmurate.audit import adversary
from murmurate.audit.bound import auc
from murmurate.curator.plan import make_plan
from murmurate.curator.zonefile import parse_zone
from murmurate.household.consumption import TableConsumption
from murmurate.household.occupancy import ModelClass
from murmurate.lab import audit_report
from murmurate.lab.audit_run import joint_odds, rank, run_audit
from murmurate.lab.audit_scene import live, settled, target_kind, zone_model
from murmurate.privacy.algorithm1 import algorithm_1
from murmurate.privacy.noise import NoiseLaw, RehearsalNoise, laplace_log_pmf

ZONE = """\
name = "quay [7]"
currency = "EUR"
interval_minutes = 60
promise = {promise}
calibration = "{calibration}"

[tariff]
alpha = "0.01"
beta = "0.08"
tick = "0.00001"

[occupancy.resident]
periods = {{ morning = "07:00", noon = "08:00", evening = "16:00", night = "23:00" }}
arrive = {{ morning = 0.6, noon = 0.3, evening = 0.9, night = 0.3 }}
leave = {{ morning = 0.4, noon = 0.9, evening = 0.3, night = 0.8 }}

[[households]]
name = "hut"
count = 1
bound_wh = 100
away = {{ uniform_to = 20 }}
home = {{ uniform_to = 100 }}
occupancy = "resident"

[[households]]
name = "neighbour"
count = {neighbours}
bound_wh = 60
away = {{ uniform_to = {away} }}
home = {{ uniform_to = {home} }}
occupancy = "resident"
"""
DAYS = 60


def plan(promise='["interval: 0.5"]', neighbours=2, away=20, home=60, calibration="range", noise=""):
    text = ZONE.format(promise=promise, neighbours=neighbours, away=away, home=home, calibration=calibration)
    return make_plan(parse_zone(text.replace("currency", f"{noise}\ncurrency", 1)))


def attacks(made, days=DAYS, seed=1, **more):
    return {attack.name: attack for attack in run_audit(made, days, seed, lambda _: None, samples=120_000, **more)}


HONEST = {
    "an interval": {},
    "a moment": {"promise": '["any moment: 1"]', "neighbours": 40},
    "a day": {"promise": '["any 24 h: epsilon 2"]', "calibration": "shift"},
    "a day but for a delta": {"promise": '["any 24 h: epsilon 2, delta 1e-5"]', "noise": 'noise = "gaussian"'},
    "a large zone": {"promise": '["interval: 0.5", "any moment: 3"]', "neighbours": 3000},
}


@pytest.mark.parametrize("terms", HONEST.values(), ids=HONEST.keys())
def test_a_plan_that_keeps_its_promise_withstands_every_attack(terms):
    found = attacks(plan(**terms))
    assert all(attack.ok for attack in found.values())
    assert {"strong", "extreme", "public", "interval", "differencing", "joint"} <= set(found)
    assert found["joint"].ran == (terms.get("neighbours", 2) < 8)
    assert found["joint"].ran or found["joint"].note == "needs at most 8 households"


def test_with_one_interval_of_noise_the_lower_bound_comes_close_to_the_promise():
    found = attacks(plan())["interval"]
    assert 0.45 < found.measured <= found.bound <= 0.5


@pytest.mark.parametrize(
    ("promise", "caught_by"),
    [
        ('["interval: 0.5"]', "interval"),
        ('["any moment: 1"]', "extreme"),
        ('["any 24 h: epsilon 2, delta 1e-5"]', "window 24 h"),
    ],
)
def test_half_the_noise_that_a_plan_claims_is_caught(promise, caught_by):
    made = plan(promise)
    found = attacks(replace(made, scale_wh=made.scale_wh / 2), days=200)
    assert not found[caught_by].ok


@pytest.mark.parametrize(
    ("promise", "caught_by"), [('["interval: 0.5"]', "interval"), ('["any moment: 1"]', "extreme")]
)
def test_gaussian_noise_is_caught_where_a_pure_promise_was_given(promise, caught_by):
    found = attacks(replace(plan(promise), law=NoiseLaw.GAUSSIAN))
    assert not found[caught_by].ok


class ForgetfulNoise(RehearsalNoise):
    """Draws at half the scale that it is asked for."""

    def draw(self, law, scale_wh):
        return super().draw(law, scale_wh / 2)


def test_a_source_that_draws_less_than_it_is_asked_for_is_caught():
    found = attacks(plan(), source=ForgetfulNoise)
    assert not found["interval"].ok


def test_a_gaussian_plan_says_where_it_has_no_bound():
    found = attacks(plan('["any 6 h: epsilon 2, delta 1e-5"]', noise='noise = "gaussian"'))
    assert found["strong"].bound is None
    assert found["strong"].auc_bound is None
    assert "no bound" in found["strong"].note
    assert found["interval"].delta == 1e-5


def test_the_joint_adversary_is_algorithm_1():
    made = plan()
    zone = made.zone
    noisy_wh = np.random.default_rng(3).integers(-300, 500, (2, 24))
    found = joint_odds(made, noisy_wh, np.ones(24, bool))
    table = np.zeros((2, 2, 101))
    for column, kind in enumerate(zone.kinds):
        table[:, column, : kind.bound_wh + 1] = kind.secret.away, kind.secret.home
    law = TableConsumption.of(table, kind=[0, 1, 1], bound_wh=[100, 100, 100])
    theta = ModelClass(models=(zone_model(zone, [1, 2], 1),))
    epsilon = Fraction(100) / Fraction(float(made.scale_wh[0]))
    for day, published in enumerate(noisy_wh):
        steps = algorithm_1(theta, law, zone.curve, epsilon, published)
        assert steps[0].scale_wh == pytest.approx(made.scale_wh[0], rel=1e-9)
        oracle = [adversary.joint(step.models[0].posterior) for step in steps]
        np.testing.assert_allclose(found[day], oracle, atol=1e-7)


def test_joint_and_strong_agree_where_the_neighbours_use_nothing():
    made = plan(away=0, home=0)
    hut = target_kind(made.zone)
    noisy_wh = np.random.default_rng(4).integers(-200, 400, (5, 24))
    emission = adversary.log_emission(
        noisy_wh, 0, hut.secret.away, hut.secret.home, lambda noise: laplace_log_pmf(noise, float(made.scale_wh[0]))
    )
    transition = np.stack([hut.models[0].at(t)[..., 0] for t in range(24)])
    expected = adversary.filtered(settled(hut), transition, emission)
    np.testing.assert_allclose(joint_odds(made, noisy_wh, np.ones(24, bool))[..., 0], expected, atol=1e-9)


def test_the_zone_lives_by_its_moments():
    zone = plan(neighbours=40).zone
    days = live(zone, target_kind(zone), 400, np.random.default_rng(1), lambda _: None)
    expected = sum((kind.count - (kind.count == 1)) * kind.moments(24)[0] for kind in zone.kinds)
    np.testing.assert_allclose(days.rest_wh.mean(axis=0), expected, rtol=0.03)
    assert days.energy_wh[~days.occupied].max() <= 20 < days.energy_wh.max() <= 100


def test_ranks_compare_only_days_at_the_same_time_of_day():
    rng = np.random.default_rng(1)
    score, home = rng.integers(0, 9, (200, 2)).astype(float), rng.random((200, 2)) < [0.3, 0.7]
    found = rank(score + np.array([0, 100]), home, np.array([True, True]))
    each = [auc(score[~home[:, t], t], score[home[:, t], t]) for t in (0, 1)]
    np.testing.assert_allclose(found.by_interval, each)
    assert min(each) <= found.auc.mean <= max(each)
    assert found.auc.low < 0.5 < found.auc.high


def test_the_same_seed_gives_the_same_audit_and_progress_reaches_its_end():
    made, heard = plan(), []
    one, other = (run_audit(made, 25, 7, heard.append, samples=1000) for _ in range(2))
    assert one == other
    assert sum(heard) == 2 * audit_report.PHASES * 25
    assert one != run_audit(made, 25, 8, lambda _: None, samples=1000)


def test_the_report_is_written_for_people_programs_and_eyes(tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text(plan().to_json(), encoding="utf-8")
    assert audit_report.audit(path, tmp_path / "out", 30)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= max(80, len(str(tmp_path)) + 60)
    assert "quay [7]" in shown
    found = json.loads((tmp_path / "out" / "audit.json").read_text(encoding="utf-8"))
    assert found["ok"]
    assert found["attacks"][0]["name"] == "strong"
    for name in ("report.md", "attacks.png", "attacks.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 500
