import numpy as np
import pytest
from scipy import stats

from murmurate.errors import PrivacyError
from murmurate.privacy.divergence import huber_log_pmf
from murmurate.privacy.noise import NoiseDistribution, SeededNoise, SystemNoise, laplace_log_pmf

SCALES = [1.2, 2.0, 3.7, 14.0, 127.3]
DRAWS = 60_000
HUBER_DRAWS = 200_000  # at each of five pairs: a million


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
@pytest.mark.parametrize("scale", SCALES[1:])
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


def test_each_entry_has_its_own_scale():
    scales = np.tile([1.0, 1000.0], 2000)
    for noise in (SystemNoise(), SeededNoise(5)):
        spread = np.abs(noise.draw(NoiseDistribution.LAPLACE, scales))
        assert 0.5 < spread[0::2].mean() < 2
        assert 500 < spread[1::2].mean() < 2000


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
