"""Predicted prices through real commands and databases: forecast, plan, open, release, lost state, verify."""

import numpy as np
import pytest

from murmurate.public_log.tile import RowKind, parse_tile
from tests.support.operator_cli import an_operator, open_zones, small_zone

RELEASE = "murmurate step release --slot 0.02"
SLOTS = 288
FORECAST = '\n[forecast]\nfile = "forecast.json"\nelasticity = 0.1\n'


def demand_csv():
    """Six weeks of a public demand, in steps of five minutes."""
    first = 1_736_121_600
    slots = np.arange(40 * SLOTS)
    kwh = 60 + 25 * np.sin((slots % SLOTS - 100) * 2 * np.pi / SLOTS) + np.random.default_rng(1).normal(size=len(slots))
    rows = [f"{np.datetime64(first + 300 * int(n), 's')}Z,{value:.3f}" for n, value in zip(slots, kwh, strict=True)]
    return "\n".join(["start,kwh", *rows])


@pytest.fixture
def operator(tmp_path):
    """Zone a has predicted prices and zone b has not; both in one shard, an hour and more of releases."""
    with an_operator(tmp_path) as one:
        one.run("murmurate init | sed -n 's/Public key: //p' > operator.key")
        one.write("demand.csv", demand_csv())
        shown = one.run(
            "murmurate forecast --history demand.csv --households 801 --time-zone Europe/Lisbon --interval-minutes 5"
        )
        assert "% off (rms, rolling origin)" in shown
        one.write("a.toml", small_zone("a") + FORECAST)
        one.write("b.toml", small_zone("b"))
        assert "Prices are predicted" in one.run("murmurate plan a.toml --out a.json")
        assert "Prices are made from each release" in one.run("murmurate plan b.toml --out b.json")
        open_zones(one, "a", "b", lead=3)
        yield one


def verified(operator, name):
    shown = operator.run(f'murmurate log verify {name} --key "$(cat operator.key)"')
    assert "Everything holds." in shown


def test_predicted_prices_hold_through_a_change_of_plan(operator):
    first = parse_tile(operator.export("opened.tar")[0]).header.interval + 1
    for zone in "ab":
        operator.store_demand(first, first + 20, energy_wh=90_000, zone=zone)
    assert "2 of 2 zones up to date" in operator.run(RELEASE)
    tiles = [parse_tile(tile) for tile in operator.export("log.tar")]
    released = [tile for tile in tiles if len(tile.rows)]
    assert all("states" in tile.rows.dtype.names for tile in released)
    measured = [tile for tile in released if tile.rows["kind"][0] == RowKind.MEASURED]
    assert measured
    assert (measured[-1].rows["states"][0] != 0).any()
    assert (measured[-1].rows["states"][1] == 0).all()
    verified(operator, "log.tar")
    operator.run("murmurate log export --zone a a.jsonl")
    verified(operator, "a.jsonl")

    shown = operator.run('murmurate forecast --log a.jsonl --zone a --key "$(cat operator.key)"', status=2)
    assert "days with a noised demand" in shown
    assert "must have 35 days or more" in shown

    operator.run("sed 's/^count = 800/count = 820/' a.toml > a-2.toml; murmurate plan a-2.toml --out a-2.json")
    operator.run("murmurate zone change a-2.json")
    operator.run(f"{RELEASE} --grace 0")
    operator.export("after.tar")
    verified(operator, "after.tar")
    operator.run("murmurate log export --zone a after.jsonl")
    verified(operator, "after.jsonl")


def test_a_state_that_was_lost_is_read_from_the_log_and_the_next_prices_follow(operator):
    first = parse_tile(operator.export("opened.tar")[0]).header.interval + 1
    operator.store_demand(first, first + 10, energy_wh=90_000, zone="a")
    operator.run(RELEASE)
    operator.lose("state")
    operator.create("state")
    open_zones(operator, "a", "b", lead=3)
    operator.run(f"{RELEASE} --grace 0")
    operator.export("log.tar")
    verified(operator, "log.tar")
