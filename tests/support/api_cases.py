"""Requests to both APIs with the expected status: four of five families. The fifth is in `query_cases`."""

from __future__ import annotations

import io
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.api_servers import LAST, OVER_S, STEP_S, TODAY, WHOLE_DAYS

ADR = "/openadr3/3.1.0"
NDJSON, CSV, PARQUET, ATOM = (
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.parquet",
    "application/atom+xml",
)
FORM = "application/x-www-form-urlencoded"
ZONES = ("harbour", "old%20town")
OCTOPUS = "octopus/v1/products/murmurate/electricity-tariffs/murmurate-price/standard-unit-rates"


class Case(NamedTuple):
    """A request with its expected status. The test replaces placeholders such as {plan} and {token}."""

    api: str
    method: str
    path: str
    status: int
    headers: dict[str, str] = {}  # noqa: RUF012  never changed
    body: bytes | None = None

    @property
    def id(self) -> str:
        about = f"{self.api} {self.method} {self.path[:70]} {self.status}"
        return f"{about} {hash_of(self.headers, self.body)}" if self.headers or self.body is not None else about


def hash_of(headers: dict[str, str], body: bytes | None) -> str:
    """A short deterministic text, so that no two cases have the same name."""
    words = [f"{name}={value[:30]}" for name, value in headers.items()]
    return " ".join([*words, "" if body is None else f"{len(body)}:{body[:20]!r}"])


def public(path: str, status: int = 200, method: str = "GET", **headers: str) -> Case:
    return Case("public", method, path, status, headers)


def readings(body: bytes, status: int, kind: str = NDJSON, who: str = "harbour") -> Case:
    return Case("private", "POST", "/readings", status, _bearer(who) | {"content-type": kind}, body)


def token(body: bytes, status: int, **headers: str) -> Case:
    return Case("private", "POST", "/auth/token", status, {"content-type": FORM} | headers, body)


