"""One day of a running service, simulated once for all tests that read it, and third-party clients."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.e2e.harbour import LEAD, SETTINGS, STEP_S, harbour_operator
from tests.e2e.interop_clients import OPENADR, TOO_OLD, Environment, environment, newer_python
from tests.e2e.meter_feed import SIGNERS, Feed
from tests.support.databases import log_dsn, state_dsn  # noqa: F401
from tests.support.interval_workers import worker_setup  # noqa: F401
from tests.support.running_service import RunningService, ServiceOperator

DAY_S = int(datetime(2026, 11, 13, 23, tzinfo=UTC).timestamp())  # midnight in Zurich
INTERVALS = 96
SPEED = 600.0  # an interval takes 1.5 s, on a busy machine longer
PLAYED = pytest.StashKey[RunningService]()


class EvccResponse(NamedTuple):
    """The response that evcc would have got at some moment of the day."""

    before_s: float
    body: bytes
    after_s: float


class Day(NamedTuple):
    """The service after its day, still running, and the responses and notifications of that day."""

    operator: ServiceOperator
    service: RunningService
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


def zone_lines(service: RunningService) -> list[dict]:
    """The zone's public log as the service hands it out, without its plans."""
    lines = httpx.get(service.url("/zones/harbour/log.jsonl"), timeout=60).text.splitlines()
    return [line for line in map(json.loads, lines) if "murmurate_zone" in line]


def published_rows(service: RunningService) -> list[PublishedRow]:
    """What the zone's public log says about each interval. What a step is comes from the zone tables that it names."""
    lines = [line for line in zone_lines(service) if line["row"] is not None]
    ticks = {}
    for digest in {line["tile"]["table"] for line in lines}:
        document = httpx.get(service.url(f"/documents/{digest}")).raise_for_status().json()
        (tick,) = (row["tick"] for row in document["zones"] if row["zone"] == "harbour")
        ticks[digest] = Fraction(tick)
    rows = []
    for line in lines:
        tile, row = line["tile"], line["row"]
        price_ticks = None if row["kind"] == "withheld" else row["price_ticks"]
        paid = tile["interval"] + tile["lead"]
        rows.append(PublishedRow(tile["interval"], paid, row["kind"], price_ticks, ticks[tile["table"]]))
    return rows


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
    """One day, played once. Readings have four intervals to arrive, a price seven to be published."""
    folder, keys = tmp_path_factory.mktemp("service"), {home: signer.public_key for home, signer in SIGNERS.items()}
    begins = {"first_s": DAY_S - LEAD * STEP_S, "in_s": 12.0}  # time for the service and the listener to start
    with harbour_operator(folder, speed=SPEED, keys=keys, **begins) as operator:
        operator.mqtt = "[mqtt]\nhome_assistant = true"
        service = operator.start_service(SETTINGS)
        with closing(Feed(operator, service)) as feed, _listener(clients, service) as listener:
            evcc_responses = _play(operator, service, feed)
            time.sleep(operator.slow)  # the last notification may still be on its way
            request.config.stash[PLAYED] = service
            yield Day(operator, service, feed, evcc_responses, listener.received() if listener else None)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item) -> None:
    """Stop the service of the day once no test needs it."""
    service = item.config.stash.get(PLAYED, None)
    if service is not None and service.process.poll() is None:
        later = item.session.items[item.session.items.index(item) + 1 :]
        if not any("day" in getattr(other, "fixturenames", ()) for other in later):
            assert service.stop() == 0


def _listener(clients: Environment, service: RunningService):
    """The MQTT listener, or nothing if its packages are missing: the day does not need it."""
    return closing(clients.listen(service.url(OPENADR))) if clients.python else nullcontext()


def _play(operator: ServiceOperator, service: RunningService, feed: Feed) -> list[EvccResponse]:
    evcc_responses = []

    def read_as_evcc() -> None:
        before_s = operator.clock.now()
        answer = httpx.get(service.url("/zones/harbour/evcc")).raise_for_status()
        evcc_responses.append(EvccResponse(before_s, answer.content, operator.clock.now()))

    for number in range(INTERVALS):
        feed.play(number)
        if number % 2:
            read_as_evcc()
    service.wait_for(lambda: httpx.get(service.url("/zones/harbour/days/2026-11-14.json")).status_code == 200)
    read_as_evcc()
    return evcc_responses
