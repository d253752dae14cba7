"""No client holds so much that the others go without: connections, streams, histories and logs have limits."""

import json
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import httpx
import psycopg
import pytest
from tests.support.api_servers import STEP_S, plan_of, public_process
from tests.support.databases import database
from tests.support.ports import free_port
from tests.support.postgres_stores import ShardWriter
from tests.support.waiting import wait_until

from murmurate.service.public_api import app
from murmurate.service.settings import ClientLimits
from murmurate.service.storage.migrate import migrate_database

FIRST, PRICED, LEAD = 1_900_000, 120, 2
LIMITS = ClientLimits(connections=8, connections_per_address=3, streams=4, streams_per_address=2, trusted=())
GET = "GET {} HTTP/1.1\r\nhost: x\r\n\r\n"
ADDRESSES = [f"127.0.0.{n}" for n in range(2, 12)]  # all are this machine


@pytest.fixture(scope="module")
def log_with_prices():
    with database("log") as dsn:
        migrate_database(dsn, "log")
        writer = ShardWriter(dsn, {"harbour": plan_of("harbour")}, first=FIRST, lead=LEAD)
        writer.write(PRICED)
        writer.close()
        yield dsn


@contextmanager
def serving(dsn, limits=LIMITS):
    with public_process(dsn, (FIRST + PRICED) * STEP_S, limits=limits) as (_, state):
        yield state.settings.public_address, state


@pytest.fixture(scope="module")
def served(log_with_prices):
    with serving(log_with_prices) as made:
        yield made


@pytest.fixture
def connect(served):
    """Opens connections from addresses of this machine; all are closed, and gone, after the test."""
    (address, state), stack = served, ExitStack()

    def open_one(source, path=None):
        one = stack.enter_context(socket.create_connection(address, 60, (source, 0)))
        if path is not None:
            one.sendall(GET.format(path).encode())
        return one

    with stack:
        yield open_one
    await_count(state, 0)


def await_count(state, count):
    assert wait_until(lambda: state.connections.connections == count, pause_s=0.01)


def status_of(one, request=None):
    if request is not None:
        one.sendall(request if isinstance(request, bytes) else GET.format(request).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        part = one.recv(65_536)
        assert part, head
        head += part
    assert head.count(b"x-content-type-options: nosniff\r\n") == 1
    if head.split(b" ")[1] in {b"429", b"503"}:
        assert b"retry-after: " in head
    return int(head.split(b" ")[1])


def test_beyond_the_connections_of_an_address_is_429_and_other_addresses_are_served(connect):
    held = [connect(ADDRESSES[0]) for _ in range(3)]
    assert status_of(connect(ADDRESSES[0]), "/zones/harbour/now") == 429
    assert status_of(connect(ADDRESSES[1]), "/zones/harbour/now") == 200
    assert [status_of(one, "/zones/harbour/now") for one in held] == [200] * 3


def test_far_beyond_the_connections_of_an_address_they_are_closed_at_once(connect):
    held = [connect(ADDRESSES[0]) for _ in range(6)]
    extra = connect(ADDRESSES[0])
    with suppress(ConnectionResetError):
        assert extra.recv(1) == b""
    assert status_of(held[0], "/zones/harbour/now") == 200


def test_beyond_all_connections_a_client_gets_503_and_holds_nothing(connect, served):
    held = [connect(source) for source in ADDRESSES[:8]]
    await_count(served[1], 8)
    for _ in range(20):
        assert status_of(connect(ADDRESSES[8])) == 503
    assert [status_of(one, "/zones/harbour/now") for one in held] == [200] * 8


def test_beyond_the_streams_of_an_address_is_429_and_beyond_all_streams_503(connect, served):
    streams = [connect(source, "/zones/harbour/stream") for source in (*ADDRESSES[:2], *ADDRESSES[:1])]
    assert [status_of(one) for one in streams] == [200] * 3
    assert status_of(connect(ADDRESSES[0]), "/zones/harbour/stream") == 429
    streams.append(connect(ADDRESSES[1], "/zones/harbour/stream"))
    assert status_of(streams[-1]) == 200
    assert status_of(connect(ADDRESSES[2]), "/zones/harbour/stream") == 503
    streams[0].close()
    assert wait_until(lambda: len(served[1].price_stream) <= 3)
    assert status_of(connect(ADDRESSES[2]), "/zones/harbour/stream") == 200


def test_a_trusted_address_is_many_clients(log_with_prices):
    with serving(log_with_prices, replace(LIMITS, trusted=("127.0.0.0/30",))) as (address, _), ExitStack() as stack:
        ones = [stack.enter_context(socket.create_connection(address, 60, (ADDRESSES[0], 0))) for _ in range(8)]
        assert [status_of(one, "/zones/harbour/now") for one in ones] == [200] * 8


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\nhost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", 200),
    ],
)
def test_a_request_has_one_host(connect, request_, status):
    assert status_of(connect(ADDRESSES[0]), request_) == status


