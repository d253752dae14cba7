"""A coin with chance e^(-n/d): its bounds hold, and over all strings of bits it brackets its chance."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import PrivacyError
from murmurate.privacy.noise import bernoulli_exp, exp_bounds


def exponential(numerator, denominator):
    """e^(-n/d) to 400 digits."""
    with localcontext() as context:
        context.prec = 400
        return Fraction((-Decimal(numerator) / Decimal(denominator)).exp())


exponents = st.tuples(st.one_of(st.integers(0, 30), st.integers(0, 2**300)), st.integers(1, 2**300)).filter(
    lambda pair: pair[0] < 500 * pair[1]
)


@given(exponent=exponents, bits=st.sampled_from([8, 32, 64, 200]))
def test_the_bounds_enclose_the_exponential_and_are_next_to_each_other(exponent, bits):
    low, high = exp_bounds(*exponent, bits)
    assert low <= exponential(*exponent) * 2**bits <= high
    assert high - low <= 2


@given(n=st.integers(0, 10**6), d=st.integers(1, 10**6))
def test_the_bounds_narrow_as_bits_are_added(n, d):
    low, high = exp_bounds(n, d, 32)
    finer_low, finer_high = exp_bounds(n, d, 96)
    assert low <= Fraction(finer_high, 2**64)
    assert Fraction(finer_low, 2**64) <= high


class ExhaustedError(Exception):
    """No bits are left, and the coin is still undecided."""


def once(string):
    left = [string]

    def random_bytes(count):
        if len(left[0]) < count:
            raise ExhaustedError
        given, left[0] = left[0][:count], left[0][count:]
        return given

    return random_bytes


def verdict(numerator, denominator, string):
    try:
        return bernoulli_exp([(numerator, denominator)], once(string), word_bytes=1)[0]
    except ExhaustedError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [(1, 3), (1, 1), (5, 1), (7, 1000), (9, 1), (123456789012345678901, 10**20)])
@pytest.mark.parametrize("depth", [1, 2])
def test_over_all_strings_of_bits_the_coin_brackets_its_chance(exponent, depth):
    """Those that say True are at most e^(-n/d) of all, those that say True or nothing at least; few say nothing."""
    verdicts = [verdict(*exponent, bytes(string)) for string in product(range(256), repeat=depth)]
    chance = exponential(*exponent) * 256**depth
    assert verdicts.count(True) <= chance <= verdicts.count(True) + verdicts.count(None)
    assert verdicts.count(None) <= 2


def test_a_coin_that_its_first_bits_leave_undecided_asks_for_more():
    chance = int(exponential(1, 1) * 2**48)
    below, above = ((chance + step).to_bytes(6) for step in (-1, 1))
    assert [verdict(1, 1, string) for string in (below, above)] == [True, False]
    assert verdict(1, 1, below[:5]) is None


def test_many_coins_share_one_call_for_their_first_bits():
    asked = []

    def random_bytes(count):
        asked.append(count)
        return bytes(count)

    assert bernoulli_exp([(n, 1) for n in (0, 1, 2, 40)], random_bytes) == [True] * 4
    assert asked[0] == 16
    assert set(asked[1:]) == {4}


def test_certain_and_impossible_coins_need_no_luck():
    ones = bytes([255] * 4)
    assert bernoulli_exp([(0, 1), (10**30, 1)], lambda count: (ones * 2)[:count]) == [True, False]


@pytest.mark.parametrize(("numerators", "denominator"), [([-1], 2), ([1], 0), ([1], -3)])
def test_an_exponent_that_is_no_chance_is_refused(numerators, denominator):
    with pytest.raises(PrivacyError, match="must have integers n >= 0 and d >= 1"):
        bernoulli_exp([(n, denominator) for n in numerators], bytes)
