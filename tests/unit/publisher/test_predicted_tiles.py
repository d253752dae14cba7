"""Tiles with predicted prices: their layout, what a row may hold, and zones that cannot be predicted."""

import pytest
from tests.support.predicted_zones import PredictedShard, plan_text
from tests.support.sample_logs import plan

from murmurate.errors import ChainError
from murmurate.public_log.predicted_rows import predicted_layout
from murmurate.public_log.tile import MAX_NUMBERS, ROW_LAYOUT, RowKind, row_dtype
from murmurate.public_log.tile_chain import check_rows

PREDICTED = plan_text(households=3000)
ECHO = plan(old='"0.0002"', new='"0.00005"')


def test_zones_without_a_forecast_keep_the_short_rows():
    shard = PredictedShard({"quay": ECHO})
    for _ in range(3):
        assert shard.release({"quay": 400_000}).rows.dtype == row_dtype(ROW_LAYOUT)


def test_the_long_rows_stay_when_no_zone_has_a_forecast_any_more():
    shard = PredictedShard({"hill": PREDICTED})
    shard.release({"hill": 900_000})
    shard.change_plan("hill", ECHO)
    for _ in range(2):
        assert shard.release({"hill": 900_000}).rows.dtype == row_dtype(predicted_layout(2))


def test_with_a_lead_of_one_no_price_is_due_later():
    shard = PredictedShard({"hill": PREDICTED}, lead=1)
    for _ in range(2):
        rows = shard.release({"hill": 900_000}).rows
        assert rows.dtype == row_dtype(predicted_layout(1))
        assert "due" not in rows.dtype.names


@pytest.mark.parametrize("late", [False, True])
def test_only_a_measured_row_has_a_noised_demand(late):
    shard = PredictedShard({"hill": PREDICTED})
    rows = shard.release({}, late=late).rows.copy()
    assert rows["kind"].tolist() == [RowKind.WITHHELD if late else RowKind.FALLBACK]
    check_rows(rows, ("hill",))
    rows["noisy_wh"] = 5
    with pytest.raises(ChainError, match="noisy_wh"):
        check_rows(rows, ("hill",))


def test_a_zone_that_is_paid_too_late_to_be_predicted_is_withheld_and_the_others_get_their_rows():
    shard = PredictedShard({"hill": PREDICTED, "quay": ECHO}, lead=MAX_NUMBERS + 1)
    rows = shard.release({"hill": 900_000, "quay": 400_000}).rows
    assert rows["kind"].tolist() == [RowKind.WITHHELD, RowKind.MEASURED]
