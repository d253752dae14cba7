"""Requests without valid credentials are limited by address; clients with a token are not, and tokens are bounded."""

import gc
import socket
import tracemalloc

import psycopg
import pytest
from tests.support.ingest_server import lines, reading, run_ingest_server

from murmurate.service import auth
from murmurate.service.auth import AuthStore
from murmurate.service.settings import ClientLimits
from murmurate.service.web import request_limits
from murmurate.service.web.request_limits import RequestLimit

PROXY = "127.0.0.9"


@pytest.fixture
def slow_paces(monkeypatch):
    """One answer an hour, after three. No test waits for it."""
    for name in ("MAX_PACED_FAILURES_PER_S", "MAX_PACED_OPEN_REQUESTS_PER_S", "MAX_OPEN_REQUESTS_PER_S"):
        monkeypatch.setattr(request_limits, name, 1 / 3600)
    for name in ("PACED_FAILURE_BURST", "MAX_OPEN_REQUEST_BURST"):
        monkeypatch.setattr(request_limits, name, 3)
    monkeypatch.setattr(request_limits, "MAX_PACE_S", 600.0)


@pytest.fixture
def server(tmp_path, state_dsn, monkeypatch):
    monkeypatch.setattr(request_limits, "MAX_FAILURES_PER_S", 0.001)
    monkeypatch.setattr(request_limits, "MAX_FAILURE_BURST", 20)
    monkeypatch.setattr(request_limits, "HOLD_S", 0.01)
    with run_ingest_server(tmp_path, state_dsn, ClientLimits(forwarded_by=[PROXY])) as made:
        yield made


def status_counts(answers):
    codes = [answer.status_code for answer in answers]
    return {code: codes.count(code) for code in set(codes)}


@pytest.mark.parametrize("kind", ["no token", "a wrong token", "a wrong secret"])
def test_strangers_are_refused_without_a_look_up_once_they_have_failed_often(server, kind, monkeypatch):
    looked_up, find, authenticate = [], AuthStore.find_token, AuthStore.authenticate
    monkeypatch.setattr(AuthStore, "find_token", lambda *words: looked_up.append(1) or find(*words))
    monkeypatch.setattr(AuthStore, "authenticate", lambda *words: looked_up.append(1) or authenticate(*words))
    token = server.bearer("north")
    assert server.post(token, lines([reading(1)])).status_code == 200
    looked_up.clear()
    form = {"grant_type": "client_credentials", "client_id": "north", "client_secret": "wrong"}
    ways = {
        "no token": lambda: server.web.post("/readings", content=b"x" * 100),
        "a wrong token": lambda: server.post("0" * 64, b"x" * 100),
        "a wrong secret": lambda: server.web.post("/auth/token", data=form),
    }
    answers = [ways[kind]() for _ in range(60)]
    assert status_counts(answers) == {401: 20, 429: 40}
    assert answers[-1].headers["retry-after"] == "1"
    assert len(looked_up) <= 20
    assert server.post(token, lines([reading(2)])).status_code == 200, "a client with a token is not held back"


def test_a_token_that_was_valid_is_looked_up_again_whatever_strangers_do(server, monkeypatch):
    token = server.bearer("north")
    assert server.post(token, lines([reading(1)])).status_code == 200
    for _ in range(30):
        server.post("0" * 64, b"")
    monkeypatch.setattr(auth, "TOKEN_CACHE_S", 0.0)
    server.api._tokens._entries = {
        digest: (0.0, zones) for digest, (_, zones) in server.api._tokens._entries.items()
    }  # as after five seconds
    for _ in range(3):
        assert server.post(token, lines([reading(2)])).status_code == 200


