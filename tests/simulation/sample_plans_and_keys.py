"""Samples for the simulation: zones with plans, keys that sign fast, and noise that counts its draws.

A published price can be decoded into its draw and its demand: the curves are one to one on whole Wh, draws are
multiples of `DRAW_STEP_WH`, and each demand, above zero or below, is smaller than half of it and occurs once. A third
of the plans predict prices: their rows hold the noised demand itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from hashlib import sha256

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.release_terms import HiddenHouseholds, PlannedHouseholds, ReleaseTerms
from murmurate.prediction.forecast_sources import forecast_from_table
from murmurate.prediction.public_forecast import CutAbove, CutBelow
from murmurate.prediction.public_inputs import NO_SERIES, Inputs, InputSeries, InputValue
from murmurate.prediction.zone_prediction import PredictionModel, PriceResponse, ZonePrediction
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log import signing
from murmurate.public_log.tile import TileHeader
from murmurate.units import FloatArray, IntArray

SHARDS = ("north", "south", "west")
MAX_ZONES_OF_A_SHARD = 4  # at the beginning
ZONES = tuple(f"zone {letter}" for letter in "abcdefghijkl")
SLOTS = 4
BOUND_WH = 1000  # of the households that every plan hides
DRAW_STEP_WH = 2**24  # Wh between two draws
KEYS = 3  # a shard is rotated at most twice


@dataclass(frozen=True, slots=True)
class DecodablePlan:
    """A plan whose prices can be decoded: ticks = factor * wh + offset."""

    terms: ReleaseTerms
    factor: int
    offset: int

    def decode_row(self, price_ticks: int, noisy_wh: int, silent_wh: int) -> tuple[int, int, int]:
        """Return the draw, the demand [Wh] and the remainder of a price, or of the noised demand in its row.

        `silent_wh` is what silent meters count for.
        """
        wh, rest = divmod(price_ticks - self.offset, self.factor)
        if self.terms.prediction is not None:
            wh, rest = noisy_wh, 0
        draw, above_least = divmod(wh - silent_wh + DRAW_STEP_WH // 2, DRAW_STEP_WH)
        return draw, above_least - DRAW_STEP_WH // 2, rest


_CURVES = (
    (RateCurve.affine(alpha=1, beta="0.5", tick="0.001"), 1, 500, "EUR"),
    (RateCurve.affine(alpha=1, beta="2", tick="0.0005"), 2, 4000, "CHF"),
)

_DISTRIBUTIONS = (NoiseDistribution.GAUSSIAN, NoiseDistribution.LAPLACE, NoiseDistribution.HUBER)


SERIES = InputSeries(temperature="air", irradiance="sun", deviation="region")
HOMES = PlannedHouseholds("home", 10**7, 20_000, Fraction(0), export_bound_wh=20_000)
_HOURS = np.arange(24)


@cache
def _model(series: InputSeries) -> PredictionModel:
    """What zones share: readings are cut off on both sides, and by day the sun can turn demand into feed-in."""
    table = 1e4 * (1 + 0.1 * np.sin(np.arange(12 * 3 * SLOTS))).reshape(12, 3, SLOTS)
    public = forecast_from_table(table, source="a made profile", time_zone="Europe/Lisbon")
    demand = replace(
        public.demand,
        heat_wh_per_k=100.0 + _HOURS,
        usual_cold_k=np.linspace(9.0, 2.0, 12),
        dark_wh=300.0,
        sun_wh=-2e4,
        usual_irradiance=np.maximum(0.0, 12.0 - np.abs(_HOURS - 12.0)) * np.linspace(5.0, 20.0, 12)[:, None],
    )
    cut = CutAbove(20_000, 500.0 + 20 * _HOURS)
    return PredictionModel(
        replace(public, demand=demand, above=(cut,), below=(CutBelow(20_000, 0.9),)),
        replace(demand, day_wh=demand.day_wh - cut.cut_wh[_HOURS[:: 24 // SLOTS]], sun_wh=-2e4 * 0.9),
        1e4,
        0.95,
        np.linspace(0.9, 0.99, 27),
        series,
    )


def _prediction(zone: str, number: int) -> ZonePrediction:
    at = ZONES.index(zone)
    rng, make = np.random.default_rng([at, number]), (at + number) // 3  # one of four
    scale = (1e7 if make < 3 else 1e3) + at  # draws are some percent of the demand, or take states to their limits
    response = PriceResponse(0.2 * (make % 3 > 0), 10**11)
    model = _model(SERIES if make % 2 else NO_SERIES)
    gain, reads_meters = rng.uniform(0, 0.8, 27).round(7), make != 2  # one that reads none never uses its gains
    return ZonePrediction(model, scale, gain, 0.01, response, 0.05, reads_meters)


def public_value(series: str, interval: int, known_until: int) -> int | None:
    """Return the value of a series in an interval [thousandths]. Some are late, after `known_until`, and some never."""
    number = int(sha256(f"{series} {interval}".encode()).hexdigest()[:8], 16)
    low, high = {"air": (-10_000, 25_000), "sun": (-1000, 400_000), "region": (-300, 300)}[series]
    is_known = number % 8 > (4 if interval > known_until else 0)
    return low + number // 8 % (high - low) if is_known else None


def find_inputs(series: Collection[str], header: TileHeader, interval: int, known_until: int) -> Inputs:
    """Return the public values of a tile, as the service finds them."""
    moments = interval, interval + header.lead
    return {name: InputValue(*(public_value(name, at, known_until) for at in moments)) for name in sorted(series)}


def _plan_text(zone: str, number: int, slots: int) -> str:
    return f"plan {number} of {zone} in {slots}"


def _decodable_plan(zone: str, number: int, slots: int) -> DecodablePlan:
    curve, factor, offset, currency = _CURVES[number % 2]
    distribution = _DISTRIBUTIONS[(ZONES.index(zone) + number) % len(_DISTRIBUTIONS)]
    base = 100 * ZONES.index(zone) + 10 * number
    cost = np.arange(1, slots + 1) + base
    nothing = np.zeros(slots, np.int64)
    terms = ReleaseTerms(
        plan_digest=sha256(_plan_text(zone, number, slots).encode()).hexdigest(),
        zone=zone,
        currency=currency,
        curve=curve,
        distribution=distribution,
        scale_wh=np.arange(1, slots + 1) / 4 + base + 1,
        epsilon_micro=nothing if distribution is NoiseDistribution.GAUSSIAN else cost,
        rho_micro=cost if distribution is NoiseDistribution.GAUSSIAN else nothing,
        core_wh=3 * cost if distribution is NoiseDistribution.HUBER else nothing,
        forecast_ticks=np.arange(slots) + base + 7,
        forecast_wh=tuple(10**9 * (number - 1) * (base + slot) for slot in range(slots)),
        households=(HOMES,),
        hidden_households=HiddenHouseholds(by_kind={}, unknown_kind_wh=BOUND_WH, public_wh=0),
        prediction=_prediction(zone, number) if slots == SLOTS and (ZONES.index(zone) + number) % 3 == 0 else None,
    )
    return DecodablePlan(terms, factor, offset)


PLANS_BY_ZONE = {zone: tuple(_decodable_plan(zone, number, SLOTS) for number in range(3)) for zone in ZONES}
MISMATCHED_PLAN_BY_ZONE = {
    zone: _decodable_plan(zone, 0, 3) for zone in ZONES
}  # with other intervals: nothing may be priced under it
PLAN_BY_DIGEST = {
    t.terms.plan_digest: t for zone in ZONES for t in (*PLANS_BY_ZONE[zone], MISMATCHED_PLAN_BY_ZONE[zone])
}
MISMATCHED_PLANS = frozenset(plan.terms.plan_digest for plan in MISMATCHED_PLAN_BY_ZONE.values())
PLAN_TEXTS = {  # by digest: what stands in the log
    sha256(text.encode()).hexdigest(): text
    for zone in ZONES
    for text in (*(_plan_text(zone, number, SLOTS) for number in range(3)), _plan_text(zone, 0, 3))
}
INTERVAL_S = PLANS_BY_ZONE[ZONES[0]][0].terms.interval_s


def is_hidden(energy_wh: int) -> bool:
    """Return whether the plans hide the households of this demand. Of each 16 demands, 14 are hidden."""
    return energy_wh % 16 > 1


def bounds_of(energy_wh: int) -> dict[str, int] | None:
    """Return the bounds of a demand. They are too large, or unknown, where its households are not hidden."""
    if is_hidden(energy_wh):
        return {"": BOUND_WH - energy_wh % 3}
    return {"": BOUND_WH + 1} if energy_wh % 16 else None


def silent_bounds(energy_wh: int) -> tuple[int, int]:
    """Return the bounds and export bounds of the meters that are silent in a demand [Wh]. Two of three have some."""
    return 3000 * (energy_wh % 3), 700 * (energy_wh % 3)


class HashSigner:
    """Signs with a hash without a secret. This is enough where only the simulator forges tiles."""

    def __init__(self, number: int) -> None:
        self.public_key = sha256(f"key {number}".encode()).hexdigest()

    def sign(self, message: bytes) -> str:
        return sha256(self.public_key.encode() + message).hexdigest()


def verify_hash(public_key: str, message: bytes, signature: str) -> bool:
    return signature == sha256(public_key.encode() + message).hexdigest()


Verify = Callable[[str, bytes, str], bool]


@cache
def sample_keyring(real: bool) -> tuple[tuple[signing.Signer, ...], Verify]:
    """Return the keys of a run in the order of their use, and the function that verifies their signatures."""
    if real:
        return tuple(signing.Ed25519Signer(bytes([number] * 32)) for number in range(KEYS)), signing.verify_signature
    return tuple(HashSigner(number) for number in range(KEYS)), verify_hash


class CountedNoise:
    """Each draw is another multiple of `DRAW_STEP_WH`. The arguments of each draw are kept."""

    test_only = False

    def __init__(self) -> None:
        self.drawn: list[tuple[NoiseDistribution, float, int | None]] = []

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        first = len(self.drawn)
        scales = scale_wh.tolist()
        cores = [None] * len(scales) if core_wh is None else core_wh.tolist()
        if not all(scales):
            raise PrivacyError("scale_wh", 0, "would publish the exact demand")
        self.drawn += [(distribution, scale, core) for scale, core in zip(scales, cores, strict=True)]
        return np.arange(first, first + len(scales), dtype=np.int64) * DRAW_STEP_WH


class TestOnlyCountedNoise:
    """The same draws, marked test_only."""

    test_only = True

    def __init__(self, noise: CountedNoise) -> None:
        self.draw = noise.draw
