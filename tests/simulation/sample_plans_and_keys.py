"""Samples for the simulation: zones with plans, keys that sign fast, and noise that counts its draws.

A published price can be decoded into its draw and its demand: the curves are one to one on whole Wh, draws are
multiples of `DRAW_STEP_WH`, and each demand below `DRAW_STEP_WH` occurs once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.hidden_households import HiddenHouseholds
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log import signing
from murmurate.units import FloatArray, IntArray

ZONES = ("delta", "fen", "harbour", "hill")
SLOTS = 4
BOUND_WH = 1000  # of the households that every plan hides
DRAW_STEP_WH = 2**24  # Wh between two draws
KEYS = 3  # a chain is rotated at most twice


@dataclass(frozen=True, slots=True)
class DecodablePlan:
    """A plan whose prices can be decoded: ticks = factor * wh + offset."""

    terms: ReleaseTerms
    factor: int
    offset: int

    def decode_price(self, price_ticks: int) -> tuple[int, int, int]:
        """Return the draw, the demand [Wh] and the remainder of a price."""
        wh, rest = divmod(price_ticks - self.offset, self.factor)
        return *divmod(wh, DRAW_STEP_WH), rest


_CURVES = (
    (RateCurve.affine(alpha=1, beta="0.5", tick="0.001"), 1, 500, "EUR"),
    (RateCurve.affine(alpha=1, beta="2", tick="0.0005"), 2, 4000, "CHF"),
)

_DISTRIBUTIONS = (NoiseDistribution.GAUSSIAN, NoiseDistribution.LAPLACE, NoiseDistribution.HUBER)


def _decodable_plan(zone: str, number: int, slots: int) -> DecodablePlan:
    curve, factor, offset, currency = _CURVES[number % 2]
    distribution = _DISTRIBUTIONS[(ZONES.index(zone) + number) % len(_DISTRIBUTIONS)]
    base = 100 * ZONES.index(zone) + 10 * number
    cost = np.arange(1, slots + 1) + base
    nothing = np.zeros(slots, np.int64)
    terms = ReleaseTerms(
        plan_digest=sha256(f"plan {number} of {zone} in {slots}".encode()).hexdigest(),
        zone=zone,
        currency=currency,
        curve=curve,
        distribution=distribution,
        scale_wh=np.arange(1, slots + 1) / 4 + base + 1,
        epsilon_micro=nothing if distribution is NoiseDistribution.GAUSSIAN else cost,
        rho_micro=cost if distribution is NoiseDistribution.GAUSSIAN else nothing,
        core_wh=3 * cost if distribution is NoiseDistribution.HUBER else nothing,
        forecast_ticks=np.arange(slots) + base + 7,
        hidden_households=HiddenHouseholds(by_kind={}, unknown_kind_wh=BOUND_WH, public_wh=0),
    )
    return DecodablePlan(terms, factor, offset)


PLANS_BY_ZONE = {zone: tuple(_decodable_plan(zone, number, SLOTS) for number in range(3)) for zone in ZONES}
MISMATCHED_PLAN_BY_ZONE = {
    zone: _decodable_plan(zone, 0, 3) for zone in ZONES
}  # with other intervals: no chain may change to it
PLAN_BY_DIGEST = {
    t.terms.plan_digest: t for zone in ZONES for t in (*PLANS_BY_ZONE[zone], MISMATCHED_PLAN_BY_ZONE[zone])
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


class HashSigner:
    """Signs with a hash without a secret. This is enough where only the simulator forges entries."""

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
