"""One day of a running service, simulated once for all tests that read it, and third-party clients."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.e2e.interop_clients import OPENADR, TOO_OLD, Environment, environment, newer_python
from tests.e2e.meter_feed import SIGNERS, Feed
from tests.e2e.running_service import HOMES, LEAD, STEP_S, Instance, ServiceUnderTest, TooSlowError, service_under_test
from tests.support.databases import log_dsn, state_dsn  # noqa: F401
from tests.support.interval_workers import worker_setup  # noqa: F401

DAY_S = int(datetime(2026, 11, 13, 23, tzinfo=UTC).timestamp())  # midnight in Zurich
INTERVALS = 96
SPEED = 900.0
SLOWDOWNS = (1, 3, 6)
PLAYED = pytest.StashKey[Instance]()


class EvccResponse(NamedTuple):
    """The response that evcc would have got at some moment of the day."""

    before_s: float
    body: bytes
    after_s: float


class Day(NamedTuple):
    """The service after its day, still running, and the responses and notifications of that day."""

    service: ServiceUnderTest
    instance: Instance
    feed: Feed
    evcc_responses: list[EvccResponse]
    received: dict | None  # by a client of the broker; None if there is no such client


class PublishedRow(NamedTuple):
    """A row of the zone in the public log."""

    interval: int
    paid_interval: int
    kind: str
    price_ticks: int | None
    tick: Fraction  # one price step [currency/kWh]


def zone_lines(instance: Instance) -> list[dict]:
    """The zone's public log as the service hands it out, without its plans."""
    lines = httpx.get(instance.url("/zones/harbour/log.jsonl"), timeout=60).text.splitlines()
    return [line for line in map(json.loads, lines) if "murmurate_zone" in line]


def published_rows(instance: Instance) -> list[PublishedRow]:
    """What the zone's public log says about each interval. What a step is comes from the zone tables that it names."""
    lines = [line for line in zone_lines(instance) if line["row"] is not None]
    ticks = {digest: _tick_of_zone(instance, digest) for digest in {line["tile"]["table"] for line in lines}}
    rows = []
    for line in lines:
        tile, row = line["tile"], line["row"]
        price_ticks = None if row["kind"] == "withheld" else row["price_ticks"]
        paid = tile["interval"] + tile["lead"]
        rows.append(PublishedRow(tile["interval"], paid, row["kind"], price_ticks, ticks[tile["table"]]))
    return rows


def _tick_of_zone(instance: Instance, table: str) -> Fraction:
    document = httpx.get(instance.url(f"/documents/{table}")).raise_for_status().json()
    (tick,) = (row["tick"] for row in document["zones"] if row["zone"] == "harbour")
    return Fraction(tick)


@pytest.fixture(scope="session")
def clients(tmp_path_factory) -> Environment:
    cache = tmp_path_factory.getbasetemp().parent
    return environment("MURMURATE_CLIENTS", "requirements.txt", Path(sys.executable), cache)


@pytest.fixture(scope="session")
def clients_312(tmp_path_factory) -> Environment:
    cache = tmp_path_factory.getbasetemp().parent
    found = environment("MURMURATE_CLIENTS_312", "requirements-312.txt", newer_python(), cache)
    if found.why == TOO_OLD:
        pytest.skip(TOO_OLD)
    return found


@pytest.fixture(scope="package")
def day(request, tmp_path_factory, clients) -> Iterator[Day]:
    """One day. If the machine is too busy, it is played again with a slower clock; late at any speed is a failure."""
    for slowdown in SLOWDOWNS:
        with ExitStack() as stack:
            try:
                played = stack.enter_context(_play_day(tmp_path_factory.mktemp("service"), clients, SPEED / slowdown))
            except TooSlowError:
                continue
            request.config.stash[PLAYED] = played.instance
            yield played
            return
    pytest.fail("readings or prices were late at a sixth of the speed")


@contextmanager
def _play_day(root: Path, clients: Environment, speed: float) -> Iterator[Day]:
    with service_under_test(root, DAY_S - LEAD * STEP_S, speed) as service:
        service.prepare(keys={home: signer.public_key for home, signer in SIGNERS.items()})
        service.begin(in_s=12.0)  # time for the service and the listener to start
        instance = service.instance().start()
        with closing(Feed(service)) as feed, _listener(clients, instance) as listener:
            evcc_responses = _play(service, instance, feed)
            time.sleep(service.slow)  # the last notification may still be on its way
            if speed > SPEED / SLOWDOWNS[-1] and _is_late(service, instance, feed):
                raise TooSlowError
            yield Day(service, instance, feed, evcc_responses, listener.received() if listener else None)


def _is_late(service: ServiceUnderTest, instance: Instance, feed: Feed) -> bool:
    """Whether a price or a reading came too late, over MQTT as well, which sends no receipt."""
    demand = service.demand()
    reported = all(demand.get(interval, (0, 0, 0))[1] == HOMES for interval in feed.expected)
    return not reported or any(row.kind == "withheld" for row in published_rows(instance))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item) -> None:
    """Stop the service of the day once no test needs it."""
    instance = item.config.stash.get(PLAYED, None)
    if instance is not None and instance.process is not None:
        later = item.session.items[item.session.items.index(item) + 1 :]
        if not any("day" in getattr(other, "fixturenames", ()) for other in later):
            instance.stop()


def _listener(clients: Environment, instance: Instance):
    """The MQTT listener, or nothing if its packages are missing: the day does not need it."""
    return closing(clients.listen(instance.url(OPENADR))) if clients.python else nullcontext()


def _play(service: ServiceUnderTest, instance: Instance, feed: Feed) -> list[EvccResponse]:
    evcc_responses = []
    feed.sign_in(instance)
    for number in range(INTERVALS):
        feed.play(instance, number)
        if number % 2:
            evcc_responses.append(_evcc_response(service, instance))
    _until_decided(service, instance)
    return [*evcc_responses, _evcc_response(service, instance)]


def _evcc_response(service: ServiceUnderTest, instance: Instance) -> EvccResponse:
    before_s = service.clock.now()
    answer = httpx.get(instance.url("/zones/harbour/evcc")).raise_for_status()
    return EvccResponse(before_s, answer.content, service.clock.now())


def _until_decided(service: ServiceUnderTest, instance: Instance) -> None:
    """Wait until the local day is complete."""
    end = time.monotonic() + 30 * service.slow
    while httpx.get(instance.url("/zones/harbour/days/2026-11-14.json")).status_code != 200:
        assert time.monotonic() < end, (service.root / "serve.log").read_text()[-3000:]
        time.sleep(0.1)
