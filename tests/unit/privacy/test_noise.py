import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmurate.errors import PrivacyError
from murmurate.privacy import noise as noise_module
from murmurate.privacy.divergence import HuberDistribution, huber_log_pmf
from murmurate.privacy.noise import (
    NoiseDistribution,
    SeededNoise,
    SystemNoise,
    bernoulli_exp,
    draw_gaussian_noise,
    draw_huber_noise,
    exp_bounds,
    gaussian_exponent,
    huber_exponent,
    laplace_log_pmf,
    opendp_laplace,
    proposal_scale,
)

SCALES = [1.2, 2.0, 3.7, 14.0, 127.3]
DRAWS = 60_000
HUBER_DRAWS = 60_000


LAWS = pytest.mark.parametrize(
    "law", [NoiseDistribution.LAPLACE, NoiseDistribution.GAUSSIAN], ids=lambda law: law.value
)
HUBERS = [(4.9, 10), (1.0, 2), (2.5, 40), (30.0, 40), (25_702.064, 53_293)]  # scale, core


def log_pmf(law, lattice, scale, core):
    if law is NoiseDistribution.HUBER:
        return huber_log_pmf(lattice, scale, core)
    if law is NoiseDistribution.LAPLACE:
        return laplace_log_pmf(lattice, scale)
    weight = -((lattice / scale) ** 2) / 2
    return weight - np.log(np.exp(weight).sum())


def chi_squared_p(law, drawn, scale, core=0):
    """p-value of the draws under their law on the lattice, in at most 41 bins of more than 10 expected draws."""
    reach = int(60 * scale) + 40 + core
    lattice = np.arange(-reach, reach + 1)
    mass = np.exp(log_pmf(law, lattice, scale, core))
    cuts = np.searchsorted(np.cumsum(mass), np.linspace(0.002, 0.998, 40)) - reach
    edges = np.array([-reach, *np.unique(cuts), reach])
    bin_of = np.searchsorted(edges, lattice, side="right").clip(1, len(edges) - 1)
    expected = len(drawn) * np.bincount(bin_of, weights=mass)[1:]
    counts = np.bincount(np.searchsorted(edges, drawn, side="right").clip(1, len(edges) - 1), minlength=len(edges))[1:]
    assert expected.min() > 10
    return stats.chisquare(counts, expected * len(drawn) / expected.sum()).pvalue


@LAWS
@pytest.mark.parametrize("scale", SCALES)
def test_seeded_noise_has_its_distribution(law, scale):
    drawn = SeededNoise(20261115).draw(law, np.full(DRAWS, scale))
    assert chi_squared_p(law, drawn, scale) > 1e-3


@pytest.mark.slow
@LAWS
@pytest.mark.parametrize("scale", SCALES)
def test_system_noise_has_its_law(law, scale):
    """Not seeded, so one fair run in a million fails; a scale 5 % off never passes (next test)."""
    drawn = SystemNoise().draw(law, np.full(DRAWS, scale))
    assert chi_squared_p(law, drawn, scale) > 1e-6


@pytest.mark.slow
@LAWS
@pytest.mark.parametrize("scale", [2.0, 127.3])
def test_the_distribution_test_sees_a_scale_that_is_five_percent_short(law, scale):
    drawn = SystemNoise().draw(law, np.full(DRAWS, 0.95 * scale))
    assert chi_squared_p(law, drawn, scale) < 1e-6


def huber(noise, draws, scale, core):
    return noise.draw(NoiseDistribution.HUBER, np.full(draws, scale), np.array(core))


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "core"), HUBERS)
def test_huber_noise_has_its_law(scale, core):
    """Not seeded, so one fair run in 10^8 fails for each; a wrong core never passes (next tests)."""
    assert chi_squared_p(NoiseDistribution.HUBER, huber(SystemNoise(), HUBER_DRAWS, scale, core), scale, core) > 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "core"), [(4.9, 10), (30.0, 40)])
def test_the_distribution_test_sees_huber_noise_of_another_core(scale, core):
    drawn = huber(SystemNoise(), DRAWS, scale, core + core // 4)
    assert chi_squared_p(NoiseDistribution.HUBER, drawn, scale, core) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "core"), HUBERS)
def test_a_million_seeded_draws_have_their_distribution_and_a_core_four_percent_wider_has_another(scale, core):
    right, wrong = (huber(SeededNoise(1), 10**6, scale, wide) for wide in (core, int(np.ceil(1.04 * core))))
    assert chi_squared_p(NoiseDistribution.HUBER, right, scale, core) > 1e-3
    assert chi_squared_p(NoiseDistribution.HUBER, wrong, scale, core) < 1e-8


def test_without_a_core_huber_noise_is_laplace_noise_draw_by_draw():
    scales = np.linspace(0, 5000, 500)
    one, other = SeededNoise(4), SeededNoise(4)
    for _ in range(2):
        drawn = one.draw(NoiseDistribution.HUBER, scales, np.zeros(500, np.int64))
        assert drawn.tolist() == other.draw(NoiseDistribution.LAPLACE, scales).tolist()


