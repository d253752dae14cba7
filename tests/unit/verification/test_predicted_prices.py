"""Predicted prices: anybody computes each of them again from the log and the plan; whatever is changed is found."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.predicted_zones import (
    FIRST,
    PredictedShard,
    RepeatableNoise,
    plan_text,
    predicted_plan,
    public_forecast,
)
from tests.support.sample_logs import OLD, check, edit_rows, plan, rules

from murmurate.errors import MurmurateError
from murmurate.planning.plan import load_plan
from murmurate.planning.release_terms import compute_plan_digest
from murmurate.public_log.predicted_rows import NO_PRICE, predicted_layout
from murmurate.public_log.tile import ROW_LAYOUT, RowKind, Tile, TileKind, row_dtype
from murmurate.public_log.zone_line import parse_zone_line

SMALL = plan_text(households=3000)
LARGE = plan_text(households=10_000, elasticity=0.2)
ECHO = plan(old='"0.0002"', new='"0.00005"')
PLANS = {"hill": SMALL, "mill": LARGE, "quay": ECHO}
TEXTS = (SMALL, LARGE, ECHO)
HOURS = 30


def expected_wh(interval, households):
    model = predicted_plan().prediction.model
    return households * float(public_forecast().demand.demand_wh(model.locate(interval))[0])


def play(hours=HOURS, plans=PLANS, lead=2):
    """A day and more: measured, without a demand, and too late."""
    shard = PredictedShard(plans, lead=lead)
    for n in range(hours):
        demand = {"hill": 1.2 * expected_wh(FIRST + n, 3000), "mill": 0.9 * expected_wh(FIRST + n, 10_000), "quay": 4e5}
        if n % 7 == 3:
            del demand["mill"]
        shard.release({zone: round(wh) for zone, wh in demand.items() if zone in plans}, late=n in (10, 11))
    return shard


PLAYED = play()
RELEASES = [at for at, tile in enumerate(PLAYED.tiles) if tile.header.kind is TileKind.RELEASE]


@pytest.mark.slow
def test_a_played_day_holds_from_its_tiles_and_from_the_lines_of_each_zone():
    report = check(PLAYED.items(), plans=TEXTS)
    assert (report.is_valid, report.findings) == (True, [])
    assert report.zones["mill"].kinds == {"measured": 25, "fallback": 3, "withheld": 2}
    for zone in PLANS:
        assert check(PLAYED.lines(zone), plans=TEXTS).findings == []


def test_a_row_has_the_documented_columns_and_at_most_220_bytes():
    rows = PLAYED.tiles[-1].rows
    assert PLAYED.tiles[-1].header.row == predicted_layout(2) == f"{ROW_LAYOUT} noisy_wh:i8 states:i4x28 due:i8x1"
    assert rows.dtype.itemsize == 218
    line = parse_zone_line(PLAYED.lines("hill")[-1])
    assert (line.rows == rows[:1]).all()
    assert json.loads(PLAYED.lines("hill")[-1])["row"]["states"] == rows["states"][0].tolist()


class RememberedNoise(RepeatableNoise):
    """Noise that remembers its draws."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def draw(self, distribution, scale_wh, core_wh=None):
        noise = super().draw(distribution, scale_wh, core_wh)
        self.drawn += noise.tolist()
        return noise


def test_what_a_row_shows_is_the_demand_with_the_one_draw_of_its_zone():
    noise, demand_wh = RememberedNoise(), {"hill": 1_234_567, "mill": 4_234_567}
    rows = PredictedShard({"hill": SMALL, "mill": LARGE}, noise=noise).release(demand_wh).rows
    assert len(noise.drawn) == 2
    assert all(noise.drawn)
    assert sorted(rows["noisy_wh"] - list(demand_wh.values())) == sorted(noise.drawn)


def test_the_price_is_made_for_the_interval_that_pays_and_learns_what_the_forecast_does_not_know():
    tile = PLAYED.tiles[-1]
    due = tile.header.interval + tile.header.lead
    curve = predicted_plan().zone.curve
    at_forecast, at_truth = (int(curve.price_ticks(round(part * expected_wh(due, 3000)))) for part in (1.0, 1.2))
    nearer = abs(int(tile.rows["price_ticks"][0]) - at_truth)
    assert nearer < 0.6 * abs(at_forecast - at_truth)


def faded(states):
    """States after an interval without a measurement: the last one, the running square, stays."""
    return states * np.append(predicted_plan().prediction.model.keep, 1.0)


def test_without_a_measurement_the_prediction_is_published_without_an_update():
    without = next(tile for tile in PLAYED.tiles if len(tile.rows) and tile.rows["kind"][1] == RowKind.FALLBACK)
    before = PLAYED.tiles[without.header.seq - 1]
    assert without.rows["noisy_wh"][1] == 0
    assert np.abs(without.rows["states"][1] - faded(before.rows["states"][1])).max() <= 1
    assert without.rows["price_ticks"][1] > 0


