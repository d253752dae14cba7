"""A client gets a zone, or loses one, while it sends: its secret and its tokens stay."""

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.databases import database
from tests.support.ingest_server import HARBOUR, QUAY, lines, reading, run_ingest_server

from murmurate.errors import MurmurateError
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.storage.migrate import migrate_database

ZONES = ("harbour", "hill", "quay")
SOME_ZONES = st.sets(st.sampled_from(ZONES), min_size=1)


@pytest.fixture(scope="module")
def dsn():
    with database("state") as dsn:
        migrate_database(dsn, "state")
        yield dsn


def test_a_second_zone_costs_no_outage(tmp_path, dsn):
    with run_ingest_server(tmp_path, dsn) as server, closing(AuthStore(dsn)) as access:
        before = server.bearer("north")
        assert server.post(before, lines([reading(HARBOUR[0])])).json()["accepted"] == 1
        access.change_zones("north", granted={"quay"})
        both = lines([reading(HARBOUR[1]), reading(QUAY[0])])
        assert [server.post(before, both).json()[name] for name in ("accepted", "refused")] == [1, 1]
        assert server.post(server.bearer("north"), both).json()["refused"] == 0


@given(changes=st.lists(st.tuples(st.sampled_from(("granted", "revoked")), SOME_ZONES), max_size=6), first=SOME_ZONES)
def test_a_token_is_for_what_it_was_issued_for_and_the_client_still_has(dsn, changes, first):
    with closing(AuthStore(dsn)) as access:
        secret, zones, tokens = access.add_client(ApiClient(id="head-end", zones=frozenset(first))), set(first), []
        for change, named in changes:
            tokens.append((access.issue_token(access.authenticate("head-end", secret)).value, frozenset(zones)))
            wanted = zones | named if change == "granted" else zones - named
            if wanted:
                zones = wanted
                assert access.change_zones("head-end", **{change: named}) == ApiClient(
                    id="head-end", zones=frozenset(zones)
                )
            else:
                with pytest.raises(MurmurateError, match="murmurate client remove head-end"):
                    access.change_zones("head-end", **{change: named})
        for token, issued in tokens:
            assert access.find_token(token)[0] == issued & zones
        assert access.change_zones("nobody", granted=first) is None
