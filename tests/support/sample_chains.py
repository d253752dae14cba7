"""Samples for tests of the publisher: release terms without a proof, a record writer, and a chain that it wrote."""

from fractions import Fraction

import numpy as np

from murmurate.planning.hidden_households import HiddenHouseholds
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import Change, DesiredState, Opening, find_next_record
from murmurate.publisher.record_writer import RecordWriter
from murmurate.types import Demand

OLD_KEY, NEW_KEY = Ed25519Signer(bytes(32)), Ed25519Signer(bytes([1]) * 32)
CURVE = RateCurve.affine(alpha="1/1000", beta="0.1", tick="0.00001")
FIRST = 1000
HIDES = HiddenHouseholds(by_kind={"flat": 1000, "mill": 9000}, unknown_kind_wh=1000, public_wh=5000)
BOUNDS = {"": 1000}  # what the households of a zone may add, by kind


def terms(plan="a", law=NoiseDistribution.LAPLACE, currency="EUR", curve=CURVE):
    """A day of four intervals with different noise and cost."""
    slots = np.arange(4)
    costs = 1000 * (slots + 1)
    laplace = law is NoiseDistribution.LAPLACE
    return ReleaseTerms(
        plan_digest=plan * 64,
        zone="harbour",
        currency=currency,
        curve=curve,
        distribution=law,
        scale_wh=1000.0 * (slots + 1),
        epsilon_micro=costs if laplace else 0 * costs,
        rho_micro=0 * costs if laplace else costs,
        core_wh=0 * costs,
        forecast_ticks=curve.price_ticks(100_000 * slots),
        hidden_households=HIDES,
    )


PLANS = {one.plan_digest: one for one in (terms("a"), terms("b", NoiseDistribution.GAUSSIAN, "CHF"))}
OPENING = Opening(plan="a" * 64, key=OLD_KEY.public_key, first=FIRST)


def record_writer(noise=None):
    signers = {signer.public_key: signer for signer in (OLD_KEY, NEW_KEY)}
    return RecordWriter(terms_for_plan=PLANS.get, signers=signers, noise=noise or SystemNoise())


def demand(**energy_wh):
    column = np.array(list(energy_wh.values()), np.int64)
    bounds = (BOUNDS,) * len(energy_wh)
    return Demand(zones=tuple(energy_wh), energy_wh=column, reported=column * 0 + 7, imputed=column * 0, bounds=bounds)


NO_DEMAND = demand()


def write(head, desired, energy_wh=None, zone="harbour", writer=None):
    """The next entry that the record writer writes for a desired state."""
    task = find_next_record(head, desired)
    given = NO_DEMAND if energy_wh is None else demand(**{zone: energy_wh})
    drafts = (writer or record_writer()).write_entries({zone: (head, task)}, given)
    assert not drafts.refused, drafts.refused
    return drafts.written[zone]


def chain(zone="harbour", days=1):
    """A chain with a record of every kind, a plan change and a key rotation in it."""
    entries = [write(None, DesiredState(until=FIRST, opening=OPENING), zone=zone)]

    def then(desired, energy_wh=None):
        entries.append(write(entries[-1], desired, energy_wh, zone))

    for n in range(4 * days):
        then(DesiredState(until=FIRST + n), 500_000 + n)
    last = FIRST + 4 * days
    then(DesiredState(until=last))
    then(DesiredState(until=last + 1, priced_from=last + 2))
    then(DesiredState(until=0, plan_change=Change("a" * 64, "b" * 64)))
    then(DesiredState(until=last + 2), 400_000)
    then(DesiredState(until=0, key_change=Change(OLD_KEY.public_key, NEW_KEY.public_key)))
    then(DesiredState(until=last + 3), 300_000)
    return entries


PRICE_STEP = Fraction(1, 100_000)
