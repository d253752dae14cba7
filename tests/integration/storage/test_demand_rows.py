"""The demand in the state is loaded as it was stored, below zero too; earlier rows have no silent meters."""

import numpy as np
import psycopg
from tests.support.postgres_stores import ZONES
from tests.support.sample_shards import make_demand

from murmurate.service.storage import state_store
from murmurate.types import Demand

NAMES = ("energy_wh", "reported", "imputed", "silent_bound_wh", "silent_export_bound_wh")


def test_what_is_stored_is_loaded(stores):
    columns = {name: np.array([at - 9, at - 2**40], np.int64) for at, name in enumerate(NAMES)}
    stores.state.store_demand(7, Demand(zones=("zone 0a", "zone 1a"), bounds=({"": 5}, {"": 6}), **columns))
    intervals = {"shard 0": (7, ("zone 0a", "zone 0b")), "shard 1": (7, ("zone 1a",))}
    loaded = stores.state.load_demand(intervals)
    assert loaded.zones == ("zone 0a", "zone 1a")
    assert {name: getattr(loaded, name).tolist() for name in NAMES} == {
        name: wh.tolist() for name, wh in columns.items()
    }


def test_a_row_of_an_earlier_worker_has_no_silent_meters_and_one_with_a_gap_is_no_demand(stores):
    with psycopg.connect(stores.state_dsn) as connection:
        connection.execute(
            "INSERT INTO confidential.demand (interval, zone, energy_wh, reported, imputed, bounds)"
            " VALUES (7, 'zone 0a', -5, 1, 2, '{}'), (7, 'zone 0b', 6, 1, 2, '{}')"
        )
        connection.execute("UPDATE confidential.demand SET silent_export_bound_wh = NULL WHERE zone = 'zone 0b'")
    loaded = stores.state.load_demand({"shard 0": (7, ("zone 0a", "zone 0b"))})
    assert loaded.zones == ("zone 0a",)
    assert [getattr(loaded, name).tolist() for name in NAMES] == [[-5], [1], [2], [0], [0]]


def test_the_demand_of_more_zones_than_one_statement_takes_is_stored_whole_and_replaced(stores, monkeypatch):
    monkeypatch.setattr(state_store, "_ZONES_PER_STATEMENT", 4)
    for energy_wh in (500, 600):
        stores.state.store_demand(7, make_demand(**{zone: energy_wh + n for n, zone in enumerate(ZONES)}))
        loaded = stores.state.load_demand({"all": (7, tuple(ZONES))})
        found = dict(zip(loaded.zones, loaded.energy_wh.tolist(), strict=True))
        assert found == {zone: energy_wh + n for n, zone in enumerate(ZONES)}
    assert len(ZONES) % 4
