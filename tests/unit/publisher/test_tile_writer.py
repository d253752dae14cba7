"""The tile writer: a price from the noised demand under the plan, its cost, and nothing else of the demand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_shards import (
    CURVE,
    FIRST,
    INTERVAL_S,
    NEW_KEY,
    OLD_KEY,
    OPENING,
    PLANS,
    THREE_ZONES,
    change_plan,
    digest_of,
    make_demand,
    make_terms,
    make_writer,
    open_shard,
    open_zone,
    release,
    write_tile,
)

from murmurate.errors import PrivacyError
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution, SeededNoise, SystemNoise
from murmurate.public_log.tile import NoiseCode, RowKind, TileKind
from murmurate.publisher.desired_state import Change, DesiredState, ShardOpening, ZoneOpening, find_next_tile
from murmurate.publisher.tile_writer import TileWriter
from murmurate.types import UNPROTECTED_KIND

OPEN = open_shard({"harbour": open_zone("a")})
NEXT = DesiredState(until=FIRST)


class FixedNoise:
    """Adds a number that can be told from its scale, and remembers what it was asked for."""

    test_only = False

    def __init__(self):
        self.asked = []

    def draw(self, distribution, scale_wh, core_wh=None):
        self.asked.append((distribution, scale_wh.tolist(), None if core_wh is None else core_wh.tolist()))
        return (scale_wh // 100).astype(np.int64)


def write_row(desired=NEXT, demand=None, noise=None, head=OPEN):
    """Return the row of harbour in the next tile."""
    tile = write_tile(head, desired, demand or make_demand(), writer=make_writer(noise)).tile
    return tile.rows[0]


def test_a_measured_price_is_the_noised_demand_on_the_curve():
    head = OPEN
    for n in range(8):
        noise = FixedNoise()
        head = release(head, FIRST + n, harbour=600_000 + n, writer=make_writer(noise))
        slot = (FIRST + n) % 4
        assert noise.asked == [(NoiseDistribution.LAPLACE, [1000.0 * (slot + 1)], None)]
        row = head.tile.rows[0]
        assert row["kind"] == RowKind.MEASURED
        assert row["price_ticks"] == int(CURVE.price_ticks(600_000 + n + 10 * (slot + 1)))
        assert (row["noise"], row["scale_wh"], row["core_wh"]) == (NoiseCode.LAPLACE, 1000.0 * (slot + 1), 0)
        assert (row["epsilon_micro"], row["rho_micro"]) == (1000 * (slot + 1), 0)
        assert head.tile.header.interval == FIRST + n
    assert head.totals[:, 0].tolist() == [2 * (1000 + 2000 + 3000 + 4000), 0]


def test_each_zone_has_the_noise_and_the_cost_of_its_plan():
    noise = FixedNoise()
    head = release(open_shard(), FIRST, writer=make_writer(noise), harbour=100_000, hill=200_000, mill=300_000)
    scale = 1000.0 * (FIRST % 4 + 1)
    core = 7000 * (FIRST % 4 + 1)
    assert noise.asked == [
        (NoiseDistribution.LAPLACE, [scale], None),
        (NoiseDistribution.GAUSSIAN, [scale], None),
        (NoiseDistribution.HUBER, [scale], [core]),
    ]
    rows = head.tile.rows
    assert rows["noise"].tolist() == [NoiseCode.LAPLACE, NoiseCode.GAUSSIAN, NoiseCode.HUBER]
    assert rows["core_wh"].tolist() == [0, 0, core]
    assert rows["epsilon_micro"].tolist() == [1000, 0, 1000]
    assert rows["rho_micro"].tolist() == [0, 1000, 0]


def test_without_demand_the_forecast_is_released_and_costs_nothing():
    noise = FixedNoise()
    row = write_row(noise=noise)
    assert row["kind"] == RowKind.FALLBACK
    assert row["price_ticks"] == int(PLANS[digest_of("a")].forecast_ticks[FIRST % 4])
    assert (row["noise"], row["scale_wh"], row["total_epsilon_micro"]) == (NoiseCode.NONE, 0, 0)
    assert noise.asked == []
    later = DesiredState(until=FIRST + 1)
    second = write_row(later, head=release(OPEN, FIRST))
    assert second["price_ticks"] == int(PLANS[digest_of("a")].forecast_ticks[(FIRST + 1) % 4])


@pytest.mark.parametrize(
    ("bounds", "kind"),
    [
        (({"": 999},), RowKind.MEASURED),
        (({"": 1000, "mill": 9000, UNPROTECTED_KIND: 5000},), RowKind.MEASURED),
        (({"": 1001},), RowKind.FALLBACK),
        (({"flat": 1001},), RowKind.FALLBACK),
        (({"": 1000, UNPROTECTED_KIND: 5001},), RowKind.FALLBACK),
        (({"": 1000, "inn": 1},), RowKind.FALLBACK),
        (({},), RowKind.FALLBACK),
        ((None,), RowKind.FALLBACK),
        (None, RowKind.FALLBACK),
    ],
)
def test_a_demand_with_a_household_that_the_plan_does_not_hide_is_not_used(bounds, kind):
    noise = FixedNoise()
    row = write_row(demand=replace(make_demand(harbour=500_000), bounds=bounds), noise=noise)
    assert row["kind"] == kind
    assert len(noise.asked) == (kind is RowKind.MEASURED)


def test_a_flat_with_the_bound_of_a_market_is_not_released_at_any_hour_of_the_day():
    """By day the market's hours are public and the noise is the flats': it would not hide 20,000 Wh."""
    text = EXAMPLE_ZONE_FILE.replace(
        'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', 'promise = ["interval: 0.5"]'
    )
    text = text.replace('public = "always"', 'public = ["08:00-20:00"]').replace("_minutes = 15", "_minutes = 60")
    terms = ReleaseTerms.from_json(make_plan(parse_zone(text)).to_json())
    writer = TileWriter(
        terms_for_plan={terms.plan_digest: terms}.get, signers={OLD_KEY.public_key: OLD_KEY}, noise=SystemNoise()
    )
    zone = ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=FIRST)
    opening = ShardOpening(key=OLD_KEY.public_key, interval_s=3600)
    for bounds, kind in (
        ({"": 20_000}, RowKind.FALLBACK),
        ({"flat": 1000, "fish market": 20_000}, RowKind.MEASURED),
    ):
        head = write_tile(None, DesiredState(until=FIRST, opening=opening, zones={"harbour": zone}), writer=writer)
        for n in range(24):
            demand = replace(make_demand(harbour=180_000), bounds=(bounds,))
            head = write_tile(head, DesiredState(until=FIRST + n), demand, writer=writer)
            assert head.tile.rows["kind"].tolist() == [kind]


def test_what_comes_too_late_is_withheld_and_nothing_is_drawn():
    noise = FixedNoise()
    row = write_row(DesiredState(until=FIRST, priced_from=FIRST + 1), make_demand(harbour=500_000), noise)
    assert (row["kind"], row["price_ticks"], row["epsilon_micro"]) == (RowKind.WITHHELD, 0, 0)
    assert noise.asked == []
    row = write_row(DesiredState(until=FIRST, priced_from=FIRST), make_demand(harbour=500_000), noise)
    assert row["kind"] == RowKind.MEASURED


class NoiseUpTo:
    """Adds whatever makes the noised demand this one."""

    test_only = False

    def __init__(self, noisy_wh, energy_wh):
        self.missing_wh = noisy_wh - energy_wh

    def draw(self, _distribution, scale_wh, _core_wh=None):
        return np.full(scale_wh.shape, self.missing_wh, np.int64)


COUNTS = st.tuples(st.integers(0, 2**40), st.integers(0, 2**20), st.integers(0, 2**20))


@given(st.integers(0, 2**40), st.lists(COUNTS, min_size=2, max_size=2))
def test_demands_whose_noised_value_is_the_same_give_the_same_tile(noisy_wh, demands):
    """A measured row is a function of public numbers and the noised price: no key turns it into a demand."""
    tiles = set()
    for energy_wh, reported, imputed in demands:
        columns = {"reported": np.array([reported]), "imputed": np.array([imputed])}
        demand = replace(make_demand(harbour=energy_wh), **columns)
        tile = write_tile(OPEN, NEXT, demand, writer=make_writer(NoiseUpTo(noisy_wh, energy_wh))).tile
        assert tile.rows["kind"].tolist() == [RowKind.MEASURED]
        tiles.add(tile.to_bytes())
    assert len(tiles) == 1


def test_two_drafts_of_one_release_differ_in_their_draw():
    prices = {int(write_row(demand=make_demand(harbour=500_000))["price_ticks"]) for _ in range(50)}
    assert len(prices) > 1, "fifty draws of noise were all alike"


def next_tiles(heads, desired=NEXT):
    return {shard: find_next_tile(head, desired, desired.zones) for shard, head in heads.items()}


def test_a_shard_that_cannot_be_written_does_not_keep_the_others_from_it():
    opening = DesiredState(until=FIRST, opening=OPENING, zones=THREE_ZONES)
    stranger = replace(opening, opening=replace(OPENING, key="00" * 32))
    tiles = next_tiles({"north": None}, opening) | next_tiles({"south": None}, stranger)
    drafts = make_writer().write_tiles(tiles, make_demand(harbour=987_654_321))
    assert drafts.written.keys() == {"north"}
    assert drafts.refused.keys() == {"south"}
    assert "is not among this publisher's keys" in drafts.refused["south"]
    assert "987654321" not in str(drafts.refused)


def read_plan(digest):
    if digest == digest_of("c"):
        raise PrivacyError("plan", "unreadable", "must be a plan.json")
    return PLANS.get(digest)


WRONG_PLANS = {
    "unknown": lambda digest: None if digest == digest_of("c") else PLANS[digest],
    "unreadable": read_plan,
    "other intervals": (PLANS | {digest_of("c"): make_terms("c", slots=24)}).get,
    "other currency": (PLANS | {digest_of("c"): make_terms("c", currency="XXX")}).get,
    "other tick": (
        PLANS | {digest_of("c"): make_terms("c", curve=RateCurve.affine(alpha="1/1000", beta="0.1", tick="0.001"))}
    ).get,
}


@pytest.mark.parametrize("wrong", WRONG_PLANS)
def test_a_zone_that_cannot_be_priced_is_withheld_and_the_others_get_their_rows(wrong):
    noise = FixedNoise()
    writer = TileWriter(terms_for_plan=WRONG_PLANS[wrong], signers=make_writer().signers, noise=noise)
    tiles = next_tiles({"north": open_shard()})
    drafts = writer.write_tiles(tiles, make_demand(harbour=1, hill=2, mill=3))
    assert drafts.refused == {}
    assert drafts.withheld.keys() == {"mill"}
    kinds = drafts.written["north"].rows["kind"].tolist()
    assert kinds == [RowKind.MEASURED, RowKind.MEASURED, RowKind.WITHHELD]
    assert len(noise.asked) == 2


def test_test_only_noise_is_never_published():
    writer = make_writer(SeededNoise(1))
    heads = {"north": open_shard(), "south": open_shard({"quay": open_zone("a")}, "south")}
    drafts = writer.write_tiles(next_tiles(heads), make_demand(harbour=1))
    assert drafts.written.keys() == {"south"}  # nothing is drawn for it
    assert "is never published" in drafts.refused["north"]


def test_zones_of_one_batch_get_their_own_demand_each():
    """Whatever the order: prices stay with their zones, in whichever shard they are."""
    heads = {
        "north": open_shard({zone: open_zone("a") for zone in ("a", "b", "c")}),
        "south": open_shard({zone: open_zone("a") for zone in ("d", "e")}, "south"),
    }
    noise = FixedNoise()
    demand = make_demand(e=5_000_000, c=3_000_000, a=1_000_000)
    written = make_writer(noise).write_tiles(next_tiles(heads), demand).written
    added = 10 * (FIRST % 4 + 1)
    prices = {
        zone: int(price)
        for shard, tile in written.items()
        for zone, price in zip(heads[shard].table.zones, tile.rows["price_ticks"], strict=True)
    }
    forecast = int(PLANS[digest_of("a")].forecast_ticks[FIRST % 4])
    assert len(noise.asked) == 1, "equal curves are drawn together"
    assert prices == {
        "a": int(CURVE.price_ticks(1_000_000 + added)),
        "b": forecast,
        "c": int(CURVE.price_ticks(3_000_000 + added)),
        "d": forecast,
        "e": int(CURVE.price_ticks(5_000_000 + added)),
    }


def test_a_shard_opens_with_its_own_key_interval_and_lead():
    opening = ShardOpening(key=NEW_KEY.public_key, interval_s=INTERVAL_S, lead=5)
    head = write_tile(None, DesiredState(until=FIRST, opening=opening, zones=THREE_ZONES), shard="west")
    header = head.tile.header
    assert (header.shard, header.key, header.interval_s, header.lead) == ("west", NEW_KEY.public_key, INTERVAL_S, 5)
    assert (header.kind, header.seq, header.interval) == (TileKind.OPEN, 0, FIRST - 1)


def test_keys_and_plans_change_with_tiles_of_their_own():
    change = Change(OLD_KEY.public_key, NEW_KEY.public_key)
    head = write_tile(OPEN, DesiredState(until=FIRST, key_change=change))
    assert (head.tile.header.kind, head.tile.key_in_force) == (TileKind.KEY, NEW_KEY.public_key)
    head = write_tile(head, DesiredState(until=FIRST, plan_changes={"harbour": change_plan("a", "b")}))
    assert head.tile.header.kind is TileKind.ZONES
    row = head.table.rows[0]
    assert (row.plan, row.currency, row.tick) == (digest_of("b"), "CHF", PLANS[digest_of("b")].tick)
    head = release(head, FIRST, harbour=5)
    assert head.tile.rows["noise"].tolist() == [NoiseCode.GAUSSIAN]
    assert head.tile.header.key == NEW_KEY.public_key
