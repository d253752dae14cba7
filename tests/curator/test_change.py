"""From one plan to the next: no window and no moment that sees both costs more than was promised."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmurate.curator.change import refuse_change
from murmurate.curator.plan import make_plan, prove
from murmurate.curator.zonefile import parse_zone
from murmurate.errors import PrivacyError
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import parse_promise

ZONE = """
name = "hill"
currency = "EUR"
interval_minutes = 360
promise = ["{promise}"]
[tariff]
alpha = "0.0002"
beta = "0.08"
tick = "0.00001"
[occupancy.resident]
periods = {{ night = "00:00", day = "12:00" }}
arrive = {{ night = 0.4, day = 0.3 }}
leave = {{ night = 0.2, day = 0.5 }}
[[households]]
name = "flat"
count = 10
bound_wh = {bound}
away = {{ uniform_to = 30 }}
home = {{ uniform_to = 60 }}
occupancy = "resident"
"""


def zone(promise="any 24 h: epsilon 1", bound=100):
    return parse_zone(ZONE.format(promise=promise, bound=bound))


@pytest.fixture(scope="module")
def plan():
    return make_plan(zone())


def test_a_plan_may_follow_itself(plan):
    refuse_change(plan, plan)


def test_more_noise_may_follow_less_and_less_may_follow_more(plan):
    stricter = make_plan(zone("any 24 h: epsilon 1/2"))
    refuse_change(plan, stricter)
    refuse_change(stricter, plan)


def scales(*losses):
    """Noise under which each interval of the day costs so much epsilon, for a bound of 100 Wh."""
    return 100 / np.array(losses)


def test_two_right_plans_may_make_a_wrong_window_together(plan):
    mornings = prove(plan.zone, plan.law, scales(0.4, 0.4, 0.1, 0.1))
    evenings = prove(plan.zone, plan.law, scales(0.1, 0.1, 0.4, 0.4))
    with pytest.raises(PrivacyError, match="must keep both promises"):
        refuse_change(mornings, evenings)
    refuse_change(mornings, evenings, quiet=3)
    with pytest.raises(PrivacyError):
        refuse_change(mornings, evenings, quiet=2)


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.01, 0.35), min_size=8, max_size=8),
    st.integers(0, 3),
)
def test_no_straddling_window_of_an_allowed_change_breaks_the_promise(losses, first):
    """Brute force: every window of four intervals around the change, at every hour of the change."""
    day, other = np.array(losses[:4]), np.array(losses[4:])
    home = zone()
    try:
        before, after = (prove(home, NoiseLaw.LAPLACE, 100 / losses) for losses in (day, other))
        refuse_change(before, after)
    except PrivacyError:
        return
    for of_before in range(1, 4):
        spent = sum((day if n < of_before else other)[(first + n) % 4] for n in range(4))
        assert spent <= 1 + 1e-9


def test_another_description_of_the_same_households_must_wait(plan):
    wider = make_plan(zone(bound=200))
    with pytest.raises(PrivacyError, match="'flat'"):
        refuse_change(plan, wider)
    refuse_change(plan, wider, quiet=3)


def test_new_households_need_no_wait(plan):
    newcomers = replace(plan.zone.kinds[0], name="villa")
    refuse_change(plan, prove(replace(plan.zone, kinds=(*plan.zone.kinds, newcomers)), plan.law, plan.scale_wh))


def test_more_households_of_a_kind_change_nothing(plan):
    more = replace(plan.zone, kinds=(replace(plan.zone.kinds[0], count=99),))
    refuse_change(plan, prove(more, plan.law, plan.scale_wh))


def test_no_wait_is_long_enough_where_a_moment_is_promised(plan):
    moment = replace(plan, zone=replace(plan.zone, promises=(parse_promise("any moment: 1", 4),)))
    wider = make_plan(zone(bound=200))
    with pytest.raises(PrivacyError, match="without moments"):
        refuse_change(moment, wider, quiet=10**6)


def test_another_noise_or_clock_must_wait(plan):
    gaussian = make_plan(
        parse_zone(
            ZONE.format(promise="any 24 h: epsilon 1, delta 1e-6", bound=100).replace(
                "[tariff]", 'noise = "gaussian"\n[tariff]'
            )
        )
    )
    with pytest.raises(PrivacyError, match="noise is gaussian"):
        refuse_change(plan, gaussian)
    hourly = make_plan(parse_zone(ZONE.format(promise="any 24 h: epsilon 1", bound=100).replace("360", "60")))
    with pytest.raises(PrivacyError, match="open a new chain"):
        refuse_change(plan, hourly, quiet=10**6)