def test_seeded_laplace_and_gaussian_draws_stay_as_they_were():
    """Golden: the noise of a seed stays what it was."""
    scales = np.array([2000.0, 4000.0, 0.0, 1.5])
    noise = SeededNoise(7)
    assert noise.draw(NoiseDistribution.LAPLACE, scales).tolist() == [1002, -9434, 0, -3]
    assert noise.draw(NoiseDistribution.GAUSSIAN, scales).tolist() == [527, -2397, 0, -1]


def test_each_entry_has_its_own_core():
    scales, cores = np.full((2, 3000), 10.0), np.array([[0], [1000]])
    for noise in (SystemNoise(), SeededNoise(5)):
        drawn = noise.draw(NoiseDistribution.HUBER, scales, cores)
        assert drawn.shape == (2, 3000)
        assert drawn[0].std() == pytest.approx(2**0.5 * 10, rel=0.2)
        assert drawn[1].std() == pytest.approx(100, rel=0.2)


@pytest.mark.parametrize("noise", [SystemNoise(), SeededNoise(1)], ids=["system", "seeded"])
@pytest.mark.parametrize(
    ("law", "core", "says"),
    [
        (NoiseDistribution.HUBER, None, "core_wh is missing: must be given for Huber noise and no other"),
        (NoiseDistribution.LAPLACE, np.array([0, 0]), "core_wh is given: must be given for Huber noise and no other"),
        (NoiseDistribution.GAUSSIAN, np.array([0, 0]), "core_wh is given: must be given for Huber noise and no other"),
        (NoiseDistribution.HUBER, np.array([1, -1]), "core_wh[1] is -1: must lie between 0 and 2**40 Wh"),
        (NoiseDistribution.HUBER, np.array(2**40 + 1), "core_wh[0] is 1099511627777: must lie between 0 and 2**40 Wh"),
        (
            NoiseDistribution.HUBER,
            np.array([1.5, 2.0]),
            "core_wh is float64: must be whole numbers that fit in 64 bits",
        ),
        (
            NoiseDistribution.HUBER,
            np.array([1, 2, 3]),
            "core_wh is shaped (3,): must be one core, or one per scale: (2,)",
        ),
    ],
)
def test_a_core_belongs_to_huber_noise_alone(noise, law, core, says):
    with pytest.raises(PrivacyError) as caught:
        noise.draw(law, np.array([5.0, 6.0]), core)
    assert str(caught.value).startswith(says)


def test_nothing_is_drawn_for_nobody():
    for noise in (SystemNoise(), SeededNoise(1)):
        for law in NoiseDistribution:
            core = np.zeros(0, np.int64) if law is NoiseDistribution.HUBER else None
            assert noise.draw(law, np.zeros(0), core).tolist() == []


@LAWS
def test_each_entry_has_its_own_scale(law):
    scales = np.tile([1.0, 999.3, 250_000.9], 2000)
    for noise in (SystemNoise(), SeededNoise(5)):
        sizes = np.abs(noise.draw(law, scales)).reshape(2000, 3).mean(axis=0)
        assert (0.5 * scales[:3] < sizes).all()
        assert (sizes < 2 * scales[:3]).all()


def test_draws_are_fresh_and_only_seeded_noise_repeats():
    scales = np.full(50, 2000.0)
    assert (
        SystemNoise().draw(NoiseDistribution.LAPLACE, scales).tolist()
        != SystemNoise().draw(NoiseDistribution.LAPLACE, scales).tolist()
    )
    assert (
        SeededNoise(3).draw(NoiseDistribution.LAPLACE, scales).tolist()
        == SeededNoise(3).draw(NoiseDistribution.LAPLACE, scales).tolist()
    )
    assert (SystemNoise().test_only, SeededNoise(3).test_only) == (False, True)


def test_two_scales_under_one_seed_share_their_luck():
    small, large = (SeededNoise(11).draw(NoiseDistribution.LAPLACE, np.full(5000, b)) for b in (1000.0, 2000.0))
    assert np.corrcoef(small, large)[0, 1] > 0.999


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-300, 1 / 64, 0.999, np.nan, np.inf, 2.0**41])
def test_real_noise_refuses_a_scale_under_which_no_promise_can_be_kept(scale):
    with pytest.raises(PrivacyError, match=r"scale_wh\[1\] is .*must be at least 1 Wh, or the exact demand"):
        SystemNoise().draw(NoiseDistribution.LAPLACE, np.array([1.0, scale]))


def test_seeded_noise_may_look_at_the_papers_empty_kappa():
    assert SeededNoise(1).draw(NoiseDistribution.LAPLACE, np.zeros(3)).tolist() == [0, 0, 0]
    with pytest.raises(PrivacyError):
        SeededNoise(1).draw(NoiseDistribution.LAPLACE, np.array([-1.0]))