def test_a_withheld_row_leaves_the_states_as_they_are():
    late = next(tile for tile in PLAYED.tiles if len(tile.rows) and tile.rows["kind"][0] == RowKind.WITHHELD)
    before = PLAYED.tiles[late.header.seq - 1]
    assert np.array_equal(late.rows["states"], before.rows["states"])
    following = PLAYED.tiles[late.header.seq + 2]
    assert (following.rows["due"] == NO_PRICE).all()


CHANGES = {
    "one tick more": lambda rows: np.add.at(rows["price_ticks"], 0, 1),
    "one tick less": lambda rows: np.add.at(rows["price_ticks"], 1, -1),
    "a state": lambda rows: np.add.at(rows["states"][0], 3, 1),
    "a price that is due": lambda rows: np.add.at(rows["due"][1], 0, 1),
    "the noised demand": lambda rows: np.add.at(rows["noisy_wh"], 0, 50_000),
}


@pytest.mark.slow
@settings(max_examples=60)
@given(at=st.sampled_from(RELEASES), change=st.sampled_from(sorted(CHANGES)))
def test_whatever_is_changed_and_signed_again_is_found(at, change):
    """The signer itself publishes another number than the plan gives: the last tile of the log is such a one."""
    tile, table = PLAYED.tiles[at], PLAYED.tables[PLAYED.tiles[at].header.table]
    edited = edit_rows(tile, table, CHANGES[change], OLD)
    if (edited.rows["kind"] == RowKind.WITHHELD).any():
        return
    if change == "the noised demand" and edited.rows["kind"][0] != RowKind.MEASURED:
        return
    report = check(PLAYED.items([*PLAYED.tiles[:at], edited]), plans=TEXTS)
    assert rules(report) == {"prediction"}
    zone = table.zones[0 if change in {"one tick more", "a state", "the noised demand"} else 1]
    assert {finding.zone for finding in report.findings} == {zone}
    assert rules(check(PLAYED.lines(zone, [*PLAYED.tiles[:at], edited]), plans=TEXTS)) == {"prediction"}


def test_a_zone_does_not_depend_on_the_rows_of_others():
    """Demands of another zone change its rows and prices, and no number of this one."""
    played = [PredictedShard(PLANS) for _ in range(2)]
    for n, factor in enumerate((1.3, 0.4, 1.1)):
        for shard, other in zip(played, (1.0, factor), strict=True):
            demand = {"hill": expected_wh(FIRST + n, 3000), "mill": other * expected_wh(FIRST + n, 10_000)}
            shard.release({zone: round(wh) for zone, wh in demand.items()})
    for column in ("noisy_wh", "states", "due", "price_ticks"):
        one, other = (shard.tiles[-1].rows[column] for shard in played)
        assert np.array_equal(one[0], other[0])
        assert not np.array_equal(one[1], other[1])


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "least", "most"), [(1.0, -0.0015, 0.0015), (1.2, 0.003, 0.04)])
def test_a_log_judges_its_forecast_by_its_last_state(factor, least, most):
    """A month of a right forecast, and of one that is wrong by a fifth every other day, so that nothing learns it."""
    shard = PredictedShard({"hill": LARGE})
    for n in range(28 * 24):
        wrong = factor if n // 24 % 2 else 1 / factor
        shard.release({"hill": round(wrong * expected_wh(FIRST + n, 10_000))})
    assert least < shard.tiles[-1].rows["states"][0, -1] * 1e-9 < most


def test_rows_without_the_columns_are_found():
    echo = PredictedShard({"hill": ECHO, "mill": ECHO})
    tile = echo.release({"hill": 400_000, "mill": 400_000})
    assert tile.header.row == ROW_LAYOUT
    shard = PredictedShard({"hill": SMALL, "mill": LARGE})
    shard.writer.terms_for_plan.__self__.update(dict.fromkeys(shard.terms, next(iter(echo.terms.values()))))
    shard.release({"hill": 400_000, "mill": 400_000})
    assert "prediction" in rules(check(shard.items(), plans=TEXTS))


def with_layout(tile, table, layout, **extensions):
    """The tile with rows of another layout, signed again. Columns that it had before keep their values."""
    rows = np.zeros(len(tile.rows), row_dtype(layout))
    for name in set(rows.dtype.names) & set(tile.rows.dtype.names):
        if rows.dtype[name] == tile.rows.dtype[name]:
            rows[name] = tile.rows[name]
    header = replace(tile.header, row=layout, extensions=tile.header.extensions | extensions)
    return edit_rows(Tile(header, "", rows), table, lambda _: None, OLD)


