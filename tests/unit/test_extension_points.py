"""An attack, a noise, a privacy curve and a household model of one's own, written with public names alone."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import murmurate as mm

CURVE = mm.RateCurve.affine(alpha="0.0002", beta="0.08", tick="0.00001", floor=0, cap=2)


def resident(**hours):
    return mm.OccupancyChains.from_periods(
        {"morning": "07:00", "noon": "08:00", "evening": "16:00", "night": "23:00"},
        arrive={"morning": 0.98, "noon": 0.05, "evening": 0.99, "night": 0.01},
        leave={"morning": 0.05, "noon": 0.95, "evening": 0.05, "night": 0.995},
        **hours,
    )


def even(highest_wh):
    """The same probability for each reading up to the highest."""
    return np.full(highest_wh + 1, 1 / (highest_wh + 1))


def harbour(promises=("any 24 h: epsilon 1, delta 1e-6", "any moment: 1"), source_text=mm.EXAMPLE_ZONE_FILE):
    chain = resident(time_zone="Europe/Lisbon")
    kinds = [
        mm.HouseholdKind.from_distributions(
            "flat", 800, bound_wh=1000, away=even(300), home=even(600), occupancy=chain
        ),
        mm.HouseholdKind.from_distributions(
            "fish market", 1, bound_wh=20_000, away=even(5000), home=even(20_000), occupancy=chain, public=True
        ),
    ]
    return mm.Zone.from_kinds(
        "harbour", kinds, currency="EUR", curve=CURVE, promises=promises, time_zone="Europe/Lisbon",
        source_text=source_text,
    )  # fmt: skip


def cottages(promises=("interval: 0.5",), bound_wh=100):
    """A small zone of 24 hours with a model that no zone file has: away by a curve of the hour."""
    hour = np.arange(24)
    leave = (0.1 + 0.5 * np.exp(-(((hour - 9) / 3) ** 2)))[:, None]
    chain = mm.OccupancyChains.independent(initial=[0.5], arrive=0.7 - leave, leave=leave, period=hour)
    home = np.exp(-np.arange(bound_wh + 1) / 40)
    kind = mm.HouseholdKind.from_distributions(
        "cottage", 20, bound_wh=bound_wh, away=even(20), home=home / home.sum(), occupancy=chain
    )
    return mm.Zone.from_kinds("cove", [kind], currency="EUR", curve=CURVE, promises=promises)


class LeastDemand:
    """How far the noised demand lies above what the others use: all that an attacker can use of one interval."""

    name = "surplus"

    def score(self, seen):
        return (seen.release.noisy_wh - seen.rest_wh)[:, seen.secret].sum(axis=1)


class HalfNoise:
    """Half the noise that the plan asks for: the planted fault."""

    test_only = True

    def __init__(self, seed):
        self.right = mm.SeededNoise(seed)

    def draw(self, distribution, scale_wh, core_wh=None):
        return self.right.draw(distribution, scale_wh / 2, core_wh)


class TwoSided:
    """The curve of a true answer with probability e^epsilon/(1 + e^epsilon)."""

    bounded = True

    def __init__(self, epsilon):
        self.max_loss = epsilon

    def delta(self, epsilon):
        right = 1 / (1 + np.exp(-self.max_loss))
        return np.maximum(right - np.exp(epsilon) * (1 - right), np.maximum(1 - np.exp(epsilon), 0))


@pytest.mark.slow
def test_the_example_zone_made_in_python_has_the_plan_of_its_zone_file():
    made, read = harbour(), mm.parse_zone(mm.EXAMPLE_ZONE_FILE)
    for mine, theirs in zip(made.kinds, read.kinds, strict=True):
        assert (mine.name, mine.count, mine.public) == (theirs.name, theirs.count, theirs.public)
        np.testing.assert_array_equal(mine.secret_pair.away, theirs.secret_pair.away)
        np.testing.assert_array_equal(mine.secret_pair.home, theirs.secret_pair.home)
        np.testing.assert_array_equal(mine.models[0].transition, theirs.models[0].transition)
        np.testing.assert_array_equal(mine.models[0].initial, theirs.models[0].initial)
    assert (made.curve, made.promises, made.clock) == (read.curve, read.promises, read.clock)
    digests = [json.loads(mm.make_plan(zone).to_json())["digest"] for zone in (made, read)]
    assert digests[0] == digests[1]


def test_a_plan_of_a_zone_made_in_python_is_proven_but_not_written_to_a_file():
    plan = mm.make_plan(cottages())
    assert plan.costs[0].spent <= Fraction(1, 2)
    with pytest.raises(mm.errors.PrivacyError, match=r"source_text is empty: must be the zone file"):
        plan.to_json()


@given(
    bound_wh=st.integers(1, 300), export_wh=st.integers(0, 300), sizes=st.tuples(st.integers(1, 99), st.integers(1, 99))
)
def test_a_distribution_is_filled_up_to_the_bound_or_refused(bound_wh, export_wh, sizes):
    laws = [np.full(size, 1 / size) for size in sizes]

    def make():
        return mm.HouseholdKind.from_distributions(
            "hut", 3, bound_wh=bound_wh, export_bound_wh=export_wh, away=laws[0], home=laws[1], occupancy=resident()
        )

    if max(sizes) > bound_wh + export_wh + 1:
        with pytest.raises(mm.errors.ModelError, match="must be a list of at most"):
            make()
        return
    kind = make()
    assert (kind.bound_wh, kind.export_bound_wh, kind.range_wh) == (bound_wh, export_wh, bound_wh + export_wh)
    assert kind.secret_pair.away @ kind.secret_pair.energy_wh == pytest.approx(-export_wh + (sizes[0] - 1) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("promise", ["interval: 0.5", "any 6 h: epsilon 2"])
def test_an_own_attack_convicts_half_the_noise_and_acquits_the_right_noise(promise):
    plan = mm.make_plan(cottages(promises=(promise,)))
    right, half = (
        mm.audit(plan, attacks=[LeastDemand()], days=2, samples=30_000, noise_source=source)
        for source in (mm.SeededNoise, HalfNoise)
    )
    assert [result.target for result in right] == ["cottage"] * len(right)
    assert {result.verdict for result in right} == {"within"}
    assert "BROKEN" in {result.verdict for result in half}
    for result in right:
        assert 0.5 < result.auc.low < result.auc_bound
        assert 0.3 * result.bound < result.measured <= result.bound


@pytest.mark.slow
def test_an_own_mechanism_is_attacked_like_that_of_the_plan():
    """The planted fault: every fiftieth price is that of the exact demand."""

    def leak(demand_wh, *, curve, noise, **more):
        release = mm.protect(demand_wh, curve=curve, noise=noise, **more)
        shown = release.noisy_wh.copy()
        shown[::50] = demand_wh[::50]
        return mm.Release(
            price_ticks=curve.price_ticks(shown), tick=curve.tick, noisy_wh=shown, scale_wh=release.scale_wh,
            test_only=True,
        )  # fmt: skip

    plan = mm.make_plan(cottages())
    attacks = ["skipped", "interval", LeastDemand()]
    right, wrong = (
        {each.name for each in mm.audit(plan, attacks, days=2, samples=20_000, **more) if not each.ok}
        for more in ({}, {"mechanism": leak})
    )
    assert right == set()
    assert "skipped" in wrong


def test_the_same_seed_gives_the_same_results_and_only_the_attacks_that_were_named():
    plan = mm.make_plan(cottages())
    shares = []
    one, two = (
        mm.audit(plan, ["skipped", "prices", LeastDemand()], days=2, samples=2000, progress=shares.append)
        for _ in range(2)
    )
    assert one == two
    assert [result.name for result in one] == ["skipped", "prices", "surplus"]
    assert sum(shares) == pytest.approx(2)
    assert repr(one[0]) == "AttackResult(skipped on cottage: epsilon at least 0.000, at most 0.500 allowed, within)"
    assert repr(one[2]).startswith("AttackResult(surplus on cottage: AUC 0.")


def test_an_attack_sees_what_is_public_and_no_reading():
    """The demand of the others is the expected one; a price is that of the noised demand."""
    plan, seen = mm.make_plan(cottages()), []

    class Look:
        name = "look"

        def score(self, observation):
            seen.append(observation)
            return np.zeros(len(observation.release.price_ticks))

    (result,) = mm.audit(plan, [Look()], days=2, samples=2400)
    assert not result.better_than_guessing
    for observation in seen:
        assert observation.release.noisy_wh.shape == (2000, 24)
        np.testing.assert_array_equal(
            observation.release.price_ticks, plan.zone.curve.price_ticks(observation.release.noisy_wh)
        )
        assert observation.secret.sum() == 1
        assert observation.slot.tolist() == list(range(24))
        expected_wh = plan.zone.forecast_moments[0] * 19 / 20
        np.testing.assert_allclose(observation.rest_wh, expected_wh, atol=0.5)
        assert observation.plan is plan


@given(st.lists(st.floats(0.01, 2), min_size=1, max_size=4))
@settings(deadline=None)
def test_own_curves_compose_to_no_more_than_their_sum_and_no_less_than_the_largest(epsilons):
    events = [(mm.PrivacyEvent((TwoSided(epsilon),)), 1) for epsilon in epsilons]
    cost = mm.PldAccountant().epsilon(events, 1e-9)
    assert max(epsilons) * 0.999 - 1e-6 <= cost <= sum(epsilons) + 1e-9


class Bare:
    """Has nothing that a protocol asks for."""


class OnlyDraw(Bare):
    def draw(self, _distribution, scale_wh, _core_wh=None):
        return np.zeros(scale_wh.shape, np.int64)


class WrongDraw(OnlyDraw):
    test_only = True

    def __init__(self, drawn):
        self.drawn = np.asarray(drawn)

    def draw(self, *_):
        return self.drawn


class WrongScore(Bare):
    name = "wrong"

    def __init__(self, scores):
        self.score = lambda _: scores


def protect_with(noise):
    return mm.protect([1000, 2000], scale_wh=2000, curve=CURVE, noise=noise)


def audit_with(*attacks, **more):
    return mm.audit(mm.make_plan(cottages()), *attacks, **{"days": 2, "samples": 1000, **more})


MISTAKES = {
    "no draw": (lambda: protect_with(Bare()), "noise is of type Bare, without test_only and draw: must have test_only"),
    "no test_only": (lambda: protect_with(OnlyDraw()), "noise is of type OnlyDraw, without test_only: must have"),
    "a class": (lambda: protect_with(mm.SeededNoise), "noise is the class SeededNoise: must be an object"),
    "floats": (lambda: protect_with(WrongDraw([0.5, 1.5])), "noise is float64: must be whole numbers"),
    "one draw": (lambda: protect_with(WrongDraw([1])), "noise is shaped (1,): must be one draw per demand: (2,)"),
    "bare curve": (lambda: mm.PrivacyEvent(TwoSided(1)), "curves is of type TwoSided: must be a tuple: (curve,)"),
    "no curve": (lambda: mm.PrivacyEvent((Bare(),)), "curves[0] is of type Bare, without max_loss and bounded and"),
    "bare event": (
        lambda: mm.PldAccountant().epsilon(mm.PrivacyEvent(()), 1e-6),
        "events is one PrivacyEvent: must be pairs of a PrivacyEvent and how often it happens",
    ),
    "events": (
        lambda: mm.PldAccountant().within_budget([mm.PrivacyEvent(())], 1, 1e-6),
        "events[0] is of type PrivacyEvent: must be pairs",
    ),
    "half a Wh": (lambda: mm.GaussianCurve(1000.5, 3.0), "shift_wh is 1000.5: must be a whole number of Wh, 0 or more"),
    "attack": (lambda: audit_with([Bare()]), "attack is of type Bare, without name and score: must have name and"),
    "attack class": (lambda: audit_with([LeastDemand]), "attack is the class LeastDemand: must be an object"),
    "bare attack": (lambda: audit_with(LeastDemand()), "attacks is of type LeastDemand: must be a list"),
    "unknown": (lambda: audit_with(["strongest"]), "attack is 'strongest': must be an object, or one of strong, "),
    "name": (lambda: audit_with([WrongScore(0), LeastDemand()]), "score of wrong is shaped (): must be one per trial"),
    "nan": (lambda: audit_with([WrongScore(np.full(833, np.nan))]), "score of wrong[0] is nan: must be a number"),
    "samples": (lambda: audit_with(samples=10), "samples is 10: must be at least 1,000"),
    "days": (lambda: audit_with(days=1), "days is 1: must be at least 2"),
    "period": (
        lambda: mm.OccupancyChains.from_periods({"day": "07:10"}, {"day": 0.1}, {"day": 0.1}),
        "periods is '07:10': must be the start of an interval",
    ),
    "no kind": (lambda: mm.Zone.from_kinds("z", [], currency="EUR", curve=CURVE, promises=["interval: 1"]), "house"),
    "bound": (
        lambda: mm.HouseholdKind.from_distributions("hut", 1, bound_wh=0, away=[1], home=[1], occupancy=resident()),
        "bound_wh is (0, 0): must be a range",
    ),
    "no model": (
        lambda: mm.HouseholdKind.from_distributions("hut", 1, bound_wh=9, away=[1], home=[1], occupancy=[]),
        "occupancy is empty: must be at least one model",
    ),
}


@pytest.mark.parametrize(("mistake", "says"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_in_a_sentence(mistake, says):
    with pytest.raises(mm.errors.MurmurateError) as caught:
        mistake()
    assert str(caught.value).startswith(says)


def test_a_zone_file_and_a_plan_are_read_from_their_paths(tmp_path):
    text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
    text = text.replace(', "any moment: 1"', "")
    zone_file, plan_file = tmp_path / "zone.toml", tmp_path / "plan.json"
    zone_file.write_text(text, encoding="utf-8")
    zone = mm.parse_zone(zone_file)
    assert zone.source_text == text
    plan_file.write_text(mm.make_plan(zone).to_json(), encoding="utf-8")
    assert mm.load_plan(plan_file).to_json() == plan_file.read_text(encoding="utf-8")
    zone_file.write_text(text.replace("count = 800", "count = none"), encoding="utf-8")
    with pytest.raises(mm.errors.ZoneFileError, match=rf"^{zone_file}:21: "):
        mm.parse_zone(zone_file)


def test_what_is_printed_is_one_short_line_without_a_reading():
    zone = harbour(promises=["interval: 0.5"])
    plan = mm.make_plan(zone)
    meters = mm.Meters.for_single_zone("harbour", bound_wh=[3000, 3000])
    demand = mm.aggregate([mm.Readings.from_columns(meter=[0], energy_wh=[2718])], meters)
    release = mm.protect(demand.energy_wh, scale_wh=2000, curve=CURVE, noise=mm.SeededNoise(1))
    shown = {each: repr(each) for each in (zone, plan, *zone.kinds, *zone.kinds[0].models, meters, demand, release)}
    assert all("\n" not in text and len(text) < 200 and "2718" not in text for text in shown.values())
    assert shown[plan] == "Plan(harbour: laplace noise, rms 2.83 kWh; interval: 0.5, spends 0.5)"
    assert shown[zone] == "Zone(harbour: 801 households of 2 kinds, 96 intervals a day; interval: 0.5)"
    assert shown[release] == "Release(1 price, test_only)"
