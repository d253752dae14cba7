"""The desk: a price from the noised demand under the plan, its cost, a digest nobody can guess, a signature."""

import hmac
from hashlib import sha256

import numpy as np
import pytest

from murmurate.privacy.noise import NoiseLaw
from murmurate.publication.record import Kind
from murmurate.publication.wish import Change, Opening, Wish, next_task
from murmurate.quantities import Demand
from tests.publication.chains import (
    CURVE,
    FIRST,
    INPUT_KEY,
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

    def draw(self, law, scale_wh):
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
    assert (record.noise, record.scale_wh, record.input) == ("none", None, None)
    assert record.total_epsilon_micro == 0
    assert noise.asked == []


@pytest.mark.parametrize(("largest_wh", "kind"), [(999, Kind.MEASURED), (1000, Kind.MEASURED), (1001, Kind.FORECAST)])
def test_a_demand_with_a_meter_that_the_plan_does_not_hide_is_not_used(largest_wh, kind):
    noise, column = FixedNoise(), np.array([500_000])
    drawn = Demand(
        zones=("harbour",), energy_wh=column, reported=column, imputed=column, largest_bound_wh=np.array([largest_wh])
    )
    task = next_task(OPEN, Wish(until=FIRST))
    record = desk(noise).write({"harbour": (OPEN, task)}, drawn).written["harbour"].record
    assert record.kind is kind
    assert len(noise.asked) == (kind is Kind.MEASURED)


def test_what_comes_too_late_is_withheld_and_nothing_is_drawn():
    noise = FixedNoise()
    record = write(OPEN, Wish(until=FIRST, in_time_from=FIRST + 1), 500_000, at=desk(noise)).record
    assert (record.kind, record.price_ticks, record.epsilon_micro) == (Kind.WITHHELD, None, 0)
    assert noise.asked == []


def test_the_input_digest_needs_the_key():
    record = write(OPEN, Wish(until=FIRST), 500_000).record
    text = f"harbour|21600|{FIRST}|500000|7|0"
    assert record.input == hmac.new(INPUT_KEY, text.encode(), sha256).hexdigest()
    assert record.input != sha256(text.encode()).hexdigest()


def test_two_drafts_of_one_release_differ_in_their_draw_and_not_in_their_input():
    one, other = (write(OPEN, Wish(until=FIRST), 500_000).record for _ in range(2))
    assert one.input == other.input
    assert any(write(OPEN, Wish(until=FIRST), 500_000).record.price_ticks != one.price_ticks for _ in range(50)), (
        "fifty draws of noise were all alike"
    )


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
    """Whatever the order: the digests and prices stay with their zones."""
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
