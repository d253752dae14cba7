"""The record writer: a price from the noised demand, its cost, a signature, and nothing else of the demand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_chains import (
    CURVE,
    FIRST,
    NEW_KEY,
    OLD_KEY,
    OPENING,
    PLANS,
    chain,
    demand,
    record_writer,
    write,
)

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.public_log.record import RecordKind
from murmurate.publisher.desired_state import Change, DesiredState, Opening, find_next_record
from murmurate.publisher.record_writer import RecordWriter
from murmurate.types import UNPROTECTED_KIND

OPEN = write(None, DesiredState(until=FIRST, opening=OPENING))


class FixedNoise:
    """Adds a number that identifies its scale, and records what was requested."""

    test_only = False

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
        head = write(head, DesiredState(until=FIRST + n), 600_000 + n, writer=record_writer(noise))
        slot = (FIRST + n) % 4
        assert noise.asked == [(NoiseDistribution.LAPLACE, [1000.0 * (slot + 1)])]
        record = head.record
        assert record.kind is RecordKind.MEASURED
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
    record = write(OPEN, DesiredState(until=FIRST), writer=record_writer(noise)).record
    assert record.kind is RecordKind.FORECAST
    assert record.price_ticks == int(PLANS["a" * 64].forecast_ticks[FIRST % 4])
    assert (record.noise, record.scale_wh) == ("none", None)
    assert record.total_epsilon_micro == 0
    assert noise.asked == []


@pytest.mark.parametrize(
    ("bounds", "kind"),
    [
        (({"": 999},), RecordKind.MEASURED),
        (({"": 1000, "mill": 9000, UNPROTECTED_KIND: 5000},), RecordKind.MEASURED),
        (({"": 1001},), RecordKind.FORECAST),
        (({"flat": 1001},), RecordKind.FORECAST),
        (({"": 1000, UNPROTECTED_KIND: 5001},), RecordKind.FORECAST),
        (({"": 1000, "inn": 1},), RecordKind.FORECAST),
        (({},), RecordKind.FORECAST),
        ((None,), RecordKind.FORECAST),
        (None, RecordKind.FORECAST),
    ],
)
def test_a_demand_with_a_household_that_the_plan_does_not_hide_is_not_used(bounds, kind):
    noise = FixedNoise()
    drawn = replace(demand(harbour=500_000), bounds=bounds)
    task = find_next_record(OPEN, DesiredState(until=FIRST))
    record = record_writer(noise).write_entries({"harbour": (OPEN, task)}, drawn).written["harbour"].record
    assert record.kind is kind
    assert len(noise.asked) == (kind is RecordKind.MEASURED)


def test_a_flat_with_the_bound_of_a_market_is_not_released_at_any_hour_of_the_day():
    """By day the market's hours are public and the noise is the flats': it would not hide 20,000 Wh."""
    text = EXAMPLE_ZONE_FILE.replace(
        'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', 'promise = ["interval: 0.5"]'
    )
    text = text.replace('public = "always"', 'public = ["08:00-20:00"]').replace("_minutes = 15", "_minutes = 60")
    terms = ReleaseTerms.from_json(make_plan(parse_zone(text)).to_json())
    writer = RecordWriter(
        terms_for_plan={terms.plan_digest: terms}.get, signers={OLD_KEY.public_key: OLD_KEY}, noise=SystemNoise()
    )
    opening = Opening(plan=terms.plan_digest, key=OLD_KEY.public_key, first=FIRST)
    for bounds, kind in (
        ({"": 20_000}, RecordKind.FORECAST),
        ({"flat": 1000, "fish market": 20_000}, RecordKind.MEASURED),
    ):
        head = write(None, DesiredState(until=FIRST, opening=opening), writer=writer)
        for n in range(24):
            task = find_next_record(head, DesiredState(until=FIRST + n))
            drawn = replace(demand(harbour=180_000), bounds=(bounds,))
            head = writer.write_entries({"harbour": (head, task)}, drawn).written["harbour"]
            assert head.record.kind is kind


def test_what_comes_too_late_is_withheld_and_nothing_is_drawn():
    noise = FixedNoise()
    record = write(OPEN, DesiredState(until=FIRST, priced_from=FIRST + 1), 500_000, writer=record_writer(noise)).record
    assert (record.kind, record.price_ticks, record.epsilon_micro) == (RecordKind.WITHHELD, None, 0)
    assert noise.asked == []


class NoiseUpTo:
    """Adds whatever makes the noised demand this one."""

    test_only = False

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
        task = find_next_record(OPEN, DesiredState(until=FIRST))
        written = (
            record_writer(NoiseUpTo(noisy_wh, energy_wh))
            .write_entries({"harbour": (OPEN, task)}, drawn)
            .written["harbour"]
        )
        assert written.record.kind is RecordKind.MEASURED
        lines.add(written.line)
    assert len(lines) == 1


def test_two_drafts_of_one_release_differ_in_their_draw():
    prices = {write(OPEN, DesiredState(until=FIRST), 500_000).record.price_ticks for _ in range(50)}
    assert len(prices) > 1, "fifty draws of noise were all alike"


def test_a_zone_that_cannot_be_written_does_not_keep_the_others_from_it():
    unknown = Opening(plan="c" * 64, key=OLD_KEY.public_key, first=FIRST)
    unknown_key = Opening(plan="a" * 64, key="00" * 32, first=FIRST)
    desired_states = {
        "harbour": DesiredState(until=FIRST, opening=OPENING),
        "hill": DesiredState(until=FIRST, opening=unknown),
        "mill": DesiredState(until=FIRST, opening=unknown_key),
    }
    known = demand(harbour=987_654_321, hill=987_654_321, mill=987_654_321)
    drafts = record_writer().write_entries(
        {zone: (None, find_next_record(None, desired)) for zone, desired in desired_states.items()}, known
    )
    assert set(drafts.written) == {"harbour"}
    assert "must be registered" in drafts.refused["hill"]
    assert "is not among this publisher's keys" in drafts.refused["mill"]
    assert "987654321" not in str(drafts.refused)


def test_zones_of_one_batch_get_their_own_demand_each():
    """Whatever the order: prices stay with their zones."""
    heads = {zone: write(None, DesiredState(until=FIRST, opening=OPENING), zone=zone) for zone in ("a", "b", "c")}
    desired = DesiredState(until=FIRST)
    tasks = {zone: (head, find_next_record(head, desired)) for zone, head in heads.items()}
    drafts = record_writer(FixedNoise()).write_entries(tasks, demand(c=3_000_000, a=1_000_000)).written
    added = 10 * (FIRST % 4 + 1)
    assert drafts["a"].record.price_ticks == int(CURVE.price_ticks(1_000_000 + added))
    assert drafts["c"].record.price_ticks == int(CURVE.price_ticks(3_000_000 + added))
    assert drafts["b"].record.kind is RecordKind.FORECAST
    assert all(zone == entry.record.zone for zone, entry in drafts.items())


@pytest.mark.parametrize(
    ("desired", "kind", "interval"),
    [
        (DesiredState(until=FIRST - 1), None, None),
        (DesiredState(until=0), None, None),
        (DesiredState(until=FIRST + 5), "release", FIRST),
        (DesiredState(until=FIRST + 5, priced_from=FIRST), "release", FIRST),
        (DesiredState(until=FIRST + 5, priced_from=FIRST + 1), RecordKind.WITHHELD, FIRST),
        (DesiredState(until=FIRST, plan_change=Change("a" * 64, "b" * 64)), RecordKind.PLAN, FIRST - 1),
        (DesiredState(until=FIRST, plan_change=Change("c" * 64, "b" * 64)), "release", FIRST),
        (DesiredState(until=FIRST, plan_change=Change("b" * 64, "a" * 64)), "release", FIRST),
        (
            DesiredState(until=FIRST, key_change=Change(OLD_KEY.public_key, NEW_KEY.public_key)),
            RecordKind.KEY,
            FIRST - 1,
        ),
        (DesiredState(until=FIRST, key_change=Change(NEW_KEY.public_key, OLD_KEY.public_key)), "release", FIRST),
        (DesiredState(until=FIRST, key_change=Change(OLD_KEY.public_key, OLD_KEY.public_key)), "release", FIRST),
        (DesiredState(until=FIRST, plan_change=Change("a" * 64, "a" * 64)), "release", FIRST),
    ],
)
def test_the_next_record_follows_from_the_chain_and_the_desired_state(desired, kind, interval):
    task = find_next_record(OPEN, desired)
    if kind is None:
        assert task is None
    else:
        assert (task.kind or "release", task.interval) == (kind, interval)


def test_a_chain_that_is_not_open_needs_an_opening():
    assert find_next_record(None, DesiredState(until=FIRST)) is None
    assert find_next_record(None, DesiredState(until=FIRST, opening=OPENING)).kind is RecordKind.OPEN
