"""Privacy curves of Laplace and Gaussian noise: each equals, or lies just above, a sum over the whole lattice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.privacy_curves import randomised_response

from murmurate.errors import ModelError
from murmurate.privacy.divergence import GaussianCurve, HuberCurve, SecretPair
from murmurate.privacy.noise import laplace_log_pmf

SHIFTS = st.integers(1, 12)


def brute_delta(p, q, epsilon):
    return max(np.maximum(p - np.exp(epsilon) * q, 0).sum(), np.maximum(q - np.exp(epsilon) * p, 0).sum())


@given(shift=SHIFTS, scale=st.sampled_from([0.7, 2.0, 5.5, 40.0]), epsilon=st.floats(-3, 3))
def test_the_laplace_curve_is_that_of_the_whole_lattice(shift, scale, epsilon):
    lattice = np.arange(-2500, 2520)
    p, q = (np.exp(laplace_log_pmf(lattice - wh, scale)) for wh in (0, shift))
    found = HuberCurve(shift, scale, 0).delta(np.array([epsilon]))[0]
    assert found == pytest.approx(brute_delta(p, q, epsilon), abs=1e-9)


@given(shift=SHIFTS, sigma=st.sampled_from([1.5, 4.0, 17.3]), epsilon=st.floats(-2, 2))
def test_the_gaussian_bound_lies_above_the_lattice_and_near_it(shift, sigma, epsilon):
    lattice = np.arange(-int(12 * sigma) - 20, int(12 * sigma) + 40)
    p, q = (np.exp(-((lattice - wh) ** 2) / (2 * sigma**2)) for wh in (0, shift))
    expected = brute_delta(p / p.sum(), q / p.sum(), epsilon)
    bound = GaussianCurve(shift, sigma).delta(np.array([epsilon]))[0]
    assert expected - 1e-13 <= bound <= expected + 1.5 / sigma


@given(epsilon=st.floats(0.01, 3), at=st.floats(-3, 3))
def test_randomised_response_is_the_worst_pure_curve(epsilon, at):
    worst, laplace = (
        curve.delta(np.array([at]))[0] for curve in (randomised_response(epsilon), HuberCurve(7, 7 / epsilon, 0))
    )
    assert laplace <= worst + 1e-12


@pytest.mark.parametrize(
    ("pmfs", "says"),
    [
        (([0.5, 0.4], [0.5, 0.5]), "away is 0.9: must be probabilities that sum to 1"),
        (
            ([1.0], [1.0]),
            "secret is ((1,), (1,)): away and home must be distributions on the same 0, 1, .., bound [Wh], bound >= 1",
        ),
    ],
)
def test_a_pair_that_is_none_says_what_is_allowed(pmfs, says):
    with pytest.raises(ModelError) as caught:
        SecretPair.from_pmfs(*pmfs)
    assert str(caught.value) == says
