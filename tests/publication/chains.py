"""Small worlds for tests of publication: terms without a proof, a desk, a chain written by it."""

from fractions import Fraction

import numpy as np

from murmurate.curator.hiding import HiddenHouseholds
from murmurate.curator.terms import Terms
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseLaw, SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Change, Opening, Wish, next_task
from murmurate.quantities import Demand

OLD_KEY, NEW_KEY = Ed25519Signer(bytes(32)), Ed25519Signer(bytes([1]) * 32)
CURVE = RateCurve.affine(alpha="1/1000", beta="0.1", tick="0.00001")
FIRST = 1000
HIDES = HiddenHouseholds(by_kind={"flat": 1000, "mill": 9000}, unnamed_wh=1000, public_wh=5000)
BOUNDS = {"": 1000}  # what the households of a zone may add, by kind


def terms(plan="a", law=NoiseLaw.LAPLACE, currency="EUR", curve=CURVE):
    """A day of four intervals with different noise and cost."""
    slots = np.arange(4)
    costs = 1000 * (slots + 1)
    laplace = law is NoiseLaw.LAPLACE
    return Terms(
        plan=plan * 64,
        zone="harbour",
        currency=currency,
        curve=curve,
        law=law,
        scale_wh=1000.0 * (slots + 1),
        epsilon_micro=costs if laplace else 0 * costs,
        rho_micro=0 * costs if laplace else costs,
        core_wh=0 * costs,
        forecast_ticks=curve.price_ticks(100_000 * slots),
        hides=HIDES,
    )


PLANS = {at.plan: at for at in (terms("a"), terms("b", NoiseLaw.GAUSSIAN, "CHF"))}
OPENING = Opening(plan="a" * 64, key=OLD_KEY.public, first=FIRST)


def desk(noise=None):
    signers = {signer.public: signer for signer in (OLD_KEY, NEW_KEY)}
    return Desk(terms=PLANS.get, signers=signers, noise=noise or SystemNoise())


def demand(**energy_wh):
    column = np.array(list(energy_wh.values()), np.int64)
    bounds = (BOUNDS,) * len(energy_wh)
    return Demand(zones=tuple(energy_wh), energy_wh=column, reported=column * 0 + 7, imputed=column * 0, bounds=bounds)


NO_DEMAND = demand()


def write(head, wish, energy_wh=None, zone="harbour", at=None):
    """The entry that a desk writes next for `wish`."""
    task = next_task(head, wish)
    given = NO_DEMAND if energy_wh is None else demand(**{zone: energy_wh})
    drafts = (at or desk()).write({zone: (head, task)}, given)
    assert not drafts.refused, drafts.refused
    return drafts.written[zone]


def chain(zone="harbour", days=1):
    """A chain with a record of every kind, a plan change and a key rotation in it."""
    entries = [write(None, Wish(until=FIRST, opening=OPENING), zone=zone)]

    def then(wish, energy_wh=None):
        entries.append(write(entries[-1], wish, energy_wh, zone))

    for n in range(4 * days):
        then(Wish(until=FIRST + n), 500_000 + n)
    last = FIRST + 4 * days
    then(Wish(until=last))
    then(Wish(until=last + 1, in_time_from=last + 2))
    then(Wish(until=0, plan=Change("a" * 64, "b" * 64)))
    then(Wish(until=last + 2), 400_000)
    then(Wish(until=0, key=Change(OLD_KEY.public, NEW_KEY.public)))
    then(Wish(until=last + 3), 300_000)
    return entries


PRICE_STEP = Fraction(1, 100_000)
