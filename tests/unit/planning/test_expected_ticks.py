"""The price that a plan expects: that of its forecast, for the interval that pays, where prices are predicted."""

from tests.support.predicted_zones import FIRST, PredictedShard, plan_text
from tests.support.sample_logs import PLAN

from murmurate.planning.release_terms import ReleaseTerms

LEAD, HOURS = 2, 60
PUBLIC = plan_text(households=60, read_meters=False)


def test_a_plan_that_reads_no_meter_expects_each_price_that_it_will_have():
    terms, shard = ReleaseTerms.from_json(PUBLIC), PredictedShard({"hill": PUBLIC}, lead=LEAD)
    prices = [shard.release({}).rows["price_ticks"][0] for _ in range(HOURS)]
    paid = range(FIRST + LEAD, FIRST + LEAD + HOURS)
    assert prices == terms.expected_ticks(paid, LEAD)
    assert prices == [terms.expected_ticks(range(n, n + 1), LEAD)[0] for n in paid]


def test_before_any_release_a_plan_that_reads_meters_expects_the_same():
    with_meters, without = (ReleaseTerms.from_json(text) for text in (plan_text(households=60), PUBLIC))
    days = range(FIRST, FIRST + 24 * 9)
    assert with_meters.expected_ticks(days, LEAD) == without.expected_ticks(days, LEAD)
    assert len(set(without.expected_ticks(days, LEAD))) > 24  # days differ


def test_without_a_forecast_the_demand_of_the_measured_interval_decides():
    terms = ReleaseTerms.from_json(PLAN)
    ticks = terms.forecast_ticks.tolist()
    for days in (range(FIRST, FIRST + 30), range(FIRST + 5, FIRST + 5), range(LEAD, LEAD + len(ticks))):
        assert terms.expected_ticks(days, LEAD) == [ticks[(n - LEAD) % len(ticks)] for n in days]
