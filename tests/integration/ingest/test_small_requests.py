"""Many small requests over HTTP, and clients that are removed while their tokens are known."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.support.ingest_server import HARBOUR, QUAY, lines, reading, run_ingest_server
from tests.support.waiting import wait_until

from murmurate.service import auth
from murmurate.service.auth import ApiClient, AuthError, AuthStore, TokenCache
from murmurate.service.landing import append
from murmurate.service.storage import durable

CLIENTS = 24


@pytest.fixture
def door(tmp_path, state_dsn):
    with run_ingest_server(tmp_path, state_dsn) as made:
        yield made


def post_at_once(door, token, bodies):
    headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}

    def post(body):
        return httpx.post(f"http://127.0.0.1:{door.port}/readings", content=body, headers=headers, timeout=120)

    with ThreadPoolExecutor(len(bodies)) as clients:
        return list(clients.map(post, bodies))


@pytest.fixture
def held_disk(monkeypatch):
    """Two events: something is being stored; it may be."""
    begun, may_go, real = threading.Event(), threading.Event(), append.append_readings

    def slow(*what):
        begun.set()
        assert may_go.wait(60)
        return real(*what)

    monkeypatch.setattr(append, "append_readings", slow)
    return begun, may_go


def test_requests_that_come_together_are_stored_together_each_with_its_own_receipt(door, held_disk):
    """The first is stored alone; a broken one fails alone."""
    first, may_go = held_disk
    token = door.bearer("north")
    bodies = [lines([reading(meter), reading(QUAY[meter])]) for meter in range(1, CLIENTS)] + [b"broken"]
    with ThreadPoolExecutor(2) as senders:
        begun = senders.submit(post_at_once, door, token, [lines([reading(0)])])
        assert first.wait(60)
        rest = senders.submit(post_at_once, door, token, bodies)
        assert wait_until(lambda: len(door.ingestor()._commits._waiting) >= CLIENTS - 1)
        assert not rest.done()
        assert door.ingestor.counts["accepted"] == 0, "nothing is acknowledged before it is on disk"
        may_go.set()
        (alone,), answers = begun.result(), rest.result()
    assert (alone.status_code, alone.json()["accepted"]) == (200, 1)
    assert [answer.status_code for answer in answers] == [422] * (CLIENTS - 1) + [400]
    for answer in answers[:-1]:
        assert (answer.json()["accepted"], [line["line"] for line in answer.json()["refusals"]]) == (1, [2])
    assert len(list(door.landing.root.glob("interval=*/shard=*/*.parquet"))) < CLIENTS / 2
    assert door.counted().reported.tolist() == [CLIENTS, 0]


def test_when_too_many_bodies_are_on_their_way_a_client_is_told_to_come_again(door, held_disk):
    begun, may_go = held_disk
    door.api.max_bytes_in_flight = 10
    token = door.bearer("north")
    with ThreadPoolExecutor(1) as sender:
        first = sender.submit(post_at_once, door, token, [lines([reading(0)])])
        assert begun.wait(60)
        busy = door.post(token, lines([reading(1)]))
        may_go.set()
        assert first.result()[0].status_code == 200
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
    assert "send it again" in busy.json()["detail"]
    assert door.post(token, lines([reading(1)])).status_code == 200
    assert door.counted().reported.tolist() == [2, 0]


def test_a_disk_that_fails_is_a_503_and_what_is_sent_again_counts_once(door, monkeypatch):
    token = door.bearer("north")
    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_once", lambda *_: (_ for _ in ()).throw(OSError("full")))
        assert door.post(token, lines([reading(0)])).status_code == 503
    assert door.post(token, lines([reading(0)])).status_code == 200
    assert door.counted().reported.tolist() == [1, 0]


def test_a_removed_client_is_refused_within_the_stated_time(door, monkeypatch):
    monkeypatch.setattr(auth, "TOKEN_CACHE_S", 1.0)
    token = door.bearer("north")
    assert door.post(token, lines([reading(HARBOUR[0])])).status_code == 200
    door.query("DELETE FROM access.client WHERE id = 'north'")
    removed_s = sent_s = time.monotonic()
    while door.post(token, lines([reading(HARBOUR[1])])).status_code == 200:
        assert sent_s <= removed_s + 1.0, "sent after the stated time"
        sent_s = time.monotonic()
    assert door.post(token, lines([reading(HARBOUR[2])])).status_code == 401


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def cached(state_dsn):
    """A store that counts its look-ups, a cache with a clock of its own, and a client's token."""
    access, clock = AuthStore(state_dsn), Clock()
    cache = TokenCache(access, clock)
    secret = access.add_client(ApiClient(id="north", zones=frozenset({"harbour", "quay"})))
    token = access.issue_token(access.authenticate("north", secret)).value
    yield access, cache, clock, token
    access.close()


def zones_of(cache, token):
    zones = cache.cached_zones(token)
    return cache.authorized_zones(token) if zones is None else zones


def test_a_token_is_looked_up_once_in_five_seconds(cached):
    access, cache, clock, token = cached
    assert zones_of(cache, token) == {"harbour", "quay"}
    assert auth.TOKEN_CACHE_S == 5
    assert access.remove_client("north")
    clock.now_s += auth.TOKEN_CACHE_S - 0.001
    assert zones_of(cache, token) == {"harbour", "quay"}
    clock.now_s += 0.001
    with pytest.raises(AuthError):
        zones_of(cache, token)


def test_a_lost_zone_is_lost_after_five_seconds(cached):
    access, cache, clock, token = cached
    zones_of(cache, token)
    with access._session.transaction() as connection:
        connection.execute("UPDATE access.client SET zones = '{quay}'")
    clock.now_s += auth.TOKEN_CACHE_S
    assert zones_of(cache, token) == {"quay"}


def test_a_token_that_expires_is_refused_at_once(cached):
    access, cache, clock, token = cached
    with access._session.transaction() as connection:
        connection.execute("UPDATE access.token SET expires = now() + make_interval(secs => 2)")
    zones_of(cache, token)
    clock.now_s += 2.0
    assert cache.cached_zones(token) is None


def test_what_is_not_valid_is_not_cached_and_what_is_cached_is_bounded(cached, monkeypatch):
    access, cache, clock, token = cached
    for other in ("x", token.upper(), ""):
        with pytest.raises(AuthError):
            zones_of(cache, other)
        assert cache.cached_zones(other) is None
    monkeypatch.setattr(auth, "MAX_CACHED_TOKENS", 2)
    client = access.list_clients()[0]
    tokens = [access.issue_token(client).value for _ in range(4)]
    for each in tokens:
        clock.now_s += 0.1
        zones_of(cache, each)
    assert [cache.cached_zones(each) is not None for each in tokens] == [False, False, True, True]
    monkeypatch.setattr(auth, "MAX_CACHED_ZONES", 2)
    zones_of(cache, tokens[0])
    assert [cache.cached_zones(each) is not None for each in tokens] == [True, False, False, False]
