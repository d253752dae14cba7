"""Each way to break the noise is convicted, by the attack that is made for it. Seeded."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.audited_zone import attacks, convicting, plan

from murmurate.lab.audit.run_attacks import audit_samples_needed
from murmurate.privacy.noise import SeededNoise
from murmurate.release import protect


def broken(change):
    """Noise that is drawn rightly; days of it [day, interval] are then changed, single draws are not."""

    class Broken(SeededNoise):
        def draw(self, *asked):
            drawn = super().draw(*asked)
            return change(drawn) if drawn.ndim == 2 else drawn

    return Broken


def rounded(step):
    """Noise in steps: the demand modulo a step is published."""

    class Rounded(SeededNoise):
        def draw(self, *asked):
            return np.rint(super().draw(*asked) / step).astype(np.int64) * step

    return Rounded


class Cut(SeededNoise):
    """Drawn again beyond four scales: what lies at the edge proves the world."""

    def draw(self, law, scale_wh, *more):
        drawn = super().draw(law, scale_wh, *more)
        while (beyond := np.abs(drawn) > 4 * scale_wh).any():
            drawn = np.where(beyond, super().draw(law, scale_wh, *more), drawn)
        return drawn


def every_second(drawn, sign):
    """Every second interval repeats the draw before, or takes it back."""
    drawn[:, 1::2] = sign * drawn[:, 0::2][:, : drawn[:, 1::2].shape[1]]
    return drawn


def sum_to_zero(drawn):
    """The last draw of a day takes back all others: the mean of the day is exact."""
    drawn[:, -1] = -drawn[:, :-1].sum(axis=1)
    return drawn


ROUNDED = rounded(10)
ONCE_A_DAY = broken(lambda drawn: np.broadcast_to(drawn[..., :1], drawn.shape).copy())
TWINS = broken(lambda drawn: every_second(drawn, 1))
OPPOSITES = broken(lambda drawn: every_second(drawn, -1))
EVERY_DAY_ALIKE = broken(lambda drawn: np.broadcast_to(drawn[:1], drawn.shape).copy())


class Seeded(SeededNoise):
    """Every draw is the same: two zones cancel."""

    def __init__(self, _seed):
        super().__init__(1)


class SkippedOnceInAThousand(SeededNoise):
    """An error path that adds nothing."""

    def draw(self, *asked):
        drawn = super().draw(*asked)
        return np.where(self._rng.random(drawn.shape) < 1e-3, 0, drawn)


class NineTenths(SeededNoise):
    def draw(self, law, scale_wh, *more):
        return super().draw(law, 0.9 * scale_wh, *more)


MOMENT, DAY = '["any moment: 1"]', '["any 24 h: epsilon 2, delta 1e-5"]'


@pytest.mark.parametrize(
    ("source", "promise", "caught_by"),
    [
        (ROUNDED, '["interval: 0.5"]', {"values", "residues"}),
        (ROUNDED, MOMENT, {"values", "residues"}),
        (ROUNDED, DAY, {"values", "residues"}),
        (rounded(2), '["any moment: 0.01"]', {"residues"}),
        (Cut, '["interval: 0.5"]', {"values"}),
        (ONCE_A_DAY, '["interval: 0.5"]', {"successive"}),
        (ONCE_A_DAY, MOMENT, {"successive"}),
        (ONCE_A_DAY, DAY, {"successive", "window 24 h"}),
        (TWINS, '["interval: 0.5"]', {"successive"}),
        (TWINS, MOMENT, {"successive"}),
        (TWINS, DAY, {"successive", "window 24 h"}),
        (OPPOSITES, '["interval: 0.5"]', {"successive"}),
        (EVERY_DAY_ALIKE, '["interval: 0.5"]', {"successive", "extreme"}),
        (broken(sum_to_zero), '["any 24 h: epsilon 2"]', {"window 24 h"}),
        (Seeded, '["interval: 0.5"]', {"differencing"}),
    ],
)
def test_broken_noise_is_convicted_by_the_attacks_made_for_it_and_by_no_other(source, promise, caught_by):
    assert convicting(plan(promise), samples=60_000, days=20, noise_source=source) == caught_by


def test_nine_tenths_of_the_noise_is_convicted_by_the_evidence_of_one_release():
    assert "interval" in convicting(plan(), samples=600_000, days=20, noise_source=NineTenths)


@pytest.mark.long
def test_noise_that_is_skipped_once_in_a_thousand_is_found_from_the_samples_that_the_audit_names():
    made = plan()
    needed = audit_samples_needed(made, 1e-3)
    assert 200_000 < needed < 1_000_000
    assert convicting(made, samples=2 * needed, days=2, noise_source=SkippedOnceInAThousand) == {"skipped"}
    assert convicting(made, samples=needed // 4, days=2, noise_source=SkippedOnceInAThousand) == set()
    assert audit_samples_needed(made, 1e-9) is None


def price_of_the_demand(demand_wh, *, curve, **asked):
    """A release whose price is made from the exact demand."""
    return replace(protect(demand_wh, curve=curve, **asked), price_ticks=curve.price_ticks(demand_wh))


def test_a_price_made_from_the_exact_demand_is_convicted_by_prices_alone():
    assert convicting(plan(), samples=20_000, days=20, mechanism=price_of_the_demand) == {"prices"}


def floor_of_the_demand(demand_wh, *, curve, **asked):
    """A release whose floor is applied where the exact demand asks for it."""
    made = protect(demand_wh, curve=curve, **asked)
    at_floor = curve.price_ticks(demand_wh) == int(curve.floor / curve.tick)
    return replace(made, price_ticks=np.where(at_floor, int(curve.floor / curve.tick), made.price_ticks))


def test_a_floor_that_looks_at_the_exact_demand_is_convicted():
    made = plan()
    curve = replace(made.zone.curve, floor=made.zone.curve.tick * 8050)
    floored = replace(made, zone=replace(made.zone, curve=curve))
    assert convicting(floored, samples=60_000, days=20, mechanism=floor_of_the_demand) == {"prices"}
    assert convicting(floored, samples=60_000, days=20) == set()


@pytest.mark.parametrize("seed", range(6))
def test_the_right_noise_is_acquitted(seed):
    assert convicting(plan(), samples=20_000, days=20, seed=seed) == set()


def test_a_conviction_names_the_statistic_that_reveals_most():
    found = attacks(plan(), samples=60_000, days=20, noise_source=ROUNDED)["residues"]
    assert found.best_statistic == "0 against 1 Wh, modulo 2"
    assert found.bound <= 0.5
    assert found.measured > 5
