import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from research.paper.simulated_zones import RedrawnConsumption

from murmurate.errors import ModelError
from murmurate.household.consumption import EMPTY_PRICE_HISTORY, RowSelector, TableConsumption, UniformConsumption

EVENING = RowSelector(period=(0, 1), price_steps=(100, 200), price_window=2)


def uniform():
    """Three price levels, two periods: the dearer, the less; away never more than home."""
    home = np.array([[[40, 30]], [[20, 15]], [[10, 5]]]) * np.array([[1], [2]])
    return UniformConsumption.from_ceilings(np.stack([home // 2, home], axis=2), row_selector=EVENING)


def table():
    probability = np.zeros((3, 2, 2, 1, 5))
    for level, period, home in np.ndindex(3, 2, 2):
        probability[level, period, home, 0, : 2 + home + period] = 1 / (2 + home + period)
    return TableConsumption.from_probabilities(probability, kind=[0, 0], row_selector=EVENING)


LAWS = [uniform(), table(), RedrawnConsumption(2)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
@given(
    occupied=st.tuples(st.booleans(), st.booleans()),
    interval=st.integers(0, 500),
    past=st.lists(st.integers(-500, 500), max_size=4),
    seed=st.integers(0, 2**32),
)
def test_consumption_never_exceeds_its_public_bound_and_has_a_law(law, occupied, interval, past, seed):
    past_ticks = np.array(past, np.int64)
    drawn = law.sample(np.array(occupied), interval, past_ticks, np.random.default_rng(seed))
    assert drawn.dtype == np.int64
    for house, home in enumerate(occupied):
        pmf = law.pmf(house, home, interval, past_ticks)
        assert len(pmf) - 1 <= law.bound_wh[house]
        assert pmf.sum() == pytest.approx(1)
        assert pmf[drawn[house]] > 0
        assert law.mean_wh(interval, past_ticks)[int(home), house] == pytest.approx(pmf @ np.arange(len(pmf)))


def test_a_table_that_begins_below_zero_is_the_same_law_lower_by_a_constant():
    law = table()
    columns = {"kind": law.kind, "row_selector": EVENING}
    lower = TableConsumption.from_probabilities(law.probability, **columns, export_bound_wh=3)
    assert lower.bound_wh.tolist() == (law.bound_wh - 3).tolist()
    home, past_ticks = np.array([True, False]), np.array([150])
    for interval in range(4):
        drawn, shifted = (each.sample(home, interval, past_ticks, np.random.default_rng(7)) for each in (law, lower))
        assert shifted.tolist() == (drawn - 3).tolist()
        assert lower.mean_wh(interval, past_ticks) == pytest.approx(law.mean_wh(interval, past_ticks) - 3)
    with pytest.raises(ModelError, match="must be at least 1 Wh, the last column of the table"):
        TableConsumption.from_probabilities(law.probability, **columns, export_bound_wh=3, bound_wh=[0, 0])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_samples_have_the_mean_of_the_law(law):
    rng = np.random.default_rng(1)
    occupied = np.array([True, False])
    drawn = np.array([law.sample(occupied, 1, EMPTY_PRICE_HISTORY, rng) for _ in range(4000)])
    away, home = law.mean_wh(1, EMPTY_PRICE_HISTORY)
    expected, spread = np.array([home[0], away[1]]), drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - expected) < 5 * spread).all()


def test_a_law_may_answer_to_prices_published_earlier():
    law = uniform()
    cheap, dear = np.array([90, 110]), np.array([250, 190])  # means 100 and 220 of the last two
    assert law.row_selector.select_row(0, cheap) == (1, 0)
    assert law.row_selector.select_row(0, np.array([999, 90, 109])) == (0, 0)
    assert law.mean_wh(0, dear)[1].tolist() == [5.0, 2.5]
    assert law.mean_wh(0, EMPTY_PRICE_HISTORY)[1].tolist() == [20.0, 15.0]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: UniformConsumption.from_ceilings([[0, 0], [5, 0]]),
            "bound_wh[1] is 0: must be at least 1 Wh",
        ),
        (
            lambda: UniformConsumption.from_ceilings([[0], [9]], bound_wh=[8]),
            "ceiling_wh[0, 0, 1, 0] is 9: must lie between 0 and bound_wh",
        ),
        (
            lambda: TableConsumption.from_probabilities([[[0.5, 0.4]], [[0.0, 1.0]]], kind=[0]),
            "probability[0, 0, 0, 0] is 0.9: rows must sum to 1",
        ),
        (
            lambda: TableConsumption.from_probabilities([[[0.5, 0.5]], [[0.0, 1.0]]], kind=[0], bound_wh=[0]),
            "bound_wh[0] is 0: must be at least 1 Wh, the last column of the table",
        ),
        (
            lambda: UniformConsumption.from_ceilings([5, 6]),
            "ceiling_wh is shaped (2,): must end in the axes [occupied, household]",
        ),
        (
            lambda: UniformConsumption.from_ceilings([[1, 1], [5, 6]], bound_wh=[9]),
            "ceiling_wh is shaped (1, 1, 2, 2): must be [level, period, occupied, household], here (1, 1, 2, 1)",
        ),
        (
            lambda: RowSelector(period=(-1,)),
            "period is (-1,): must name a row, 0 or more, for each interval of the day",
        ),
        (lambda: RowSelector(price_steps=(3, 3)), "price_steps is (3, 3): must rise"),
        (lambda: RowSelector(price_window=0), "memory is 0: must be at least 1 published price"),
    ],
)
def test_a_law_that_is_no_law_says_what_is_allowed(make, says):
    with pytest.raises(ModelError) as caught:
        make()
    assert str(caught.value) == says