KNOWN = predicted_layout(2)


@pytest.mark.parametrize(
    ("layout", "holds"),
    [
        (f"{KNOWN} second_price:i8", True),
        (KNOWN.replace(" noisy_wh:i8", " second_price:i8x3 noisy_wh:i8"), True),
        (KNOWN.replace(" noisy_wh:i8 states:i4x28", " states:i4x28 noisy_wh:i8"), True),
        (KNOWN.replace(" due:i8x1", ""), False),
        (KNOWN.replace("states:i4x28", "states:i4x27"), False),
        (KNOWN.replace("states:i4x28", "states:i8x28"), False),
        (KNOWN.replace("noisy_wh:i8", "noisy_wh:i8x2"), False),
        (KNOWN.replace("noisy_wh:i8", "noised_wh:i8"), False),
    ],
)
def test_columns_and_extensions_of_a_later_version_are_skipped_and_known_columns_are_not(layout, holds):
    tiles, table = PLAYED.tiles[:6], PLAYED.tables[PLAYED.tiles[5].header.table]
    later = with_layout(tiles[5], table, layout, in_a_later_version={"of": ["any", "form"]})
    for found in (
        check(PLAYED.items([*tiles[:5], later]), plans=TEXTS),
        check(PLAYED.lines("hill", [*tiles[:5], later]), plans=TEXTS),
    ):
        assert rules(found) == (set() if holds else {"prediction"})
        assert {finding.zone for finding in found.findings} <= {"hill", "mill"}, "the plan of quay does not predict"


@pytest.mark.slow
def test_a_log_that_begins_later_is_checked_as_far_as_it_goes():
    later = PLAYED.items(PLAYED.tiles[5:])
    assert rules(check(later, plans=TEXTS)) == {"gap"}
    tile = PLAYED.tiles[5]
    edited = edit_rows(tile, PLAYED.tables[tile.header.table], CHANGES["one tick more"], OLD)
    assert rules(check(PLAYED.items([edited]), plans=TEXTS)) == {"gap", "prediction"}


@pytest.mark.parametrize("lead", [0, 1, 2, 5])
def test_any_lead_holds(lead):
    assert check(play(12, lead=lead).items(), plans=TEXTS).findings == []


@pytest.mark.slow
def test_states_stay_where_a_plan_changes_and_begin_anew_where_prices_were_not_predicted():
    shard, other = play(8), plan_text(households=3000, promise="any 24 h: epsilon 1/2")
    shard.change_plan("quay", SMALL)
    shard.change_plan("hill", other)
    before = shard.head.last_rows["states"][0]
    shard.release({})
    after = shard.head.last_rows["states"]
    assert np.abs(after[0] - faded(before)).max() <= 1
    assert (after[2] == 0).all()
    assert check(shard.items(), plans=(*TEXTS, other)).findings == []


def test_a_plan_says_how_it_predicts_and_any_other_prediction_is_refused():
    document = json.loads(SMALL)
    assert load_plan(SMALL).prediction.predicted_error == document["prediction"]["predicted_error"]
    assert len(SMALL) < 25_000
    changes = {
        "scale": 2999.0,
        "elasticity": 0.1,
        "reference_ticks": 1,
        "keep": [0.5] * 26,
        "gain": [1e9] * 27,
        "surprise_square": -1,
        "deviation": "a series",
    }
    for name, value in changes.items():
        other = document | {"prediction": document["prediction"] | {name: value}}
        with pytest.raises(MurmurateError):
            load_plan(json.dumps(other | {"digest": compute_plan_digest(other)}))
    without = {name: value for name, value in document.items() if name != "prediction"}
    with pytest.raises(MurmurateError, match="prediction is missing"):
        load_plan(json.dumps(without | {"digest": compute_plan_digest(without)}))


def test_a_zone_that_cannot_be_predicted_does_not_keep_the_others_from_their_prices():
    """Clocks that this machine does not know, or a lead that no row can hold: such a zone is withheld."""
    shard = PredictedShard(PLANS)
    digest = json.loads(SMALL)["digest"]
    its = shard.terms[digest]
    model = its.prediction.model
    other_clocks = replace(model, public=replace(model.public, time_zone="Mars/Crater"))
    shard.terms[digest] = replace(its, prediction=replace(its.prediction, model=other_clocks))
    rows = shard.release({"hill": 400_000, "mill": 4_000_000, "quay": 400_000}).rows
    assert rows["kind"].tolist() == [RowKind.WITHHELD, RowKind.MEASURED, RowKind.MEASURED]
    rows = PredictedShard(PLANS, lead=2000).release({"hill": 400_000, "quay": 400_000}).rows
    assert rows["kind"].tolist() == [RowKind.WITHHELD, RowKind.WITHHELD, RowKind.MEASURED]