def _bearer(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {{token:{who}}}"}


def _basic(who: str, secret: str | None = None) -> str:
    return f"{{basic:{who}}}" if secret is None else "Basic " + b64encode(f"{who}:{secret}".encode()).decode()


def line(meter: Any = '"h1"', start: Any = OVER_S, energy: Any = 120, more: str = "") -> bytes:
    return f'{{"meter":{meter},"interval_start":{start},"energy_wh":{energy}{more}}}\n'.encode()


def table(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def feed(inner: str = "", head: str = "") -> bytes:
    return f'<?xml version="1.0"?>{head}<feed xmlns="http://www.w3.org/2005/Atom">{inner}</feed>'.encode()


_MOMENT = pa.timestamp("s", "UTC")
_START = pa.array([OVER_S], _MOMENT)
GOOD_PARQUET = table(meter_id=["h2"], interval_start=_START, energy_wh=[100])
_BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
NOW_NAME = f"{datetime.fromtimestamp(LAST * STEP_S, UTC):%Y%m%dT%H%M%SZ}"  # of the prices of a shard
GRANT = b"grant_type=client_credentials"

OPEN = [
    "/", "/zones", "/shards", "/tiles/00000000-0000/0", "/tiles/00000000-0000/9", "/documents/{plan}",
    f"/prices/00000000-0001/{NOW_NAME}.json",
    "/healthz", "/readyz", "/openapi.json", "/plans/{plan}.json",
    f"{ADR}/programs", f"{ADR}/programs/harbour-PT15M", f"{ADR}/events", f"{ADR}/events/harbour-PT15M-{WHOLE_DAYS[2]}",
    f"{ADR}/notifiers", f"{ADR}/notifiers/mqtt/topics/programs/harbour-PT15M/events", f"{ADR}/auth/server",
]  # fmt: skip
OF_ZONE = ["now", "prices", "evcc", "days", f"days/{WHOLE_DAYS[0]}.json", "history.csv", "history.parquet", "log.jsonl"]
OF_ZONE += ["cheapest?hours=3", "evcc/api/tariff/grid?forecast=true", OCTOPUS]
PAGES = [*OPEN, *(f"/zones/{zone}/{what}" for zone in ZONES for what in OF_ZONE), "/zones/harbour/vse/v1/tariffs"]
PAGES += ["/zones/old%20town/midas/api/ValueData?SignalType=0"]
PRIVATE_PAGES = ["/healthz", "/readyz", "/openapi.json"]
ROUTES = [("public", path, {"GET", "HEAD"}) for path in [*PAGES, "/zones/harbour/stream"]]
ROUTES += [("public", f"{ADR}/auth/token", {"POST"})]
ROUTES += [("private", path, {"GET", "HEAD"}) for path in [*PRIVATE_PAGES, "/metrics", "/operator"]]
ROUTES += [("private", path, {"POST"}) for path in ("/readings", "/auth/token", "/public-inputs")]

HAPPY = [public(path) for path in PAGES]
HAPPY += [Case("private", "GET", path, 200) for path in PRIVATE_PAGES]
HAPPY += [public(f"/zones/{zone}/days/{day}.json") for zone in ZONES for day in WHOLE_DAYS[1:]]
HAPPY += [
    public(f"{ADR}/auth/token", method="POST"),
    public(f"{ADR}/events/old_20town-PT1H-{TODAY}"),
    public("/zones/old%20town/now"),
    public("/zones/old%20town"),
    public("/zones/h%61rbour/now"),
    readings(line(), 200),
    readings(line(start=f'"{{at:{OVER_S}}}"', more=f',"interval_end":{OVER_S + STEP_S}'), 200),
    readings(line() * 50, 200),
    readings(b"\xef\xbb\xbf" + line() + b"\n\n", 200),
    readings(line('"o1"'), 200, who="old-town"),
    readings(line() + line('"o1"'), 200, who="both"),
    readings(line(start=OVER_S - 86_400), 200),  # late
    readings(b"meter_id,interval_start,energy_wh\nh1,%d,5\n" % OVER_S, 200, CSV),
    readings(b"meter;interval_start;energy_wh\r\nh1;%d;5\r\n" % OVER_S, 200, f"{CSV}; charset=utf-8"),
    readings(GOOD_PARQUET, 200, PARQUET),
    readings(feed(), 200, ATOM),
    readings(line(), 200, "Application/JSONL"),
    *(readings(line(energy=energy), 200) for energy in ("1.5", "-1", "1e3", 2**53, 10**30, -(10**30), "1e999")),
    *(readings(table(meter_id=["h1"], interval_start=_START, energy_wh=[wh]), 200, PARQUET) for wh in (1.5, -1, 2**62)),
    token(GRANT + b"&client_id=harbour&client_secret={secret:harbour}", 200),
    token(GRANT, 200, authorization=_basic("harbour")),
    token(GRANT + b"&scope=readings:old%2520town", 200, authorization=_basic("both")),
]

AUTHORIZATION = [
    Case("private", "POST", "/readings", 401, {"content-type": NDJSON} | headers, line())
    for headers in (
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "bearer x"},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer " + "0" * 64},
        {"authorization": "Bearer " + "x" * 8000},
        {"authorization": "Bearer ' OR 1=1 --"},
        {"authorization": "Basic {token:harbour}"},
        {"authorization": "{token:harbour}"},
        {"authorization": _basic("harbour")},
        {"authorization": "Bearer {token:harbour}x"},
        {"authorization": "Bearer {secret:harbour}"},
    )
]
AUTHORIZATION += [
    readings(line('"o1"'), 422),  # a meter of another zone
    readings(line(), 422, who="old-town"),
    readings(line() + line('"o1"'), 422, who="old-town"),
    readings(line('"nobody"'), 422),
    readings(table(meter=[3], interval_start=_START, energy_wh=[1]), 422, PARQUET),
    token(GRANT, 401),
    token(GRANT + b"&client_id=harbour", 401),
    token(GRANT + b"&client_id=harbour&client_secret=wrong", 401),
    token(GRANT + b"&client_id=nobody&client_secret=wrong", 401),
    token(GRANT + b"&client_id=%00&client_secret=%00", 401),
    token(GRANT + b"&client_id=%ff%fe&client_secret=%ff", 401),
    token(GRANT + b"&client_id=harbour&client_secret={secret:old-town}", 401),
    token(GRANT, 401, authorization=_basic("harbour", "wrong")),
    token(GRANT, 401, authorization="Basic !!!"),
    token(GRANT, 401, authorization="Basic " + b64encode(b"\xff\xfe").decode()),
    token(GRANT, 401, authorization="Basic"),
    token(GRANT + b"&scope=readings:harbour", 400, authorization=_basic("old-town")),
    token(GRANT + b"&scope=everything", 400, authorization=_basic("harbour")),
    token(GRANT + b"&scope=readings:", 400, authorization=_basic("harbour")),
    token(GRANT, 400, authorization=_basic("boss")),  # no zone
]
AUTHORIZATION += [
    Case("private", "GET", path, 401, headers)
    for path in ("/metrics", "/operator")
    for headers in (
        {},
        {"authorization": _basic("harbour")},
        {"authorization": _basic("boss", "wrong")},
        {"authorization": "Bearer {token:both}"},
    )
]

METHODS = [
    Case(api, method, path, 405)
    for api, path, known in ROUTES
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD")
    if method not in known
]

WRONG_READINGS = [b"%b\n" % text for text in (b"[]", b"1", b"null", b'"x"', b"{", b'{"meter":')]
INPUT = [readings(body, 400) for body in WRONG_READINGS]
INPUT += [
    readings(body, 422)
    for body in (
        b"{}\n", line(energy='"1"'), line(energy="true"), line(energy="null"), line(energy="[1]"),
        line(start='"yesterday"'), line(start="1.5"),
        line(start=OVER_S + 1), line(start=(LAST + 40) * STEP_S), line(start=-900), line(start=10**18),
        line(start='"2025-10-28T10:00:00"'), line(more=f',"interval_end":{OVER_S + 60}'), line(more=',"extra":1'),
        line(more=',"signature":"zz"'), line('""'), line("[]"), line('" h1"'), line('"' + "h" * 129 + '"'),
        line('"h1","meter":"h1"'), line("NaN"), line('"h\\u0000"'), line('"\\ud800"'), line(5),
        line() + b"x" * 5000 + b"\n", line() + b"\xff\xfe\n",
    )
]  # fmt: skip
INPUT += [
    readings(b"", 200),
    readings(line().decode().encode("utf-16"), 400),
    readings(b"\x00" * 1000, 400),
    readings(b"[" * 4000, 400),
    readings(b"x" * 5000, 400),
    readings(b"\x1f\x8b\x08\x00" + b"0" * 100, 400),
    readings(line(), 415, "application/json"),
    readings(line(), 415, ""),
    readings(line(), 415, "*/*"),
    readings(line(), 415, f"x{NDJSON}"),
    readings(line(), 415, "multipart/form-data; boundary=x"),
    readings(b"", 400, CSV),
    readings(b"meter_id\nh1\n", 400, CSV),
    readings(b"meter_id,meter_id,interval_start,energy_wh\n", 400, CSV),
    readings(b"\xff\xfe\x00", 400, CSV),
    readings(b'meter_id,interval_start,energy_wh\n"h1,%d,5\nh1\n' % OVER_S, 422, CSV),
    readings(b"meter_id,interval_start,energy_wh\nh1,%d,=1+1\n" % OVER_S, 422, CSV),
    readings(b"", 400, PARQUET),
    readings(b"PAR1", 400, PARQUET),
    readings(b"PAR1" * 100, 400, PARQUET),
    readings(GOOD_PARQUET[:-20], 400, PARQUET),
    readings(GOOD_PARQUET[: len(GOOD_PARQUET) // 2], 400, PARQUET),
    readings(GOOD_PARQUET[20:], 400, PARQUET),
    readings(GOOD_PARQUET[:-8] + b"\xff\xff\xff\x7fPAR1", 400, PARQUET),
    readings(table(x=[1]), 400, PARQUET),
    readings(table(meter_id=["h1"], interval_start=[OVER_S], energy_wh=[1]), 400, PARQUET),
    readings(table(meter_id=["h1"], interval_start=_START, energy_wh=["1"]), 400, PARQUET),
    readings(table(meter_id=["h1"], interval_start=_START, energy_wh=[float("nan")]), 422, PARQUET),
    readings(table(meter_id=[None], interval_start=_START, energy_wh=[1]), 400, PARQUET),
    readings(b"", 400, ATOM),
    readings(b"<feed>", 400, ATOM),
    readings(b"<html/>", 400, ATOM),
    readings(line(), 400, ATOM),
    readings(feed("&i;", head=f"{_BOMB}]>"), 400, ATOM),
    readings(feed("&x;", head='<!DOCTYPE x [<!ENTITY x SYSTEM "file:///etc/passwd">]>'), 400, ATOM),
    readings(feed("", head='<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd">'), 400, ATOM),
    readings(feed("<a>" * 40 + "</a>" * 40), 400, ATOM),
    readings(feed().replace(b"1.0", b'1.0" encoding="utf-7'), 400, ATOM),
    readings(feed()[:-3], 400, ATOM),
    token(b"", 400),
    token(b"grant_type=password", 400),
    token(b"grant_type=", 400),
    token(b"grant_type=client_credentials&grant_type=client_credentials", 400, authorization=_basic("harbour")),
    token(GRANT + b"&client_id=a&client_id=b&client_secret=c", 400),
    token(b"&".join(b"a%d=1" % n for n in range(50)), 400),
    token(b"\xff\xfe\x00", 400),
    token(b'{"grant_type":"client_credentials"}', 400, **{"content-type": "application/json"}),
    token(b"x=" + b"y" * 9000, 413),
    Case("private", "POST", "/readings", 413, _bearer("harbour") | {"content-type": NDJSON}, b" " * (32 * 2**20 + 1)),
]
