import numpy as np
import pytest

from murmurate.aggregation import aggregate
from murmurate.errors import MeterError, PrivacyError, ReadingError, UnknownZoneError
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution, SeededNoise, SystemNoise
from murmurate.release import protect
from murmurate.types import Meters, Readings

CURVE = RateCurve.affine(alpha=1, beta="62.5", tick="0.001")
METERS = Meters.for_single_zone("harbour", bound_wh=[3000, 3000], imputed_wh=100)


def test_a_release_with_seeded_noise_is_test_only_and_one_with_system_noise_is_not():
    demand_wh = np.array([177_000, 180_000])
    for noise, seeded in ((SystemNoise(), False), (SeededNoise(1), True)):
        release = protect(demand_wh, scale_wh=np.array([2000.0]), curve=CURVE, noise=noise)
        assert release.test_only is seeded
        assert release.price_ticks.tolist() == CURVE.price_ticks(release.noisy_wh).tolist()
        assert [price * 1000 for price in release.prices()] == release.price_ticks.tolist()


def test_an_exact_demand_is_never_priced_with_real_noise():
    with pytest.raises(PrivacyError, match="or the exact demand would be published"):
        protect(np.array([177_000]), scale_wh=np.array([0.0]), curve=CURVE, noise=SystemNoise())


def test_the_noise_on_the_rate_is_alpha_times_the_noise_on_the_demand():
    """alpha Z + beta + Lap(alpha u/eps) has the law of alpha (Z + Lap(u/eps)) + beta."""
    curve = RateCurve.affine(alpha=3, beta="62.5", tick="0.001")
    demand_wh = np.full(1000, 177_000)
    release = protect(demand_wh, scale_wh=np.full(1000, 2000.0), curve=curve, noise=SeededNoise(9))
    noise_wh = SeededNoise(9).draw(NoiseDistribution.LAPLACE, np.full(1000, 2000.0))
    assert (release.price_ticks == curve.price_ticks(demand_wh) + 3 * noise_wh).all()


def test_a_demand_does_not_show_itself():
    demand = aggregate([Readings.from_columns(meter=[0, 1], energy_wh=[1234, 777])], METERS)
    assert repr(demand) == str(demand) == "Demand(1 zone, confidential)"
    assert demand.for_zone("harbour") == 2011


def test_readings_do_not_show_themselves_either():
    assert repr(Readings.from_columns(meter=[0], energy_wh=[1234])) == "Readings(1 reading, confidential)"


def test_one_scale_may_serve_all_demands_and_other_shapes_are_refused():
    release = protect([1000, 2000], scale_wh=5.0, curve=CURVE, noise=SeededNoise(1))
    assert release.scale_wh.tolist() == [5.0, 5.0]
    with pytest.raises(PrivacyError, match=r"scale_wh is shaped \(3,\): must be one scale, or one per demand: \(2,\)"):
        protect([1000, 2000], scale_wh=np.ones(3), curve=CURVE, noise=SeededNoise(1))


def test_huber_noise_takes_a_core_and_others_take_none():
    demand_wh = np.full(500, 177_000)
    wide = {"scale_wh": 2000.0, "curve": CURVE, "distribution": NoiseDistribution.HUBER}
    release = protect(demand_wh, core_wh=3000, noise=SeededNoise(2), **wide)
    noise_wh = SeededNoise(2).draw(NoiseDistribution.HUBER, np.full(500, 2000.0), np.array(3000))
    assert (release.noisy_wh == demand_wh + noise_wh).all()
    for core in (np.full(500, 3000), [3000]):
        assert (protect(demand_wh, core_wh=core, noise=SeededNoise(2), **wide).noisy_wh == release.noisy_wh).all()
    with pytest.raises(PrivacyError, match=r"core_wh is shaped \(2,\): must be one core, or one per demand: \(500,\)"):
        protect(demand_wh, core_wh=[3000, 3000], noise=SystemNoise(), **wide)
    with pytest.raises(PrivacyError, match="core_wh is missing"):
        protect(demand_wh, noise=SystemNoise(), **wide)
    with pytest.raises(PrivacyError, match="core_wh is given"):
        protect(demand_wh, core_wh=3000, noise=SystemNoise(), scale_wh=2000.0, curve=CURVE)


def test_nothing_is_said_of_a_demand_on_the_way_to_a_price(capfd, caplog):
    """A canary: neither output nor log holds the reading, the demand or the noised demand, in decimal or hex."""
    caplog.set_level(0)
    demand = aggregate([Readings.from_columns(meter=[0, 1], energy_wh=[2718, 1414])], METERS)
    release = protect(demand.energy_wh, scale_wh=2000.0, curve=CURVE, noise=SystemNoise())
    printed = "".join(capfd.readouterr()) + caplog.text
    for number in (2718, 1414, 4132, int(release.noisy_wh[0])):
        assert str(number) not in printed
        assert f"{number:x}" not in printed
    assert printed == ""


