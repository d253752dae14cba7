"""A writer whose connection is cut in mid-create, or whose gateway is killed, believes only what is true."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from tests.support.cutting_proxy import Cut, cutting_proxy
from tests.support.store_writers import ContentComparingStore, HastyStore, race
from tests.support.waiting import wait_until

from murmurate.service.storage.open_store import open_store
from murmurate.service.storage.remote_store import RemoteStore

RACES = int(os.environ.get("MURMURATE_RACES", "200")) // 4
SEED = 7


@pytest.fixture
def race_through_proxies(ceph, bucket_address):
    """Return a function that races through a proxy for each writer."""

    def run(races, opener=open_store, *, cuts=tuple(Cut), equal=False):
        with ExitStack() as stack:
            proxies = [stack.enter_context(cutting_proxy(ceph.port, cuts, seed=SEED + n)) for n in range(4)]
            ends = [{"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"} for proxy in proxies]
            return race(bucket_address, ends, races, opener=opener, equal=equal)

    return run


def test_writers_whose_connections_are_cut_believe_what_is_true(race_through_proxies, figure):
    counts = race_through_proxies(RACES)
    figure(f"creates that are cut: {counts}")
    assert counts.doubles == counts.without_winner == counts.wrong == 0
    assert counts.doubts < RACES  # most are resolved by reading


def test_of_writers_of_equal_bytes_that_are_cut_one_wins(race_through_proxies):
    counts = race_through_proxies(RACES, equal=True)
    assert counts.doubles == counts.without_winner == 0


@pytest.mark.parametrize(("bug", "equal"), [(HastyStore, False), (ContentComparingStore, True)])
def test_the_races_find_a_store_with_a_bug(race_through_proxies, bug, equal):
    counts = race_through_proxies(15, bug, equal=equal)
    assert counts.doubles + counts.without_winner + counts.wrong > 0


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.DURING, Cut.LATE])
def test_a_writer_alone_wins_after_a_cut(ceph, bucket_address, monkeypatch, cut):
    with cutting_proxy(ceph.port, [cut, Cut.NONE]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        store = open_store(bucket_address)
        assert store.create("mine", b"1")
        assert not store.create("mine", b"1")
        assert store.read("mine") == b"1"
    assert proxy.counts[cut] == 1


def test_a_writer_whose_every_answer_is_lost_knows_that_it_won(ceph, bucket_address, monkeypatch):
    with cutting_proxy(ceph.port, [Cut.AFTER]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        assert open_store(bucket_address).create("mine", b"1")


def test_a_writer_that_reaches_the_store_for_reading_alone_is_in_doubt(ceph, bucket_address, monkeypatch):
    with cutting_proxy(ceph.port, [Cut.BEFORE]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(OSError, match="the object store failed"):
            open_store(bucket_address, timeout_s=1).create("mine", b"1")


def test_a_bucket_that_is_not_there_is_named(ceph, bucket_address):
    del ceph, bucket_address
    with pytest.raises(OSError, match="no such bucket"):
        open_store("s3://another-bucket").create("a", b"")


def test_a_wrong_key_is_a_refusal(bucket_address, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    for call in (lambda store: store.create("a", b""), lambda store: store.read("a"), lambda store: store.exists("a")):
        with pytest.raises(PermissionError, match="the object store refuses"):
            call(RemoteStore(bucket_address))


def test_writers_believe_what_is_true_while_the_gateway_is_killed(ceph, bucket_address):
    """Four threads create the same names one after the other, until the gateway was killed and started five times."""
    stopped = threading.Event()
    reached = [0] * 4

    def write(writer):
        store = open_store(bucket_address)
        beliefs = []
        while not stopped.is_set():
            try:
                beliefs.append(store.create(f"names/{len(beliefs):05}", b"%d" % writer))
            except OSError:
                beliefs.append(None)
            reached[writer] = len(beliefs)
        return beliefs

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(write, writer) for writer in range(4)]
        try:
            for _ in range(5):
                before = min(reached)
                assert wait_until(lambda before=before: min(reached) > before + 5)
                ceph.kill_gateway()
                ceph.start_gateway()
        finally:
            stopped.set()
    believed = [writer.result() for writer in running]
    store = open_store(bucket_address)
    assert len(list(store.list_objects("names"))) >= 25
    for number, beliefs in enumerate(zip(*believed, strict=False)):
        held = int(store.read(f"names/{number:05}"))
        assert beliefs.count(True) <= 1
        assert all(belief is None or belief == (writer == held) for writer, belief in enumerate(beliefs)), number
