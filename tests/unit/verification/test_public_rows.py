"""Rows of a plan that reads no meter: anybody computes them again, and a kind that is not the plan's is found."""

import json

import numpy as np
import pytest
from tests.support.predicted_zones import PredictedShard, plan_text, predicted_plan, public_forecast
from tests.support.sample_logs import OLD, check, edit_rows

from murmurate.errors import MurmurateError
from murmurate.planning.plan import load_plan
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.public_log.predicted_rows import NO_PRICE, PredictedZones
from murmurate.public_log.tile import NoiseCode, RowKind

PUBLIC, READING = plan_text(households=60, read_meters=False), plan_text(households=60)
PLANS = {"hill": PUBLIC, "mill": READING}
TEXTS = (PUBLIC, READING)
HILL, MILL = 0, 1


def play(demand_wh, hours=26, plans=PLANS):
    shard = PredictedShard(plans)
    for n in range(hours):
        shard.release(dict.fromkeys(plans, demand_wh), late=n == 5)
    return shard


PLAYED = play(30_000)
LAST = PLAYED.tiles[-1]


def broken_by(edit):
    """What a verifier says after the last rows were changed and signed again."""
    forged = edit_rows(LAST, PLAYED.tables[LAST.header.table], edit, OLD)
    return [each.message for each in check(PLAYED.items([*PLAYED.tiles[:-1], forged]), plans=TEXTS).findings]


@pytest.mark.slow
def test_a_played_day_is_computed_again_from_tiles_and_from_lines():
    report = check(PLAYED.items(), plans=TEXTS)
    assert report.findings == []
    assert report.zones["hill"].kinds == {"public": 25, "withheld": 1}
    assert (report.zones["hill"].total_epsilon_micro, report.zones["hill"].total_rho_micro) == (0, 0)
    assert report.zones["mill"].kinds == {"measured": 25, "withheld": 1}
    for zone in PLANS:
        assert check(PLAYED.lines(zone), plans=TEXTS).findings == []


def test_the_price_is_the_curve_at_the_public_forecast():
    prediction, curve = predicted_plan(60, read_meters=False).prediction, predicted_plan(60).zone.curve
    for tile in PLAYED.tiles[-10:]:
        when = prediction.model.locate(tile.header.interval + 2)
        demand_wh = 61 * float(public_forecast().demand.demand_wh(when)[0])
        assert tile.rows["price_ticks"][HILL] == pytest.approx(int(curve.price_ticks(round(demand_wh))), abs=1)
        assert not tile.rows["states"][HILL].any()


@pytest.mark.parametrize("kind", [RowKind.MEASURED, RowKind.FALLBACK])
def test_another_kind_under_a_plan_that_reads_no_meter_is_found(kind):
    def forge(rows):
        rows["kind"][HILL] = kind
        if kind is RowKind.MEASURED:
            rows["noise"][HILL], rows["scale_wh"][HILL] = NoiseCode.LAPLACE, rows["scale_wh"][MILL]

    assert any(f"kind is {kind.name.lower()}: the plan reads no meter" in words for words in broken_by(forge))


def test_a_public_row_under_a_plan_that_reads_meters_is_found():
    def forge(rows):
        for name in ("noise", "scale_wh", "epsilon_micro", "noisy_wh"):
            rows[name][MILL] = 0
        rows["total_epsilon_micro"][MILL] = PLAYED.tiles[-2].rows["total_epsilon_micro"][MILL]
        rows["kind"][MILL] = RowKind.PUBLIC

    assert any("kind is public: the plan reads meters" in words for words in broken_by(forge))


@pytest.mark.parametrize(("column", "words"), [("price_ticks", "the plan predicts"), ("states", "states are not")])
def test_a_price_or_states_that_hold_anything_else_are_found(column, words):
    def forge(rows):
        rows[column][HILL] += 1000

    assert any(words in each for each in broken_by(forge))


def test_a_first_row_whose_states_are_not_0_is_found_without_the_rows_before():
    """A reader of a part of the log has nothing to carry over: the price alone must show it."""
    forged = PLAYED.tiles[-1].rows.copy()
    forged["states"][HILL] = 100_000_000
    from_states = plan_price(forged, READING)
    assert from_states[HILL] != plan_price(forged, PUBLIC)[HILL] == LAST.rows["price_ticks"][HILL]


def plan_price(rows, text):
    its = ReleaseTerms.from_json(text)
    return PredictedZones(rows, [its, its], {}).price(rows["states"].astype(np.int64), LAST.header.interval, 2)


@pytest.mark.slow
def test_what_was_learnt_ends_where_no_meter_is_read_and_learning_begins_again_after():
    shard = PredictedShard({"hill": READING})
    for _ in range(30):
        shard.release({"hill": 90_000})
    learnt = shard.tiles[-1]
    assert learnt.rows["states"].any()
    shard.change_plan("hill", PUBLIC)
    shard.release({}, late=True)
    withheld = shard.tiles[-1].rows
    assert (withheld["kind"][0], withheld["states"].tolist()) == (RowKind.WITHHELD, learnt.rows["states"].tolist())
    first = shard.release({"hill": 90_000}).rows
    assert (first["kind"][0], first["states"].any()) == (RowKind.PUBLIC, False)
    assert first["price_ticks"][0] == plan_price_at(shard.tiles[-1].header.interval)
    assert first["due"][0, 0] == NO_PRICE  # the withheld one
    assert shard.release({}).rows["due"][0, 0] == first["price_ticks"][0]
    shard.change_plan("hill", READING)
    again = shard.release({"hill": 90_000}).rows
    assert (again["kind"][0], again["states"].any()) == (RowKind.MEASURED, True)
    assert np.abs(again["states"]).max() < np.abs(learnt.rows["states"]).max()
    report = check(shard.items(), plans=TEXTS)
    assert report.findings == []
    assert report.zones["hill"].kinds == {"measured": 31, "withheld": 1, "public": 2}


def plan_price_at(interval):
    """The price of a zone that never read a meter."""
    shard = PredictedShard({"hill": PUBLIC})
    while shard.next_interval() <= interval:
        price = shard.release({}).rows["price_ticks"][0]
    return price


@pytest.mark.parametrize(
    "change",
    [
        lambda prediction: prediction.pop("read_meters"),
        lambda prediction: prediction.update(read_meters=True),
        lambda prediction: prediction.update(read_meters=0),
        lambda prediction: prediction.update(gain=[0.1] * 27),
    ],
)
def test_a_plan_that_says_another_thing_than_its_zone_file_is_refused(change):
    document = json.loads(PUBLIC)
    change(document["prediction"])
    document["digest"] = compute_plan_digest({name: value for name, value in document.items() if name != "digest"})
    with pytest.raises(MurmurateError):
        load_plan(json.dumps(document))


def test_a_plan_that_reads_meters_does_not_name_the_choice():
    assert "read_meters" not in json.loads(READING)["prediction"]
    assert json.loads(PUBLIC)["prediction"]["read_meters"] is False
    assert load_plan(PUBLIC).prediction.read_meters is False


def test_no_clipping_counts_in_the_error_of_the_forecast_alone():
    prediction = predicted_plan(60, read_meters=False).prediction
    assert not prediction.gain.any()
    assert prediction.predicted_error > predicted_plan(60).prediction.predicted_error