# --- exact noise


ANY_SCALES = st.floats(1.0, 2.0**40)
ANY_CORES = st.integers(0, 2**40)
NOISE = st.integers(-(2**50), 2**50)


@given(scale=st.one_of(ANY_SCALES, st.floats(1.0, 1e5)), core=st.one_of(ANY_CORES, st.integers(0, 10**6)), k=NOISE)
def test_a_proposal_is_kept_with_exactly_the_chance_that_makes_it_huber_noise(scale, core, k):
    """rho(k) - |k|/t + b c/(2 t^2) in fractions, which is never negative."""
    b, t, size = Fraction(scale), Fraction(proposal_scale(scale, core)), abs(k)
    law = size**2 / (2 * b * core) if 0 < size <= core else size / b - core / (2 * b) if size else Fraction(0)
    numerator, denominator = huber_exponent(k, scale, core, float(t))
    assert Fraction(numerator, denominator) == law - size / t + b * core / (2 * t * t)
    assert numerator >= 0


@given(scale=ANY_SCALES, k=NOISE)
def test_a_proposal_is_kept_with_exactly_the_chance_that_makes_it_gaussian_noise(scale, k):
    b, t = Fraction(scale), Fraction(proposal_scale(scale))
    numerator, denominator = gaussian_exponent(k, scale, float(t))
    assert Fraction(numerator, denominator) == k**2 / (2 * b**2) - k**2 / (2 * t**2)
    assert numerator >= 0


@given(scale=ANY_SCALES, core=ANY_CORES)
def test_proposals_are_at_least_as_wide_and_at_most_a_64th_wider_than_needed(scale, core):
    wider = proposal_scale(scale, core)
    needed = scale if core <= scale else math.isqrt(int(scale) * core) + 1
    assert scale <= needed <= wider <= needed * (1 + 1 / 64)


def test_few_scales_serve_all():
    scales = np.exp(np.random.default_rng(1).uniform(0, 10, 20_000)).tolist()
    assert len({proposal_scale(scale) for scale in scales}) < 10 / math.log(2) * 64 + 2


@given(scale=st.floats(1.0, 300.0), core=st.integers(1, 3000))
def test_more_than_half_of_the_proposals_are_kept(scale, core):
    wider = proposal_scale(scale, core)
    cost = math.exp(scale * core / (2 * wider**2)) / math.tanh(1 / (2 * wider))
    assert HuberDistribution(scale, core).normalising_sum() / cost > 0.64


def mean_size(noise_wh):
    return np.abs(noise_wh).mean()


EXACT_DRAWS = 60_000
NARROW = 2000.1  # its proposals are 0.8 % wider


@pytest.mark.slow
@pytest.mark.long
def test_laplace_noise_of_any_scale_is_not_that_of_its_proposals():
    """Not seeded, so one fair run in 10^5 fails; noise of the proposals, 0.8 % wider, is seen by both tests."""
    error = (
        mean_size(draw_huber_noise(np.full(10 * EXACT_DRAWS, NARROW), np.zeros(10 * EXACT_DRAWS, np.int64))) / NARROW
        - 1
    )
    proposals = mean_size(opendp_laplace(proposal_scale(NARROW))([0] * 10 * EXACT_DRAWS)) / NARROW - 1
    spread = 1 / math.sqrt(10 * EXACT_DRAWS)  # the size of Laplace noise is exponential: its deviation is its mean
    assert abs(error) < 4.4 * spread < 0.0057
    assert proposals > 0.008 - 4.4 * spread


@pytest.mark.slow
@pytest.mark.parametrize("keep_all", [False, True], ids=["right", "every proposal kept"])
@pytest.mark.parametrize("draw", ["laplace", "gaussian", "huber"])
def test_the_chance_of_keeping_decides_the_spread(monkeypatch, draw, keep_all):
    """With proposals twice as wide as needed, noise that kept them all would be far too wide."""
    right = noise_module.proposal_scale
    monkeypatch.setattr(noise_module, "proposal_scale", lambda scale, core=0: 2 * right(scale, core))
    if keep_all:
        monkeypatch.setattr(noise_module, "bernoulli_exp", lambda exponents, _: [True] * len(exponents))
    scales = np.full(20_000, 300.7)
    if draw == "gaussian":
        spread = draw_gaussian_noise(scales).std() / 300.7
    else:
        core = 0 if draw == "laplace" else 500
        drawn = draw_huber_noise(scales, np.full(20_000, core))
        spread = drawn.std() / math.sqrt(HuberDistribution(300.7, core).variance())
    assert (0.95 < spread < 1.05) is not keep_all


# --- a coin with chance e^(-n/d): its bounds hold, and over all strings of bits it brackets its chance


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
