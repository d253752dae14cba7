"""Zones of a shard learn from each other: each price still follows from the header and the zone's own rows."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.predicted_zones import (
    FIRST,
    PredictedShard,
    RepeatableNoise,
    plan_text,
    predicted_plan,
    public_forecast,
)
from tests.support.sample_logs import OLD, check, rules

from murmurate.prediction.public_inputs import NO_INPUTS
from murmurate.prediction.structural_filter import COMMON, gain_at
from murmurate.public_log.predicted_rows import Pool, PredictedZones, carry_over
from murmurate.public_log.tile import RowKind, sign_tile

HOMES, ZONES = 3000, 12
POOLED = plan_text(households=HOMES, pool_homes=HOMES * (ZONES - 1))
ALONE = plan_text(households=HOMES)
NAMES = [f"zone {n:02}" for n in range(ZONES)]


def expected_wh(interval):
    return HOMES * float(public_forecast().demand.demand_wh(predicted_plan().prediction.model.locate(interval))[0])


def play(text, hours, factor=1.3, seed=1, missing=()):
    """All zones use `factor` times what was forecast; those in `missing` have no measurement."""
    shard = PredictedShard(dict.fromkeys(NAMES, text), noise=RepeatableNoise(seed))
    for n in range(hours):
        demand_wh = round(factor * expected_wh(FIRST + n))
        shard.release({zone: demand_wh for zone in NAMES if zone not in missing})
    return shard


def price_errors(shard, hours, factor=1.3):
    """How far the last prices are from those of the true demand [zone]."""
    curve = predicted_plan().zone.curve
    truth = int(curve.price_ticks(round(factor * expected_wh(FIRST + hours + 1))))
    return np.abs(shard.tiles[-1].rows["price_ticks"] - truth)


@pytest.mark.slow
def test_a_pooled_day_holds_from_its_tiles_and_from_the_lines_of_each_zone():
    shard = play(POOLED, 6, missing=NAMES[3:5])
    assert check(shard.items(), plans=(POOLED,)).findings == []
    for zone in NAMES[:5]:
        assert check(shard.lines(zone), plans=(POOLED,)).findings == []


@pytest.mark.slow
def test_zones_that_are_pooled_are_nearer_to_what_everybody_does():
    """A wave of demand that the forecast does not know: an hour after it began, all zones together see it."""
    errors = {
        text: np.mean([price_errors(play(text, 2, seed=seed), 2).mean() for seed in range(5)])
        for text in (POOLED, ALONE)
    }
    assert errors[POOLED] < 0.8 * errors[ALONE]


def test_a_zone_without_a_measurement_learns_from_the_others():
    pooled, alone = (play(text, 3, missing=NAMES[:1]) for text in (POOLED, ALONE))
    assert alone.tiles[-1].rows["states"][0].tolist() == [0] * 22
    assert price_errors(pooled, 3)[0] < 0.9 * price_errors(alone, 3)[0]


def test_a_zone_does_not_use_its_own_noise_twice():
    """The pool of a zone is what the others show: a draw of its own moves its states as it does without a pool."""
    shard = play(POOLED, 1)
    tile, terms = shard.tiles[-1], [next(iter(shard.terms.values()))] * ZONES
    moved = tile.rows.copy()
    moved["noisy_wh"][0] += 100_000
    carried = carry_over(None, ZONES, 2)
    after = []
    for rows in (tile.rows, moved):
        predicted = PredictedZones(rows, terms, NO_INPUTS)
        measures = predicted.measure(rows, carried, tile.header.interval, 2)
        pool = predicted.pool(measures)
        after.append((predicted.step(rows, carried, tile.header.interval, measures, pool), measures, pool))
    (states, measures, pool), (moved_states, moved_measures, moved_pool) = after
    assert moved_pool.residual_wh - pool.residual_wh == 100_000
    assert (measures.residual_wh - moved_measures.residual_wh)[1:].tolist() == [0] * (ZONES - 1)
    others = moved_states[1:] - states[1:]
    assert np.abs(others).max() > 0  # they see it
    zone, shift = terms[0].prediction, 100_000 / measures.weight_wh[0]
    when = zone.model.locate(tile.header.interval)
    loading, hour = zone.model.loadings(when), int(when.hour[0])
    by_zone, by_pool = (gain_at(gain[hour][:, None], loading)[:, 0] for gain in (zone.zone_gain, zone.pool_gain))
    expected = by_zone * shift - by_pool * float((by_zone * shift)[COMMON] @ loading[COMMON])
    assert np.abs((moved_states[0] - states[0]) * 1e-9 - expected).max() < 2e-9


@pytest.mark.parametrize(("measured", "used"), [(12, True), (7, True), (6, False), (2, False)])
def test_a_pool_of_few_households_is_not_used(measured, used):
    """Gains are made for a number of households. With less than half of them, the noise would be too large."""
    states = []
    for factor in (1.1, 1.3):
        shard = PredictedShard(dict.fromkeys(NAMES, POOLED))
        demand = dict.fromkeys(NAMES[:measured], round(factor * expected_wh(FIRST)))
        rows = shard.release(demand | {NAMES[0]: round(expected_wh(FIRST))}).rows
        states.append(rows["states"][0])
    assert (not np.array_equal(*states)) == used


@pytest.mark.parametrize("member", Pool._fields)
def test_a_pool_that_the_rows_do_not_add_up_to_is_found(member):
    shard = play(POOLED, 3)
    last = shard.tiles[-1]
    pool = last.header.extensions["pool"]
    changed = {"pool": pool | {member: pool[member] + 1}}
    edited = sign_tile(replace(last.header, extensions=changed), OLD, last.rows)
    report = check(shard.items([*shard.tiles[:-1], edited]), plans=(POOLED,))
    assert rules(report) == {"prediction"}
    assert any(finding.zone == "" and "add up to" in finding.message for finding in report.findings)


@pytest.mark.parametrize(
    "extensions",
    [
        {},
        {"pool": 3},
        {"pool": {"homes": 1}},
        {"pool": dict.fromkeys(Pool._fields, "1")},
        {"pool": dict.fromkeys(Pool._fields, 10**30)},
    ],
)
def test_a_header_without_a_readable_pool_is_found(extensions):
    shard = play(POOLED, 1)
    last = shard.tiles[-1]
    edited = sign_tile(replace(last.header, extensions=extensions), OLD, last.rows)
    assert rules(check(shard.items([*shard.tiles[:-1], edited]), plans=(POOLED,))) == {"prediction"}
    assert rules(check(shard.lines(NAMES[0], [*shard.tiles[:-1], edited]), plans=(POOLED,))) == {"prediction"}


def test_withheld_and_forecast_rows_add_nothing_to_the_pool():
    shard = play(POOLED, 1, missing=NAMES)
    assert (shard.tiles[-1].rows["kind"] == RowKind.FALLBACK).all()
    assert shard.tiles[-1].header.extensions == Pool().to_extensions()
    shard.release({}, late=True)
    assert shard.tiles[-1].header.extensions == Pool().to_extensions()