def test_the_body_of_a_stranger_is_not_waited_for(server):
    """The answer comes while the body is still to be sent. A server that reads it first answers 408."""
    head = (
        "POST /readings HTTP/1.1",
        "host: localhost",
        "authorization: Bearer wrong",
        "content-type: text/csv",
        "content-length: 1000000",
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401 ")


def ask(server, address, text):
    """Send a request from an address of this machine, and return the connection."""
    one = socket.create_connection(("127.0.0.1", server.port), 60, (address, 0))
    one.sendall(text.encode())
    return one


def is_answered(one):
    one.setblocking(False)
    try:
        return bool(one.recv(1))
    except BlockingIOError:
        return False


WITHOUT_CREDENTIALS = "POST /readings HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
NO_CREDENTIALS_NEEDED = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.usefixtures("slow_paces")
def test_failures_of_many_addresses_wait_for_their_turn_and_a_client_with_a_token_does_not(server):
    token = server.bearer("north")
    for number in range(2, 5):
        with ask(server, f"127.0.0.{number}", WITHOUT_CREDENTIALS) as one:
            assert one.recv(12) == b"HTTP/1.1 401"
    with ask(server, "127.0.0.5", WITHOUT_CREDENTIALS) as held:
        assert server.post(token, lines([reading(1)])).status_code == 200
        assert server.token("north").status_code == 200
        assert server.post("0" * 64, b"").status_code == 401, "a trusted address does not wait"
        assert not is_answered(held)


@pytest.mark.usefixtures("slow_paces")
def test_an_address_that_asks_too_often_for_what_is_open_waits_and_others_do_not(server):
    for _ in range(4):  # the fourth has the one turn of the pace
        with ask(server, "127.0.0.2", NO_CREDENTIALS_NEEDED) as one:
            assert one.recv(12) == b"HTTP/1.1 200"
    with ask(server, "127.0.0.2", NO_CREDENTIALS_NEEDED) as held:
        for address in ("127.0.0.3", "127.0.0.1"):
            with ask(server, address, NO_CREDENTIALS_NEEDED) as one:
                assert one.recv(12) == b"HTTP/1.1 200"
        assert not is_answered(held)


def failed_requests(server, source, texts):
    """Status of each request without credentials, of which each has its own X-Forwarded-For."""
    with socket.create_connection(("127.0.0.1", server.port), 60, (source, 0)) as one:
        answers = one.makefile("rb")
        for text in texts:
            one.sendall(WITHOUT_CREDENTIALS.replace("host: x", f"host: x\r\nx-forwarded-for: {text}").encode())
            yield int(answers.readline().split()[1])
            lengths = [int(line.split()[1]) for line in iter(answers.readline, b"\r\n") if b"content-length" in line]
            answers.read(lengths[0])


@pytest.mark.slow
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2", PROXY])
def test_no_text_of_a_header_is_kept(server, source, monkeypatch):
    """Neither from a proxy nor from another client. All requests count as one client. The texts are 9 MB together."""
    monkeypatch.setattr(request_limits, "HOLD_S", 0.0)
    texts = [f"{number:06}{'x' * 30_000}" for number in range(300)]
    assert list(failed_requests(server, source, texts[:1])) == [401]
    tracemalloc.start()
    try:
        statuses = list(failed_requests(server, source, texts))
        gc.collect()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (statuses.count(401), statuses.count(429)) == (19, 281)
    assert kept_bytes < 3_000_000


def test_head_ends_behind_a_listed_proxy_have_a_budget_each(server):
    assert list(failed_requests(server, PROXY, ["192.0.2.1"] * 21)) == [401] * 20 + [429]
    assert list(failed_requests(server, PROXY, ["192.0.2.2", "192.0.2.1, 192.0.2.3"])) == [401] * 2
    assert list(failed_requests(server, "127.0.0.3", ["192.0.2.2"] * 21)) == [401] * 20 + [429], "it is not listed"


def test_one_client_gets_a_bounded_number_of_tokens_and_a_bounded_rate(server, monkeypatch):
    monkeypatch.setattr(auth, "MAX_TOKENS_PER_CLIENT", 5)
    server.api._issued = RequestLimit(0.001, 8)
    answers = [server.token("north") for _ in range(12)]
    assert status_counts(answers) == {200: 8, 429: 4}
    assert server.token("south").status_code == 200
    newest = [answer.json()["access_token"] for answer in answers[:8]]
    assert [server.post(token, lines([reading(1)])).status_code for token in newest] == [401] * 3 + [200] * 5


def test_expired_tokens_are_deleted_in_pieces_by_an_index(server):
    query = """
        INSERT INTO access.token SELECT sha256(n::text::bytea), 'north', '{harbour}', now() - interval '1 s'
        FROM generate_series(1, 250) AS n"""
    server.query(query)
    left = []
    for _ in range(3):
        assert server.token("south").status_code == 200
        with psycopg.connect(server.dsn) as connection:
            left += connection.execute("SELECT count(*) FROM access.token WHERE expires < now()").fetchone()
    assert left == [150, 50, 0]
    with psycopg.connect(server.dsn) as connection:
        rows = connection.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'token'").fetchall()
    assert any("(expires)" in row[0] for row in rows)
    assert any("(client, expires)" in row[0] for row in rows)
