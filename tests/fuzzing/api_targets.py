"""Requests as both APIs take them: paths, queries, header fields, bodies, tokens. No answer is 500 or above."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from functools import cache
from urllib.parse import unquote

from murmurate.public_log.zone_table import ZoneRow
from murmurate.service.auth import AccessToken, ApiClient, AuthError
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.http_api import IngestApi, private_app
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.client_formats import CLIENT_FORMATS
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.pages.routes import page_routes
from murmurate.service.settings import LOCAL_ADDRESSES, ServiceSettings
from murmurate.service.web.request_limits import AnonymousLimits
from tests.fuzzing.fuzz_target import FuzzTarget
from tests.fuzzing.ingest_parts import FuzzFolder, InProcessDecoders, new_ingestor
from tests.support.query_cases import QUERY
from tests.support.request_bodies import START_S, line
from tests.support.zone_views import shard_of, terms_with

_NO_DATABASE = "postgresql://no-user@127.0.0.1:1/none"
_BEGIN = START_S // 900
_ADR = "/openadr3/3.1.0"
_PATHS = (
    "/zones",
    "/zones/harbour/now",
    "/zones/harbour/prices",
    *(f"/zones/harbour{path}" for path in CLIENT_FORMATS),
    "/zones/harbour/evcc",
    "/zones/harbour/days",
    "/zones/harbour/history.csv",
    "/zones/harbour/history.parquet",
    "/zones/harbour/vse/v1/tariffs",
    f"{_ADR}/programs",
    f"{_ADR}/events",
    f"{_ADR}/programs/harbour-PT15M",
    f"{_ADR}/notifiers",
    f"{_ADR}/auth/server",
    "/",
    "/zones/harbour",
    "/shards",
)
_WORDS = (
    *b"skip= limit= targets= active=true dateStart= dateEnd= programID= programName= & start= end= from= to=".split(),
    *b"period_from= period_to= page= page_size=1 before=07:00 hours=0.25 1763424000000 ID= SignalType=0".split(),
    *b"start_timestamp= end_timestamp= after= 2026-01-01T00:00:00Z 2026-01-01 0001-01-01 9999-12-31 %00 %FF".split(),
    *b"+ %2B .. / ? %2F targetType=PROGRAM_NAME targetValues= 23:59:59-14:00 forecast=true".split(),
    *(b"\n", b"if-none-match: *", b"accept: text/html"),
)
_FORM_WORDS = (
    *b"grant_type=client_credentials client_id= client_secret= scope= readings: %00 %ff & = ; ;charset=x".split(),
    *b"OnRlc3Q= application/x-ndjson text/csv application/atom+xml application/vnd.apache.parquet".split(),
    *(b"authorization: Basic ", b"authorization: Bearer token", b"content-type: ", b"\n\n"),
)


class _Access:
    """Clients and tokens, as the state keeps them: any client whose secret is `secret`."""

    def authenticate(self, client_id: str, secret: str) -> ApiClient:
        if secret != "secret":  # noqa: S105
            raise AuthError("invalid_client", "client", "unknown", "must be a client with its secret")
        return ApiClient(id=client_id, zones=frozenset({"harbour"}))

    def issue_token(self, client: ApiClient, scope: str | None = None) -> AccessToken:
        if scope and scope != "readings:harbour":
            raise AuthError("invalid_scope", "scope", "too wide", "must be within its zones")
        return AccessToken(value="token", zones=client.zones)

    def find_token(self, token: str) -> tuple[frozenset[str], float]:
        if token != "token":  # noqa: S105
            raise AuthError("invalid_token", "token", "unknown", "must be a token of /auth/token")
        return frozenset({"harbour"}), 3600.0


class ServerFaultError(Exception):
    """The API has answered with 500 or above."""


def _request(app, method: str, target: bytes, header_lines: list[bytes], body: bytes) -> None:
    """Send one request. Raises ServerFaultError for a status of 500 or above, and what a handler raises."""
    if not target.startswith(b"/") or any(
        byte <= 32 or byte == 127 for byte in target
    ):  # no web server passes these on
        return
    path, _, query = target.partition(b"?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path.decode("latin-1")), "raw_path": path, "query_string": query, "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), *_headers(header_lines)], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }  # fmt: skip
    statuses: list[int] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    _event_loop().run_until_complete(app(scope, receive, send))
    if statuses[0] >= 500:
        raise ServerFaultError(statuses[0])


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """One loop for all requests; it is closed when the process ends, so that no test is blamed for it."""
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


def _headers(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Header fields as a web server would pass them on: printable, names in lower case."""
    fields = []
    for text in lines[:8]:
        name, separator, value = text.partition(b":")
        if separator and name.isalnum() | name.replace(b"-", b"").isalnum() and not set(value) & {0, 10, 13}:
            fields.append((name.lower(), value.strip()))
    return fields


