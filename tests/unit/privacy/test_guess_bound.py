"""How often a guess is right at most under (epsilon, delta): golden numbers, brute force, and never rounded down."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.privacy.promise import max_guess_probability, round_up_percent

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
