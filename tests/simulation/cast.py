"""Who plays in a simulation: zones with their plans, keys that sign fast, noise that counts its draws.

The numbers are chosen so that a published price says where it came from: the curves are one to one on whole Wh, draws
are multiples of `WIDE`, and each demand below `WIDE` was handed out once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

import numpy as np

from murmurate.curator.hiding import HiddenHouseholds
from murmurate.curator.terms import Terms
from murmurate.errors import PrivacyError
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseLaw
from murmurate.publication import signing
from murmurate.quantities import FloatArray, IntArray

ZONES = ("delta", "fen", "harbour", "hill")
SLOTS = 4
BOUND_WH = 1000  # of the households that every plan hides
WIDE = 2**24  # Wh between two draws
KEYS = 3  # a chain is rotated at most twice


@dataclass(frozen=True, slots=True)
class Tariff:
    """A plan, and how its prices are read back: ticks = factor * wh + offset."""

    terms: Terms
    factor: int
    offset: int

    def origin(self, price_ticks: int) -> tuple[int, int, int]:
        """Which draw and which demand made this price, and what is left over."""
        wh, rest = divmod(price_ticks - self.offset, self.factor)
        return *divmod(wh, WIDE), rest


_CURVES = (
    (RateCurve.affine(alpha=1, beta="0.5", tick="0.001"), 1, 500, "EUR"),
    (RateCurve.affine(alpha=1, beta="2", tick="0.0005"), 2, 4000, "CHF"),
)

_LAWS = (NoiseLaw.GAUSSIAN, NoiseLaw.LAPLACE, NoiseLaw.HUBER)


def _tariff(zone: str, number: int, slots: int) -> Tariff:
    curve, factor, offset, currency = _CURVES[number % 2]
    law = _LAWS[(ZONES.index(zone) + number) % len(_LAWS)]
    base = 100 * ZONES.index(zone) + 10 * number
    cost = np.arange(1, slots + 1) + base
    nothing = np.zeros(slots, np.int64)
    terms = Terms(
        plan=sha256(f"plan {number} of {zone} in {slots}".encode()).hexdigest(),
        zone=zone,
        currency=currency,
        curve=curve,
        law=law,
        scale_wh=np.arange(1, slots + 1) / 4 + base + 1,
        epsilon_micro=nothing if law is NoiseLaw.GAUSSIAN else cost,
        rho_micro=cost if law is NoiseLaw.GAUSSIAN else nothing,
        core_wh=3 * cost if law is NoiseLaw.HUBER else nothing,
        forecast_ticks=np.arange(slots) + base + 7,
        hides=HiddenHouseholds(by_kind={}, unnamed_wh=BOUND_WH, public_wh=0),
    )
    return Tariff(terms, factor, offset)


PLANS_OF = {zone: tuple(_tariff(zone, number, SLOTS) for number in range(3)) for zone in ZONES}
ODD_PLAN_OF = {zone: _tariff(zone, 0, 3) for zone in ZONES}  # of other intervals: no chain may change to it
TARIFFS = {t.terms.plan: t for zone in ZONES for t in (*PLANS_OF[zone], ODD_PLAN_OF[zone])}
INTERVAL_S = PLANS_OF[ZONES[0]][0].terms.interval_s


def is_hidden(energy_wh: int) -> bool:
    """Whether the plans hide the households of this demand: of each 16, all but two."""
    return energy_wh % 16 > 1


def bounds_of(energy_wh: int) -> dict[str, int] | None:
    """The bounds that come with a demand; where its households are not hidden they are too large, or not known."""
    if is_hidden(energy_wh):
        return {"": BOUND_WH - energy_wh % 3}
    return {"": BOUND_WH + 1} if energy_wh % 16 else None


class QuickSigner:
    """Signs with a hash anybody could compute: as good as a real signature where nobody but the simulator forges."""

    def __init__(self, number: int) -> None:
        self.public = sha256(f"key {number}".encode()).hexdigest()

    def sign(self, message: bytes) -> str:
        return sha256(self.public.encode() + message).hexdigest()


def quick_verify(public: str, message: bytes, signature: str) -> bool:
    return signature == sha256(public.encode() + message).hexdigest()


Verify = Callable[[str, bytes, str], bool]


@cache
def keyring(real: bool) -> tuple[tuple[signing.Signer, ...], Verify]:
    """The keys of a run, in the order in which they come into force, and how a signature is checked."""
    if real:
        return tuple(signing.Ed25519Signer(bytes([number] * 32)) for number in range(KEYS)), signing.verify
    return tuple(QuickSigner(number) for number in range(KEYS)), quick_verify


class CountedNoise:
    """Each draw is another multiple of `WIDE`; what it was drawn for is remembered."""

    rehearsal = False

    def __init__(self) -> None:
        self.drawn: list[tuple[NoiseLaw, float, int | None]] = []

    def draw(self, law: NoiseLaw, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        first = len(self.drawn)
        scales = scale_wh.tolist()
        cores = [None] * len(scales) if core_wh is None else core_wh.tolist()
        if not all(scales):
            raise PrivacyError("scale_wh", 0, "would publish the exact demand")
        self.drawn += [(law, scale, core) for scale, core in zip(scales, cores, strict=True)]
        return np.arange(first, first + len(scales), dtype=np.int64) * WIDE


class Rehearsed:
    """The same draws, stamped as a rehearsal."""

    rehearsal = True

    def __init__(self, noise: CountedNoise) -> None:
        self.draw = noise.draw