def _public_state() -> LiveState:
    clock = ServiceClock(simulated_s=(_BEGIN + 100) * 900 + 1.0, wall_s=0.0, speed=1e-12)
    state = LiveState(_NO_DATABASE, ServiceSettings(url="https://x.example", clock=clock))
    state.plan_terms.put("0" * 64, terms_with([9000], 900, "CHF"))
    rows = [ZoneRow(zone, "0" * 64, "CHF", "1/100000", _BEGIN - 2) for zone in ("harbour", "old town")]
    ticks = [[100 + n for n in range(120)] for _ in rows]
    state.show_shard(ChangedShard(shard_of(rows, ticks, name="one"), range(0)))
    return state


def _public_parser() -> Callable[[bytes], None]:
    """GET requests: the target in the first line, header fields in the others. Nothing that needs the log is asked."""
    state = _public_state()
    app = public_app(state, page_routes(state))

    def parse(data: bytes) -> None:
        target, *lines = data.split(b"\n")
        state.volatile_cache.clear()
        state.immutable_cache.clear()
        needs_log = (b"/tiles", b"/documents", b"/plans", b"stream", b"log.jsonl", b"readyz")
        if not any(word in target for word in needs_log):
            _request(app, "GET", target, lines, b"")

    return parse


def _private_parser() -> Callable[[bytes], None]:
    """POST requests: the path in the first line, header fields up to an empty line, then the body."""
    folder = FuzzFolder()
    ingestor = new_ingestor(folder)
    app = private_app(
        IngestApi(current_ingestor=lambda: ingestor, access=_Access(), decoders=InProcessDecoders()).routes()
    )

    def parse(data: bytes, _: FuzzFolder = folder) -> None:
        app.state.anonymous = AnonymousLimits(LOCAL_ADDRESSES)  # most requests here have no token
        head, _, body = data.partition(b"\n\n")
        target, *lines = head.split(b"\n")
        _request(app, "POST", target, lines, body)

    return parse


def api_targets() -> list[FuzzTarget]:
    asked = [case.path.encode() for case in QUERY if len(case.path) < 200][::4]
    targets = [path.encode() for path in _PATHS] + asked + [b'/zones/harbour\naccept-language: de\nif-none-match: "x"']
    form = b"grant_type=client_credentials&client_id=head-end&client_secret=secret"
    bearer = b"/readings\nauthorization: Bearer token\ncontent-type: "
    posts = [b"/auth/token\n\n" + form, b"/auth/token\n\n" + form + b"&scope=readings:harbour"]
    posts += [b"/auth/token\nauthorization: Basic aGVhZC1lbmQ6c2VjcmV0\n\ngrant_type=client_credentials"]
    posts += [bearer + b"application/x-ndjson\n\n" + line(meter="m0"), bearer + b"text/csv\n\nmeter_id,energy_wh\n"]
    return [
        FuzzTarget("public requests", _public_parser(), targets, (), _WORDS),
        FuzzTarget("private requests", _private_parser(), posts, (), _FORM_WORDS),
    ]
