"""The desk: a price from the noised demand under the plan, its cost, a signature, and nothing else of the demand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.curator.plan import make_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import EXAMPLE, parse_zone
from murmurate.privacy.noise import NoiseLaw, SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.record import Kind
from murmurate.publication.wish import Change, Opening, Wish, next_task
from murmurate.quantities import UNPROTECTED
from tests.publication.chains import (
    CURVE,
    FIRST,
    NEW_KEY,
    OLD_KEY,
    OPENING,
    PLANS,
    chain,
    demand,
    desk,
    write,
)

OPEN = write(None, Wish(until=FIRST, opening=OPENING))


class FixedNoise:
    """Adds a number that can be told from its scale, and remembers what it was asked for."""

    rehearsal = False

    def __init__(self):
        self.asked = []

    def draw(self, law, scale_wh, core_wh=None):
        del core_wh
        self.asked.append((law, scale_wh.tolist()))
        return (scale_wh // 100).astype(np.int64)


def test_a_measured_price_is_the_noised_demand_on_the_curve():
    head = OPEN
    for n in range(8):
        noise = FixedNoise()
        head = write(head, Wish(until=FIRST + n), 600_000 + n, at=desk(noise))
        slot = (FIRST + n) % 4
        assert noise.asked == [(NoiseLaw.LAPLACE, [1000.0 * (slot + 1)])]
        record = head.record
        assert record.kind is Kind.MEASURED
        assert record.price_ticks == int(CURVE.price_ticks(600_000 + n + 10 * (slot + 1)))
        assert (record.noise, record.scale_wh) == ("laplace", repr(1000.0 * (slot + 1)))
        assert (record.epsilon_micro, record.rho_micro) == (1000 * (slot + 1), 0)
        assert (record.interval, record.applies, record.interval_s) == (FIRST + n, FIRST + n + 2, 21_600)
    assert head.record.total_epsilon_micro == 2 * (1000 + 2000 + 3000 + 4000)


def test_gaussian_noise_spends_rho():
    entries = chain()
    spent = {entry.record.noise: (entry.record.epsilon_micro, entry.record.rho_micro) for entry in entries}
    assert spent["laplace"][0] > 0 == spent["laplace"][1]
    assert spent["gaussian"][1] > 0 == spent["gaussian"][0]
    assert entries[-1].record.total_epsilon_micro == sum(entry.record.epsilon_micro for entry in entries)
    assert entries[-1].record.total_rho_micro == sum(entry.record.rho_micro for entry in entries)


def test_without_demand_the_forecast_is_released_and_costs_nothing():
    noise = FixedNoise()
    record = write(OPEN, Wish(until=FIRST), at=desk(noise)).record
    assert record.kind is Kind.FORECAST
    assert record.price_ticks == int(PLANS["a" * 64].forecast_ticks[FIRST % 4])
    assert (record.noise, record.scale_wh) == ("none", None)
    assert record.total_epsilon_micro == 0
    assert noise.asked == []


@pytest.mark.parametrize(
    ("bounds", "kind"),
    [
        (({"": 999},), Kind.MEASURED),
        (({"": 1000, "mill": 9000, UNPROTECTED: 5000},), Kind.MEASURED),
        (({"": 1001},), Kind.FORECAST),
        (({"flat": 1001},), Kind.FORECAST),
        (({"": 1000, UNPROTECTED: 5001},), Kind.FORECAST),
        (({"": 1000, "inn": 1},), Kind.FORECAST),
        (({},), Kind.FORECAST),
        ((None,), Kind.FORECAST),
        (None, Kind.FORECAST),
    ],
)
def test_a_demand_with_a_household_that_the_plan_does_not_hide_is_not_used(bounds, kind):
    noise = FixedNoise()
    drawn = replace(demand(harbour=500_000), bounds=bounds)
    task = next_task(OPEN, Wish(until=FIRST))
    record = desk(noise).write({"harbour": (OPEN, task)}, drawn).written["harbour"].record
    assert record.kind is kind
    assert len(noise.asked) == (kind is Kind.MEASURED)


def test_a_flat_with_the_bound_of_a_market_is_not_released_at_any_hour_of_the_day():
    """By day the market's hours are public and the noise is the flats': it would not hide 20,000 Wh."""
    text = EXAMPLE.replace(
        'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', 'promise = ["interval: 0.5"]'
    )
    text = text.replace('public = "always"', 'public = ["08:00-20:00"]').replace("_minutes = 15", "_minutes = 60")
    terms = Terms.of(make_plan(parse_zone(text)).to_json())
    writer = Desk(terms={terms.plan: terms}.get, signers={OLD_KEY.public: OLD_KEY}, noise=SystemNoise())
    opening = Opening(plan=terms.plan, key=OLD_KEY.public, first=FIRST)
    for bounds, kind in (({"": 20_000}, Kind.FORECAST), ({"flat": 1000, "fish market": 20_000}, Kind.MEASURED)):
        head = write(None, Wish(until=FIRST, opening=opening), at=writer)
        for n in range(24):
            task = next_task(head, Wish(until=FIRST + n))
            drawn = replace(demand(harbour=180_000), bounds=(bounds,))
            head = writer.write({"harbour": (head, task)}, drawn).written["harbour"]
            assert head.record.kind is kind


def test_what_comes_too_late_is_withheld_and_nothing_is_drawn():
    noise = FixedNoise()
    record = write(OPEN, Wish(until=FIRST, in_time_from=FIRST + 1), 500_000, at=desk(noise)).record
    assert (record.kind, record.price_ticks, record.epsilon_micro) == (Kind.WITHHELD, None, 0)
    assert noise.asked == []


class NoiseUpTo:
    """Adds whatever makes the noised demand this one."""

    rehearsal = False

    def __init__(self, noisy_wh, energy_wh):
        self.missing_wh = noisy_wh - energy_wh

    def draw(self, _law, scale_wh, _core_wh=None):
        return np.full(scale_wh.shape, self.missing_wh, np.int64)


COUNTS = st.tuples(st.integers(0, 2**40), st.integers(0, 2**20), st.integers(0, 2**20))


@given(st.integers(0, 2**40), st.lists(COUNTS, min_size=2, max_size=2))
def test_demands_whose_noised_value_is_the_same_give_the_same_line(noisy_wh, demands):
    """A measured record is a function of public numbers and the noised price: no key turns it into a demand."""
    lines = set()
    for energy_wh, reported, imputed in demands:
        drawn = replace(demand(harbour=energy_wh), reported=np.array([reported]), imputed=np.array([imputed]))
        task = next_task(OPEN, Wish(until=FIRST))
        written = desk(NoiseUpTo(noisy_wh, energy_wh)).write({"harbour": (OPEN, task)}, drawn).written["harbour"]
        assert written.record.kind is Kind.MEASURED
        lines.add(written.line)
    assert len(lines) == 1


def test_two_drafts_of_one_release_differ_in_their_draw():
    prices = {write(OPEN, Wish(until=FIRST), 500_000).record.price_ticks for _ in range(50)}
    assert len(prices) > 1, "fifty draws of noise were all alike"


def test_a_zone_that_cannot_be_written_does_not_keep_the_others_from_it():
    unknown = Opening(plan="c" * 64, key=OLD_KEY.public, first=FIRST)
    stranger = Opening(plan="a" * 64, key="00" * 32, first=FIRST)
    wishes = {
        "harbour": Wish(until=FIRST, opening=OPENING),
        "hill": Wish(until=FIRST, opening=unknown),
        "mill": Wish(until=FIRST, opening=stranger),
    }
    known = demand(harbour=987_654_321, hill=987_654_321, mill=987_654_321)
    drafts = desk().write({zone: (None, next_task(None, wish)) for zone, wish in wishes.items()}, known)
    assert set(drafts.written) == {"harbour"}
    assert "must be registered" in drafts.refused["hill"]
    assert "is not among this publisher's keys" in drafts.refused["mill"]
    assert "987654321" not in str(drafts.refused)


def test_zones_of_one_batch_get_their_own_demand_each():
    """Whatever the order: prices stay with their zones."""
    heads = {zone: write(None, Wish(until=FIRST, opening=OPENING), zone=zone) for zone in ("a", "b", "c")}
    wish = Wish(until=FIRST)
    tasks = {zone: (head, next_task(head, wish)) for zone, head in heads.items()}
    drafts = desk(FixedNoise()).write(tasks, demand(c=3_000_000, a=1_000_000)).written
    added = 10 * (FIRST % 4 + 1)
    assert drafts["a"].record.price_ticks == int(CURVE.price_ticks(1_000_000 + added))
    assert drafts["c"].record.price_ticks == int(CURVE.price_ticks(3_000_000 + added))
    assert drafts["b"].record.kind is Kind.FORECAST
    assert all(zone == entry.record.zone for zone, entry in drafts.items())


@pytest.mark.parametrize(
    ("wish", "kind", "interval"),
    [
        (Wish(until=FIRST - 1), None, None),
        (Wish(until=0), None, None),
        (Wish(until=FIRST + 5), "release", FIRST),
        (Wish(until=FIRST + 5, in_time_from=FIRST), "release", FIRST),
        (Wish(until=FIRST + 5, in_time_from=FIRST + 1), Kind.WITHHELD, FIRST),
        (Wish(until=FIRST, plan=Change("a" * 64, "b" * 64)), Kind.PLAN, FIRST - 1),
        (Wish(until=FIRST, plan=Change("c" * 64, "b" * 64)), "release", FIRST),
        (Wish(until=FIRST, plan=Change("b" * 64, "a" * 64)), "release", FIRST),
        (Wish(until=FIRST, key=Change(OLD_KEY.public, NEW_KEY.public)), Kind.KEY, FIRST - 1),
        (Wish(until=FIRST, key=Change(NEW_KEY.public, OLD_KEY.public)), "release", FIRST),
        (Wish(until=FIRST, key=Change(OLD_KEY.public, OLD_KEY.public)), "release", FIRST),
        (Wish(until=FIRST, plan=Change("a" * 64, "a" * 64)), "release", FIRST),
    ],
)
def test_the_chain_says_what_is_left_of_a_wish(wish, kind, interval):
    task = next_task(OPEN, wish)
    if kind is None:
        assert task is None
    else:
        assert (task.kind or "release", task.interval) == (kind, interval)


def test_a_chain_that_is_not_open_needs_an_opening():
    assert next_task(None, Wish(until=FIRST)) is None
    assert next_task(None, Wish(until=FIRST, opening=OPENING)).kind is Kind.OPEN