def test_nobody_reporting_is_a_demand_of_public_constants():
    assert aggregate([], METERS).for_zone("harbour") == 200


def numbered(*numbers):
    two = np.array([9, 9])
    return Meters(zones=("a",), zone=two * 0, bound_wh=two, imputed_wh=two * 0, number=np.array(numbers))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (
            lambda: Readings.from_columns(meter=[0], energy_wh=[0.5]),
            ReadingError,
            "energy_wh is float64: must be whole numbers that fit in 64 bits, not rounded ones",
        ),
        (
            lambda: Readings.from_columns(meter=[0], energy_wh=[1, 2]),
            ReadingError,
            "readings is ((1,), (2,)): meter and energy_wh must have the same length",
        ),
        (
            lambda: Readings.from_columns(meter=[-1], energy_wh=[1]),
            ReadingError,
            "meter[0] is -1: must be the number of a meter",
        ),
        (lambda: numbered(3, 3), MeterError, "meter[1] is 3: must be in ascending order, each once"),
        (lambda: numbered(-1, 3), MeterError, "meter[0] is -1: must be a number from 0 up"),
        (lambda: numbered(3), MeterError, "meter is (1,): must have one number per meter"),
        (lambda: Meters.for_single_zone("a", bound_wh=[9, 0]), MeterError, "bound_wh[1] is 0: must be at least 1 Wh"),
        (
            lambda: Meters.for_single_zone("a", bound_wh=[9], imputed_wh=10),
            MeterError,
            "imputed_wh[0] is 10: must lie between 0 and bound_wh",
        ),
        (
            lambda: Meters.for_single_zone("a", bound_wh=[9], imputed_wh=-3, export_bound_wh=2),
            MeterError,
            "imputed_wh[0] is -3: must lie between -export_bound_wh and bound_wh",
        ),
        (
            lambda: Meters.for_single_zone("a", bound_wh=[9, 9], export_bound_wh=[0, -1]),
            MeterError,
            "export_bound_wh[1] is -1: must be 0 Wh or more",
        ),
        (
            lambda: Meters.for_single_zone("a", bound_wh=[2**61], export_bound_wh=2**61),
            MeterError,
            f"bound_wh + export_bound_wh is {2**62}: times the number of meters must stay below 2**62 Wh",
        ),
        (
            lambda: Meters(zones=("a",), zone=np.array([1]), bound_wh=np.array([9]), imputed_wh=np.array([0])),
            MeterError,
            "zone[0] is 1: must be below 1, the number of zones",
        ),
        (
            lambda: Meters.for_single_zone("a", bound_wh=[9], imputed_wh=[1, 2]),
            MeterError,
            "meters is [(1,), (2,)]: zone, bound_wh and imputed_wh must have one entry per meter",
        ),
        (
            lambda: Meters(zones=("a", "a"), zone=np.array([1]), bound_wh=np.array([9]), imputed_wh=np.array([0])),
            MeterError,
            "zones is ('a', 'a'): must have different names",
        ),
        (lambda: aggregate([], METERS).for_zone("hill"), UnknownZoneError, "zone is 'hill': must be one of harbour"),
    ],
)
def test_an_error_names_the_field_the_value_and_what_is_allowed(make, error, says):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == says


@pytest.mark.parametrize(("energy_wh", "counts"), [(-7, 0), (-(2**70), 0), (2**63, 3000), (2**70, 3000)])
def test_a_reading_of_any_value_is_counted_and_clipped(energy_wh, counts):
    demand = aggregate([Readings.from_columns(meter=[0, 1], energy_wh=[energy_wh, 5])], METERS)
    assert (demand.for_zone("harbour"), demand.reported.tolist(), demand.imputed.tolist()) == (counts + 5, [2], [0])


@pytest.mark.parametrize("bits", [np.uint64, np.int32, np.uint8])
def test_whole_numbers_of_other_widths_are_taken_if_none_can_be_lost(bits):
    if bits is np.uint64:
        with pytest.raises(ReadingError):
            Readings.from_columns(meter=[0], energy_wh=np.array([1], bits))
    else:
        assert Readings.from_columns(meter=[0], energy_wh=np.array([200], bits)).energy_wh.dtype == np.int64


def test_bounds_that_could_overflow_a_sum_are_refused():
    with pytest.raises(MeterError, match=r"must stay below 2\*\*62"):
        Meters.for_single_zone("a", bound_wh=[2**61, 2**61])
