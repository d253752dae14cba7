"""A pool of connections: threads share it, it has a bound, and a server that was away costs no failed request."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from tests.support.databases import SERVER
from tests.support.ingest_server import run_ingest_server
from tests.support.postgres_cluster import clusters
from tests.support.waiting import wait_until

from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.session import MAX_WAITING_THREADS, POOL_TIMEOUT_S, Session, SessionPool

SLACK_S = 20.0  # of a busy machine


@pytest.fixture(scope="module")
def cluster():
    with clusters() as room:
        yield room.new("pool").start()


@contextmanager
def pool_of(dsn, **options):
    pool = SessionPool(dsn, **options)
    try:
        yield pool
    finally:
        pool.close()


@contextmanager
def hanging(cluster):
    """A server whose processes are stopped. Its kernel still acknowledges what is sent."""
    processes = cluster.processes()
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


def answer(pool):
    with pool.transaction() as connection:
        return connection.execute("SELECT 1").fetchone()[0]


def test_threads_share_the_connections_and_never_open_more_than_allowed():
    name = f"pool-{os.getpid()}"
    open_now = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    together = threading.Barrier(4)

    def work(_):
        with pool.transaction() as connection:
            count = connection.execute(open_now, (name,)).fetchone()[0]
            together.wait(SLACK_S)  # four transactions at a time, neither more nor fewer
            return count, connection.info.backend_pid

    with pool_of(f"{SERVER}/postgres?application_name={name}", max_size=4) as pool, ThreadPoolExecutor(12) as threads:
        counts, backends = zip(*threads.map(work, range(40)), strict=True)
    assert max(counts) == 4
    assert len(set(backends)) == 4
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:  # it ends processes in its own time
        assert wait_until(lambda: connection.execute(open_now, (name,)).fetchone() == (0,))


def test_a_full_pool_refuses_at_once_when_too_many_wait_already():
    with pool_of(f"{SERVER}/postgres", max_size=1) as pool, ThreadPoolExecutor(MAX_WAITING_THREADS + 1) as threads:
        with pool.transaction():
            waiting = [threads.submit(answer, pool) for _ in range(MAX_WAITING_THREADS)]
            assert wait_until(lambda: len(pool._pool._waiting) == MAX_WAITING_THREADS, pause_s=0.01)
            begin = time.monotonic()
            with pytest.raises(psycopg.OperationalError):
                answer(pool)
            assert time.monotonic() - begin < POOL_TIMEOUT_S / 2
        assert {one.result() for one in waiting} == {1}


def test_a_failed_transaction_leaves_nothing_behind():
    with pool_of(f"{SERVER}/postgres", max_size=1) as pool:
        with pytest.raises(psycopg.errors.DivisionByZero), pool.transaction() as connection:
            connection.execute("CREATE TEMP TABLE left_behind (); SELECT 1 / 0")
        with pool.transaction() as connection:
            assert connection.execute("SELECT to_regclass('left_behind')").fetchone() == (None,)
            assert connection.execute("SHOW statement_timeout").fetchone() == ("1min",)


def test_a_closed_pool_opens_again_on_the_next_call():
    with pool_of(f"{SERVER}/postgres") as pool:
        assert answer(pool) == 1
        pool.close()
        assert answer(pool) == 1


def test_a_transaction_that_takes_too_long_ends_and_the_next_one_works():
    """The server works on: no timeout of TCP or PostgreSQL ends the wait."""
    with pool_of(f"{SERVER}/postgres", timeout_s=0.5) as pool:
        begin = time.monotonic()
        with pytest.raises(psycopg.OperationalError), pool.transaction() as connection:
            connection.execute("SELECT pg_sleep(60)")
        assert time.monotonic() - begin < SLACK_S
        assert answer(pool) == 1


@pytest.mark.postgres_programs
def test_a_restart_of_the_server_costs_no_failed_transaction(cluster):
    with pool_of(cluster.dsn) as pool, ThreadPoolExecutor(4) as threads:
        for end in (cluster.stop, cluster.kill):
            assert set(threads.map(answer, [pool] * 8)) == {1}
            end()
            cluster.start()
            assert set(threads.map(answer, [pool] * 8)) == {1}


@pytest.mark.postgres_programs
def test_while_the_server_is_away_a_transaction_fails_in_time_and_afterwards_it_works(cluster):
    with pool_of(cluster.dsn) as pool:
        assert answer(pool) == 1
        cluster.kill()
        try:
            begin = time.monotonic()
            with pytest.raises(psycopg.OperationalError):
                answer(pool)
            assert time.monotonic() - begin < POOL_TIMEOUT_S + SLACK_S
        finally:
            cluster.start()
        assert answer(pool) == 1


@pytest.mark.postgres_programs
def test_a_session_gives_up_a_server_that_hangs_in_a_transaction_and_starts_no_thread(cluster):
    session, threads = Session(cluster.dsn, timeout_s=1.0), threading.active_count()
    with session.transaction() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert threading.active_count() == threads
    with ExitStack() as stack:
        begin = time.monotonic()
        with pytest.raises(psycopg.OperationalError), session.transaction() as connection:
            (stack.enter_context(hanging(cluster)), connection.execute("SELECT 1"))
        assert time.monotonic() - begin < SLACK_S
    assert answer(session) == 1
    session.close()


@pytest.mark.postgres_programs
def test_a_server_that_hangs_is_given_up_and_used_again_when_it_answers(cluster):
    """Only the check before use sees that nothing answers."""
    with pool_of(cluster.dsn) as pool:
        assert answer(pool) == 1
        with hanging(cluster):
            begin = time.monotonic()
            with pytest.raises(psycopg.OperationalError):
                answer(pool)
            assert time.monotonic() - begin < 2 * POOL_TIMEOUT_S + SLACK_S
        assert answer(pool) == 1


@pytest.mark.postgres_programs
def test_a_client_of_the_private_api_does_not_notice_a_restart_of_the_server(cluster, tmp_path):
    migrate_database(cluster.dsn, "state")
    with run_ingest_server(tmp_path, cluster.dsn) as server:
        assert server.token("north").status_code == 200
        cluster.stop()
        cluster.start()
        assert server.token("north").status_code == 200
