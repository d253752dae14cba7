"""Each way to break the noise is convicted, by the attack that is made for it. Seeded."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.audited_zone import attacks, convicting, plan

from murmurate.lab.audit.run_attacks import audit_samples_needed
from murmurate.privacy.noise import SeededNoise
from murmurate.release import protect


class Rounded(SeededNoise):
    """In steps of 10 Wh: the demand modulo 10 is published."""

    step = 10

    def draw(self, *asked):
        return np.rint(super().draw(*asked) / self.step).astype(np.int64) * self.step


class Even(Rounded):
    step = 2


class Cut(SeededNoise):
    """Drawn again beyond four scales: what lies at the edge proves the world."""

    def draw(self, law, scale_wh, *more):
        drawn = super().draw(law, scale_wh, *more)
        while (beyond := np.abs(drawn) > 4 * scale_wh).any():
            drawn = np.where(beyond, super().draw(law, scale_wh, *more), drawn)
        return drawn


class OnceADay(SeededNoise):
    """One draw a day: differences of successive releases are exact."""

    def draw(self, *asked):
        drawn = super().draw(*asked)
        return np.broadcast_to(drawn[..., :1], drawn.shape).copy() if drawn.ndim == 2 else drawn


class Twins(SeededNoise):
    """Every second interval repeats the draw before."""

    def draw(self, *asked):
        drawn = super().draw(*asked)
        if drawn.ndim == 2:
            drawn[:, 1::2] = drawn[:, 0::2][:, : drawn[:, 1::2].shape[1]]
        return drawn


class Opposites(SeededNoise):
    """Every second interval takes back the draw before."""

    def draw(self, *asked):
        drawn = super().draw(*asked)
        if drawn.ndim == 2:
            drawn[:, 1::2] = -drawn[:, 0::2][:, : drawn[:, 1::2].shape[1]]
        return drawn


class EveryDayAlike(SeededNoise):
    """The noise of a time of day is the same each day."""

    def draw(self, *asked):
        drawn = super().draw(*asked)
        return np.broadcast_to(drawn[:1], drawn.shape).copy() if drawn.ndim == 2 else drawn


class SumsToZero(SeededNoise):
    """The last draw of a day takes back all others: the mean of the day is exact."""

    def draw(self, *asked):
        drawn = super().draw(*asked)
        if drawn.ndim == 2:
            drawn[:, -1] = -drawn[:, :-1].sum(axis=1)
        return drawn


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
        (Rounded, '["interval: 0.5"]', {"values", "residues"}),
        (Rounded, MOMENT, {"values", "residues"}),
        (Rounded, DAY, {"values", "residues"}),
        (Even, '["any moment: 0.01"]', {"residues"}),
        (Cut, '["interval: 0.5"]', {"values"}),
        (OnceADay, '["interval: 0.5"]', {"successive"}),
        (OnceADay, MOMENT, {"successive"}),
        (OnceADay, DAY, {"successive", "window 24 h"}),
        (Twins, '["interval: 0.5"]', {"successive"}),
        (Twins, MOMENT, {"successive"}),
        (Twins, DAY, {"successive", "window 24 h"}),
        (Opposites, '["interval: 0.5"]', {"successive"}),
        (EveryDayAlike, '["interval: 0.5"]', {"successive", "extreme"}),
        (SumsToZero, '["any 24 h: epsilon 2"]', {"window 24 h"}),
        (Seeded, '["interval: 0.5"]', {"differencing"}),
    ],
)
def test_broken_noise_is_convicted_by_the_attacks_made_for_it_and_by_no_other(source, promise, caught_by):
    assert convicting(plan(promise), samples=60_000, days=20, noise_source=source) == caught_by


def test_nine_tenths_of_the_noise_is_convicted_by_the_evidence_of_one_release():
    assert "interval" in convicting(plan(), samples=600_000, days=20, noise_source=NineTenths)


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
    found = attacks(plan(), samples=60_000, days=20, noise_source=Rounded)["residues"]
    assert found.best_statistic == "0 against 1 Wh, modulo 2"
    assert found.bound <= 0.5
    assert found.measured > 5
