"""A slow, endless or silent client is disconnected. The API goes on serving the others."""

import json
import socket
import time
from contextlib import contextmanager

import pytest

from murmurate.service.ingest import http_api
from murmurate.service.web import responses, server
from tests.support.api_cases import NDJSON, line

TIMEOUT_S = 0.75  # the limits in these tests: enough for a request on a busy machine
CUT_S = 120.0  # a wait that ends when the server closes the connection


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """All bounds short, so that a test sees their end."""
    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(server, "SLOW_READER_TIMEOUT_S", TIMEOUT_S)
    for module in (responses, server):
        monkeypatch.setattr(module, "BODY_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(http_api, "MAX_BODY_BYTES", 100_000)


@contextmanager
def connected(apis, api="public", receive_bytes=None):
    with socket.socket() as one:
        if receive_bytes:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        one.settimeout(CUT_S)
        one.connect(apis.address(api))
        yield one


def received(one) -> bytes:
    """All bytes until the server closes the connection. A timeout fails the test: the connection is still open."""
    parts = []
    try:
        while part := one.recv(65_536):
            parts.append(part)
    except (ConnectionResetError, BrokenPipeError):
        pass
    return b"".join(parts)


def is_cut(one, drip=b"", pause_s=0.05, within_s=CUT_S) -> bool:
    """Whether the server closes the connection in time although bytes are sent now and then."""
    end = time.monotonic() + within_s
    one.settimeout(pause_s)
    while time.monotonic() < end:
        try:
            if drip:
                one.sendall(drip)
            if not one.recv(65_536):
                return True
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return True
    return False


def head(apis, path="/readings", method="POST", who="harbour", **more):
    lines = {"host": "x", "content-type": NDJSON, "authorization": f"Bearer {apis.tokens[who]}"} | more
    text = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode()


def problem_in(answer: bytes) -> dict:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("api", ["public", "private"])
@pytest.mark.parametrize(
    ("begin", "drip"),
    [
        (b"", b""),
        (b"G", b""),
        (b"GET /zones HTTP/1.1\r\n", b""),
        (b"GET /zones HTTP/1.1\r\nhost: x\r\nx-long: ", b""),
        (b"\r\n", b""),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: ", b"a"),
    ],
    ids=["nothing", "a letter", "a line", "half a header", "an empty line", "byte by byte"],
)
def test_a_head_that_does_not_end_is_cut(api, begin, drip, apis):
    with connected(apis, api) as one:
        one.sendall(begin)
        assert is_cut(one, drip=drip)


@pytest.mark.parametrize("then", [b"\r\n", b"GET /healthz HT", b"G"], ids=["an empty line", "half a line", "a letter"])
def test_a_second_head_that_does_not_end_is_cut(then, apis):
    with connected(apis) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = b""
        while b"alive" not in answer:  # head and body may come one by one
            part = one.recv(65_536)
            assert part
            answer += part
        one.sendall(then)
        assert is_cut(one)


@pytest.mark.parametrize("parts", [[line()], [b" "] * 3], ids=["stalls", "byte by byte"])
def test_a_body_that_does_not_come_in_time_is_408(parts, apis):
    with connected(apis, "private") as one:
        one.sendall(head(apis, content_length=1000))
        for part in parts:
            one.sendall(part)
            time.sleep(TIMEOUT_S / 10)
        answer = received(one)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert problem_in(answer)["status"] == 408


@pytest.mark.parametrize(
    ("api", "method", "path"),
    [
        ("public", "GET", "/zones"),
        ("public", "POST", "/openadr3/3.1.0/auth/token"),
        ("public", "GET", "/nothing"),
        ("private", "GET", "/healthz"),
        ("private", "PUT", "/readings"),
    ],
)
def test_a_body_that_is_not_read_does_not_hold_the_connection(api, method, path, apis):
    with connected(apis, api) as one:
        one.sendall(head(apis, path, method, content_length=1_000_000))
        assert one.recv(65_536).startswith(b"HTTP/1.1 ")
        assert is_cut(one, drip=b"x")


@pytest.mark.parametrize("path", ["/zones/harbour/history.csv", "/log.jsonl", "/openadr3/3.1.0/events"])
def test_who_never_reads_a_large_answer_is_cut(path, apis):
    request = f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()
    with connected(apis, receive_bytes=4096) as one:
        one.sendall(request * 400)  # more than the system buffers for a client that does not read
        time.sleep(4 * TIMEOUT_S)
        got = received(one)
    assert got.count(b"HTTP/1.1 200") < 400


def test_who_never_reads_the_log_leaves_it_to_the_others(apis, clients):
    hanging = []
    for _ in range(6):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(apis.address("public"))
        one.sendall(b"GET /zones/harbour/log.jsonl HTTP/1.1\r\nhost: x\r\n\r\n")
        hanging.append(one)
    time.sleep(3 * TIMEOUT_S)
    assert clients["public"].get("/zones/harbour/log.jsonl").status_code == 200
    for one in hanging:
        one.close()


@pytest.mark.parametrize(
    ("path", "size", "length"),
    [
        ("/readings", 100_001, "content-length"),
        ("/readings", 100_001, "chunked"),
        ("/auth/token", 0x2100, "chunked"),
    ],
)
def test_a_body_beyond_the_bound_is_413(path, size, length, apis):
    more = {"content_length": size} if length == "content-length" else {"transfer_encoding": "chunked"}
    with connected(apis, "private") as one:
        one.sendall(head(apis, path, **more))
        if length == "chunked":
            one.sendall(b"%x\r\n%b\r\n" % (size, b" " * size))  # it never ends
        answer = received(one)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert problem_in(answer)["status"] == 413


def test_a_body_at_the_bound_is_taken(apis):
    with connected(apis, "private") as one:
        body = line() + b" " * (100_000 - len(line()))
        one.sendall(head(apis, content_length=len(body), connection="close") + body)
        assert received(one).startswith(b"HTTP/1.1 422 ")  # of its last line, which is too long; the first one is safe


@pytest.mark.parametrize("api", ["public", "private"])
@pytest.mark.parametrize(
    "flood",
    [
        b"".join(b"x-%d: %b\r\n" % (n, b"y" * 100) for n in range(1000)),
        b"x: " + b"y" * 200_000,
        b"x" * 200_000,
        b": \r\n" * 50_000,
        b"a: b\r\n" * 30_000,
    ],
    ids=["many headers", "a long value", "a long name", "empty names", "small headers"],
)
def test_a_flood_of_headers_is_cut(api, flood, apis, monkeypatch):
    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", 60.0)  # by their size, not by their time
    with connected(apis, api) as one:
        try:
            one.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n")
            for at in range(0, len(flood), 8192):
                one.sendall(flood[at : at + 8192])
                time.sleep(0.002)
        except (ConnectionResetError, BrokenPipeError):
            return
        answer = received(one)
        assert b"200 OK" not in answer


def test_a_flood_of_trailers_is_cut(apis):
    with connected(apis, "private") as one:
        one.sendall(head(apis, transfer_encoding="chunked") + b"0\r\n")
        assert is_cut(one, drip=b"x: " + b"y" * 4000 + b"\r\n", pause_s=0.01)


def test_a_long_url_is_cut(apis):
    with connected(apis) as one:
        one.sendall(b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        assert is_cut(one)


@pytest.mark.parametrize(
    "request_",
    [
        b"BREW /zones HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /zones HTTP/9.9\r\nhost: x\r\n\r\n",
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /z\xc3\xb6nes HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /readings HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /readings HTTP/1.1\r\nhost: x\r\ncontent-length: \xb2\r\n\r\n",
        b"POST /readings HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /readings HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /readings HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"GET /zones HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",
        b"GET /zones HTTP/1.1\r\nhost: x\r\nx: a\x00b\r\n\r\n",
    ],
)
@pytest.mark.parametrize("api", ["public", "private"])
def test_what_is_no_http_is_refused_in_json(api, request_, apis):
    with connected(apis, api) as one:
        one.sendall(request_)
        answer = received(one)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"content-type: application/json\r\n" in answer
    assert set(problem_in(answer)) == {"type", "title", "status", "detail"}
    assert b"server:" not in answer.lower()


def test_who_asks_for_another_protocol_gets_this_one(apis):
    with connected(apis) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        assert one.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert is_cut(one, drip=b"x")


def test_a_client_in_no_hurry_that_keeps_the_bounds_is_served(apis, monkeypatch):
    monkeypatch.setattr(server, "HEADER_TIMEOUT_S", 60.0)
    with connected(apis) as one:
        for part in (b"GET /healthz HT", b"TP/1.1\r\nhost: x\r\n", b"connection: close\r\n\r\n"):
            one.sendall(part)
            time.sleep(0.1)
        assert b"alive" in received(one)


def test_a_stream_is_held_longer_than_any_bound(apis):
    with connected(apis) as one:
        one.sendall(b"GET /zones/harbour/stream HTTP/1.1\r\nhost: x\r\n\r\n")
        assert not is_cut(one, within_s=3 * TIMEOUT_S)


def test_a_body_may_take_longer_than_a_head(apis, monkeypatch):
    for module in (responses, server):
        monkeypatch.setattr(module, "BODY_TIMEOUT_S", 60.0)
    with connected(apis, "private") as one:
        one.sendall(head(apis, content_length=len(line()), connection="close"))
        for at in range(0, len(line()), 8):
            one.sendall(line()[at : at + 8])
            time.sleep(TIMEOUT_S / 3)
        assert received(one).startswith(b"HTTP/1.1 200 ")