def test_a_history_is_at_most_31_days_and_its_links_lead_through_all_of_it(served, monkeypatch):
    monkeypatch.setattr(app, "MAX_HISTORY_INTERVALS", 50)
    url = "http://{}:{}/zones/harbour/history.csv".format(*served[0])
    with httpx.Client(trust_env=False, timeout=60) as client:
        begin_s = (FIRST + LEAD) * STEP_S
        whole = {"start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin_s))}
        refused = client.get(url, params=whole)
        assert refused.status_code == 400
        (end,) = re.findall(r"to (\d{4}\S+Z)", refused.json()["detail"])
        answer, rows = client.get(url, params=whole | {"end": end}), []
        while True:
            assert answer.status_code == 200
            lines = answer.text.splitlines()[1:]
            assert 0 < len(lines) <= 50
            rows += lines
            following = answer.links.get("next")
            if following is None:
                break
            answer = client.get(following["url"])
        assert len(rows) == len({row.partition(",")[0] for row in rows}) == PRICED - 1
        assert client.get(answer.links["prev"]["url"]).text.splitlines()[-1] in rows


def test_no_transaction_is_open_at_the_log_while_a_client_reads_it_slowly(log_with_prices, connect):
    slow = connect(ADDRESSES[0])
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(GET.format("/zones/harbour/log.jsonl").encode())
    assert status_of(slow) == 200
    query = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
               AND state = 'idle in transaction'"""
    with psycopg.connect(log_with_prices, autocommit=True) as connection:
        assert wait_until(lambda: not connection.execute(query).fetchone()[0])


def test_metrics_are_for_this_machine_and_say_how_busy_it_is(served, connect):
    assert status_of(connect(ADDRESSES[0], "/zones/harbour/stream")) == 200
    text = httpx.get("http://{}:{}/metrics".format(*served[0]), trust_env=False, timeout=60).text
    figures = dict(re.findall(r"^(murmurate_\w+) (\S+)$", text, flags=re.MULTILINE))
    assert float(figures["murmurate_public_streams"]) == 1
    assert float(figures["murmurate_public_connections"]) >= 2
    assert 0 <= float(figures["murmurate_log_reader_age_seconds"]) < 60
    assert float(figures["murmurate_notices_dropped_total"]) == 0
    assert float(figures["murmurate_public_shards_broken"]) == 0


PROXY, LOCAL = "127.0.0.9", "127.0.0.1"
BEHIND_PROXIES = replace(LIMITS, trusted=(LOCAL, PROXY), forwarded_by=(LOCAL, PROXY))


@pytest.fixture(scope="module")
def behind_proxies(log_with_prices):
    with serving(log_with_prices, BEHIND_PROXIES) as made:
        yield made


def ask_from(address, source, path, *forwarded):
    """A connection from `source` that has asked for a path, with a header for each text."""
    one = socket.create_connection(address, 60, (source, 0))
    headers = "".join(f"X-Forwarded-For: {text}\r\n" for text in forwarded)
    one.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode())
    return one


@pytest.mark.parametrize("forwarded", [(), ("127.0.0.1",), ("::1",), ("203.0.113.9, ::ffff:127.0.0.1",), ("junk",)])
def test_no_request_through_a_proxy_is_taken_for_this_machine(behind_proxies, served, forwarded):
    with ask_from(behind_proxies[0], LOCAL, "/metrics", *forwarded) as one:
        assert status_of(one) == 404
    with ask_from(behind_proxies[0], "127.0.0.2", "/metrics", *forwarded) as one:
        assert status_of(one) == (404 if forwarded else 200)
    with ask_from(served[0], LOCAL, "/metrics", *forwarded) as one:  # no proxy is listed
        assert status_of(one) == (404 if forwarded else 200)


@pytest.mark.parametrize(
    ("source", "forwarded", "another"),
    [
        (PROXY, ["192.0.2.1", "192.0.2.77, 192.0.2.1", "::ffff:192.0.2.1"], "192.0.2.2"),
        (PROXY, ["2001:db8::1", "2001:db8::2", "2001:db8::3"], "2001:db8:0:1::1"),
        (PROXY, ["a name", "127.0.0.1", "fe80::1%text"], "192.0.2.1"),
        ("127.0.0.8", ["192.0.2.1", "192.0.2.2", "192.0.2.3"], None),
    ],
)
def test_streams_count_for_the_last_address_that_a_listed_proxy_names(behind_proxies, source, forwarded, another):
    address, state = behind_proxies
    with ExitStack() as stack:
        statuses = [
            status_of(stack.enter_context(ask_from(address, source, "/zones/harbour/stream", text)))
            for text in forwarded
        ]
        assert statuses == [200, 200, 429]
        if another is not None:
            third = ask_from(address, source, "/zones/harbour/stream", forwarded[0], f"{forwarded[0]} , {another}")
            assert status_of(stack.enter_context(third)) == 200
    await_count(state, 0)


def test_the_connections_of_a_listed_proxy_are_many_clients(log_with_prices):
    limits = replace(LIMITS, forwarded_by=("127.0.0.8/30",))
    with serving(log_with_prices, limits) as (address, _), ExitStack() as stack:
        ones = [stack.enter_context(ask_from(address, PROXY, "/zones/harbour/now", "192.0.2.1")) for _ in range(8)]
        assert [status_of(one) for one in ones] == [200] * 8


_FEW_DESCRIPTORS = """
import asyncio, resource, sys
from murmurate.service.logging_setup import configure_logging
from murmurate.service.web.server import raise_descriptor_limit
from murmurate.service.web.server import make_server
from starlette.responses import Response
configure_logging("test")
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 150))
raise_descriptor_limit()
asyncio.run(make_server(Response("here"), "127.0.0.1", int(sys.argv[1])).serve())
"""


def test_more_connections_than_descriptors_leave_the_others_served_and_the_log_short():
    port = free_port()
    running = subprocess.Popen([sys.executable, "-c", _FEW_DESCRIPTORS, str(port)], stderr=subprocess.PIPE)
    try:
        held = [wait_until(lambda: open_connection(port))]
        held += [socket.create_connection(("127.0.0.1", port), 60) for _ in range(59)]  # it may have 150 - 64
        assert status_of(held[0], "/") == 200
        begin_s = time.monotonic()
        held += [socket.create_connection(("127.0.0.1", port), 60) for _ in range(400)]
        for _ in range(20):
            assert status_of(held[0], "/") == 200
        for one in held:
            one.close()
        assert wait_until(lambda: is_served(port))  # those before it are closed by now, or soon
    finally:
        running.terminate()
        lines = running.communicate(timeout=60)[1].splitlines()
    assert len(lines) <= 5 + 2 * (time.monotonic() - begin_s)
    assert all(json.loads(line)["event"] for line in lines)


def open_connection(port):
    with suppress(ConnectionRefusedError):
        return socket.create_connection(("127.0.0.1", port), 60)
    return None


def is_served(port):
    with open_connection(port) as one, suppress(ConnectionResetError):
        one.sendall(GET.format("/").encode())
        return one.recv(65_536).startswith(b"HTTP/1.1 200")
    return False
