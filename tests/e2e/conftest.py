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

from tests.e2e.interop_clients import OPENADR, TOO_OLD, Environment, environment, newer_python
from tests.e2e.meter_feed import SIGNERS, Feed
from tests.e2e.running_service import LEAD, STEP_S, Instance, ServiceUnderTest, service_under_test
from tests.support.databases import log_dsn, state_dsn  # noqa: F401
from tests.support.interval_workers import worker_setup  # noqa: F401

DAY_S = int(datetime(2026, 11, 13, 23, tzinfo=UTC).timestamp())  # midnight in Zurich
INTERVALS = 96
SPEED = 600.0  # an interval takes 1.5 s, on a busy machine longer
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
    """One day, played once. Readings have four intervals to arrive, a price seven to be published."""
    with service_under_test(tmp_path_factory.mktemp("service"), DAY_S - LEAD * STEP_S, SPEED) as service:
        service.prepare(keys={home: signer.public_key for home, signer in SIGNERS.items()})
        service.begin(in_s=12.0)  # time for the service and the listener to start
        instance = service.instance().start()
        with closing(Feed(service)) as feed, _listener(clients, instance) as listener:
            evcc_responses = _play(service, instance, feed)
            time.sleep(service.slow)  # the last notification may still be on its way
            request.config.stash[PLAYED] = instance
            yield Day(service, instance, feed, evcc_responses, listener.received() if listener else None)


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
