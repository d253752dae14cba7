import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.privacy import noise
from murmurate.privacy.divergence import HuberDistribution
from murmurate.privacy.noise import (
    draw_gaussian_noise,
    draw_huber_noise,
    gaussian_exponent,
    huber_exponent,
    opendp_laplace,
    proposal_scale,
)

SCALES = st.floats(1.0, 2.0**40)
CORES = st.integers(0, 2**40)
NOISE = st.integers(-(2**50), 2**50)


@given(scale=st.one_of(SCALES, st.floats(1.0, 1e5)), core=st.one_of(CORES, st.integers(0, 10**6)), k=NOISE)
def test_a_proposal_is_kept_with_exactly_the_chance_that_makes_it_huber_noise(scale, core, k):
    """rho(k) - |k|/t + b c/(2 t^2) in fractions, which is never negative."""
    b, t, size = Fraction(scale), Fraction(proposal_scale(scale, core)), abs(k)
    law = size**2 / (2 * b * core) if 0 < size <= core else size / b - core / (2 * b) if size else Fraction(0)
    numerator, denominator = huber_exponent(k, scale, core, float(t))
    assert Fraction(numerator, denominator) == law - size / t + b * core / (2 * t * t)
    assert numerator >= 0


@given(scale=SCALES, k=NOISE)
def test_a_proposal_is_kept_with_exactly_the_chance_that_makes_it_gaussian_noise(scale, k):
    b, t = Fraction(scale), Fraction(proposal_scale(scale))
    numerator, denominator = gaussian_exponent(k, scale, float(t))
    assert Fraction(numerator, denominator) == k**2 / (2 * b**2) - k**2 / (2 * t**2)
    assert numerator >= 0


@given(scale=SCALES, core=CORES)
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


DRAWS = 60_000
NARROW = 2000.1  # its proposals are 0.8 % wider


@pytest.mark.slow
def test_laplace_noise_of_any_scale_is_not_that_of_its_proposals():
    """Not seeded, so one fair run in 10^5 fails; noise of the proposals, 0.8 % wider, is seen by both tests."""
    error = mean_size(draw_huber_noise(np.full(10 * DRAWS, NARROW), np.zeros(10 * DRAWS, np.int64))) / NARROW - 1
    proposals = mean_size(opendp_laplace(proposal_scale(NARROW))([0] * 10 * DRAWS)) / NARROW - 1
    spread = 1 / math.sqrt(10 * DRAWS)  # the size of Laplace noise is exponential: its deviation is its mean
    assert abs(error) < 4.4 * spread < 0.0057
    assert proposals > 0.008 - 4.4 * spread


@pytest.mark.slow
@pytest.mark.parametrize("keep_all", [False, True], ids=["right", "every proposal kept"])
@pytest.mark.parametrize("draw", ["laplace", "gaussian", "huber"])
def test_the_chance_of_keeping_decides_the_spread(monkeypatch, draw, keep_all):
    """With proposals twice as wide as needed, noise that kept them all would be far too wide."""
    right = noise.proposal_scale
    monkeypatch.setattr(noise, "proposal_scale", lambda scale, core=0: 2 * right(scale, core))
    if keep_all:
        monkeypatch.setattr(noise, "bernoulli_exp", lambda exponents, _: [True] * len(exponents))
    scales = np.full(20_000, 300.7)
    if draw == "gaussian":
        spread = draw_gaussian_noise(scales).std() / 300.7
    else:
        core = 0 if draw == "laplace" else 500
        drawn = draw_huber_noise(scales, np.full(20_000, core))
        spread = drawn.std() / math.sqrt(HuberDistribution(300.7, core).variance())
    assert (0.95 < spread < 1.05) is not keep_all


@pytest.mark.slow
def test_each_entry_has_its_own_scale():
    scales = np.repeat([1.0, 999.3, 250_000.9], 2000)
    for drawn in (draw_huber_noise(scales, np.zeros(6000, np.int64)), draw_gaussian_noise(scales)):
        sizes = np.abs(drawn).reshape(3, 2000).mean(axis=1)
        assert (np.diff(np.log(sizes)) > 5).all()
