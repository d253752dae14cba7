"""Small shards for tests of publication: terms without a proof, a tile writer, and tiles of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from murmurate.planning.release_terms import HiddenHouseholds, ReleaseTerms
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.public_log.canonical import canonical_json, compute_digest
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile_chain import ShardHead, check_follows
from murmurate.publisher.desired_state import (
    Change,
    DesiredState,
    PlanChange,
    ShardOpening,
    ZoneOpening,
    find_next_tile,
)
from murmurate.publisher.steps import Offer
from murmurate.publisher.tile_writer import TileWriter
from murmurate.types import Demand

OLD_KEY, NEW_KEY = Ed25519Signer(bytes(32)), Ed25519Signer(bytes([1]) * 32)
SIGNERS = {signer.public_key: signer for signer in (OLD_KEY, NEW_KEY)}
CURVE = RateCurve.affine(alpha="1/1000", beta="0.1", tick="0.00001")
FIRST = 1000
INTERVAL_S = 21_600
HIDES = HiddenHouseholds(by_kind={"flat": 1000, "mill": 9000}, unknown_kind_wh=1000, public_wh=5000)
BOUNDS = {"": 1000}  # what the households of a zone may add, by kind


def plan_document(plan: str) -> str:
    """Return what stands in the log for a sample plan."""
    return canonical_json({"plan": plan})


def digest_of(plan: str) -> str:
    """Return the digest of a sample plan."""
    return compute_digest(plan_document(plan))


def make_terms(
    plan: str = "a",
    distribution: NoiseDistribution = NoiseDistribution.LAPLACE,
    currency: str = "EUR",
    curve: RateCurve = CURVE,
    slots: int = 4,
) -> ReleaseTerms:
    """Return terms of a day whose intervals have different noise and cost."""
    number = np.arange(slots)
    costs = 1000 * (number + 1)
    gaussian = distribution is NoiseDistribution.GAUSSIAN
    return ReleaseTerms(
        plan_digest=digest_of(plan),
        zone="harbour",
        currency=currency,
        curve=curve,
        distribution=distribution,
        scale_wh=1000 * (number + 1).astype(np.float64),
        epsilon_micro=0 * costs if gaussian else costs,
        rho_micro=costs if gaussian else 0 * costs,
        core_wh=7 * costs if distribution is NoiseDistribution.HUBER else 0 * costs,
        forecast_ticks=curve.price_ticks(100_000 * number),
        hidden_households=HIDES,
    )


PLANS = {
    each.plan_digest: each
    for each in (
        make_terms("a"),
        make_terms("b", NoiseDistribution.GAUSSIAN, "CHF"),
        make_terms("c", NoiseDistribution.HUBER),
    )
}
OPENING = ShardOpening(key=OLD_KEY.public_key, interval_s=INTERVAL_S)
KEY_CHANGE = Change(OLD_KEY.public_key, NEW_KEY.public_key)


def open_zone(plan: str = "a", first: int = FIRST) -> ZoneOpening:
    """Return how a zone enters a shard under a plan of `PLANS`."""
    terms = PLANS[digest_of(plan)]
    return ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=first)


ZONE_OPENING = open_zone()


def desire(until: int = FIRST - 1, zones: Any = (), opening: ZoneOpening = ZONE_OPENING, **more: Any) -> DesiredState:
    """Return what is wanted of a shard with these zones."""
    by_zone = zones if isinstance(zones, dict) else dict.fromkeys(zones, opening)
    return DesiredState(until=until, opening=OPENING, zones=by_zone, **more)


def change_plan(before: str = "a", after: str = "b") -> PlanChange:
    terms = PLANS[digest_of(after)]
    return PlanChange(digest_of(before), terms.plan_digest, terms.currency, terms.tick)


def make_writer(noise: Any = None, plans: Mapping[str, ReleaseTerms] = PLANS) -> TileWriter:
    return TileWriter(terms_for_plan=plans.get, signers=SIGNERS, noise=noise or SystemNoise())


def make_demand(**energy_wh: int) -> Demand:
    column = np.array(list(energy_wh.values()), np.int64)
    bounds = (BOUNDS,) * len(energy_wh)
    return Demand(zones=tuple(energy_wh), energy_wh=column, reported=column * 0 + 7, imputed=column * 0, bounds=bounds)


NO_DEMAND = make_demand()


def next_offer(
    head: ShardHead | None,
    desired: DesiredState,
    demand: Demand = NO_DEMAND,
    *,
    shard: str = "north",
    writer: TileWriter | None = None,
) -> Offer:
    """Return the tile that a publisher writes next. All zones are claimed."""
    tile = find_next_tile(head, desired, desired.zones.keys())
    assert tile is not None
    drafts = (writer or make_writer()).write_tiles({shard: tile}, demand)
    assert not drafts.refused, drafts.refused
    return Offer(drafts.written[shard], tile.table)


def write_tile(
    head: ShardHead | None,
    desired: DesiredState,
    demand: Demand = NO_DEMAND,
    *,
    shard: str = "north",
    writer: TileWriter | None = None,
) -> ShardHead:
    """Return the head after the tile that a publisher writes next."""
    return check_follows(head, *next_offer(head, desired, demand, shard=shard, writer=writer))


THREE_ZONES = {"harbour": open_zone("a"), "hill": open_zone("b"), "mill": open_zone("c")}


def open_shard(zones: Any = THREE_ZONES, shard: str = "north", key: Ed25519Signer = OLD_KEY) -> ShardHead:
    """Return the head of a shard after its first tile."""
    opening = replace(OPENING, key=key.public_key)
    return write_tile(None, DesiredState(until=FIRST, opening=opening, zones=zones), shard=shard)


def release(
    head: ShardHead | None, interval: int, *, shard: str = "north", writer: TileWriter | None = None, **energy_wh: int
) -> ShardHead:
    """Return the head after the release of an interval."""
    desired = DesiredState(until=interval)
    return write_tile(head, desired, make_demand(**energy_wh), shard=shard, writer=writer)


def sample_heads() -> list[ShardHead]:
    """Return the heads of a shard with a tile of every kind and a row of every kind, and zones that enter later."""
    heads = [open_shard()]

    def then(desired: DesiredState, **energy_wh: int) -> None:
        heads.append(write_tile(heads[-1], desired, make_demand(**energy_wh)))

    then(DesiredState(until=FIRST), harbour=500_000, hill=600_000, mill=700_000)
    then(DesiredState(until=FIRST + 1), harbour=510_000)
    then(DesiredState(until=FIRST + 2, plan_changes={"harbour": change_plan("a", "b")}))
    then(DesiredState(until=FIRST + 2), harbour=520_000, mill=720_000)
    entering = {"quay": open_zone("c"), "zoo": open_zone("a")}
    then(DesiredState(until=FIRST + 3, zones=entering))
    then(DesiredState(until=FIRST + 3), harbour=530_000, quay=540_000, zoo=1)
    then(DesiredState(until=FIRST + 3, key_change=KEY_CHANGE))
    then(DesiredState(until=FIRST + 4, priced_from=FIRST + 5))
    then(DesiredState(until=FIRST + 5), harbour=1, mill=2, quay=3, zoo=4)
    return heads
