from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import MurmurateError
from murmurate.privacy.promise import (
    PROMISE_EXAMPLES,
    IntervalPromise,
    MomentPromise,
    WindowPromise,
    max_guess_probability,
    parse_promise,
    round_up_percent,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval: 0.5", IntervalPromise(Fraction(1, 2))),
        ("interval: epsilon 1/3", IntervalPromise(Fraction(1, 3))),
        ("any moment: 1", MomentPromise(Fraction(1))),
        (" any 24 h: epsilon 1, delta 1e-6 ", WindowPromise(96, Fraction(1), Fraction(1, 10**6), "24 h")),
        ("any 7 days: epsilon 2", WindowPromise(672, Fraction(2), Fraction(0), "7 days")),
        ("any 3 intervals: epsilon 0.1", WindowPromise(3, Fraction(1, 10), Fraction(0), "3 intervals")),
    ],
)
def test_a_promise_reads_as_it_is_said(text, expected):
    assert parse_promise(text, 96) == expected


@given(
    st.one_of(
        st.builds(IntervalPromise, st.fractions(Fraction(1, 1000), 50, max_denominator=1000)),
        st.builds(MomentPromise, st.fractions(Fraction(1, 1000), 50, max_denominator=1000)),
    )
)
def test_a_promise_printed_is_the_promise_read_but_for_six_digits(promise):
    again = parse_promise(str(promise), 96)
    assert type(again) is type(promise)
    field = "epsilon" if isinstance(promise, IntervalPromise) else "leakage"
    assert float(getattr(again, field)) == pytest.approx(float(getattr(promise, field)), rel=1e-5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("interval: 0", "epsilon is 0: must be positive"),
        ("any 10 h: epsilon 1, delta 2", "delta is 2: must lie between 1e-12 and 1, for example 1e-6"),
        ("any 0.1 h: epsilon 1", "promise is 'any 0.1 h: epsilon 1': the window must be a whole number of intervals"),
        (
            "quite private",
            f"promise is 'quite private': must read like {PROMISE_EXAMPLES}",
        ),
        ("interval: 1/0", 'epsilon is 1/0: must be a finite number such as 0.5 or "1/3"'),
    ],
)
def test_what_is_no_promise_says_how_one_reads(text, says):
    with pytest.raises(MurmurateError) as caught:
        parse_promise(text, 96)
    assert str(caught.value) == says


# --- how often a guess is right at most under (epsilon, delta): golden numbers, brute force, and never rounded down


EPSILONS = st.fractions(min_value=0, max_value=12, max_denominator=10**6)
DELTAS = st.sampled_from([Fraction(0), Fraction(1, 10**9), Fraction(1, 10**6), Fraction(1, 20)])


@pytest.mark.parametrize(
    ("epsilon", "delta", "whole", "tenths"),
    [
        ("0", "0", 50, "50"),
        ("0.1", "0", 53, "52.5"),
        ("0.5", "0", 63, "62.3"),
        ("1", "0", 74, "73.2"),  # 73.1058...: 73 would claim too much
        ("1", "1e-6", 74, "73.2"),
        ("1", "0.01", 74, "73.4"),
        ("1.0986122", "0", 75, "75"),  # below ln 3
        ("1.0986123", "0", 76, "75.1"),  # above ln 3
        ("3", "0", 96, "95.3"),
        ("1000", "0", 100, "100"),
        ("0.1", "1", 100, "100"),
    ],
)
def test_golden_numbers(epsilon, delta, whole, tenths):
    bound = max_guess_probability(Fraction(epsilon), Fraction(delta))
    assert round_up_percent(bound) == whole
    assert round_up_percent(bound, 1) == Fraction(tenths)


@given(epsilon=EPSILONS, delta=DELTAS)
def test_no_bound_is_below_the_truth_and_none_is_far_above(epsilon, delta):
    with localcontext() as context:
        context.prec = 60
        odds = (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp()
        share = Decimal(delta.numerator) / Decimal(delta.denominator)
        truth = Fraction((odds + share) / (1 + odds))
    bound = max_guess_probability(epsilon, delta)
    assert truth - Fraction(1, 10**50) <= bound <= truth + Fraction(1, 10**15)
    assert 100 * bound <= round_up_percent(bound, 1) <= round_up_percent(bound) < 100 * bound + 1


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 50)])
def test_randomised_response_reaches_the_bound_and_no_rule_of_guessing_exceeds_it(delta):
    """The worst (epsilon, delta) mechanism for one bit: with delta it tells the secret, otherwise it lies sometimes."""
    odds = Fraction(3)
    told = {secret: {"sure 0": Fraction(0), "sure 1": Fraction(0)} for secret in (0, 1)}
    for secret in (0, 1):
        told[secret][f"sure {secret}"] = delta
        told[secret] |= {n: (1 - delta) * (odds if n == secret else 1) / (1 + odds) for n in (0, 1)}
    outputs = list(told[0])
    best = max(
        sum(told[guess][output] for output, guess in zip(outputs, rule, strict=True)) / 2
        for rule in product((0, 1), repeat=len(outputs))
    )
    epsilon = Fraction("1.09861228866811")  # just above ln 3
    assert best == (odds + delta) / (1 + odds)
    assert best <= max_guess_probability(epsilon, delta) <= best + Fraction(1, 10**12)
