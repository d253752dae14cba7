"""One day of the town, played once for all who look at it afterwards, and the clients that others wrote."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.road.clients import OPENADR, TOO_OLD, Environment, environment, newer_python
from tests.road.feed import SIGNERS, Feed
from tests.road.town import LEAD, STEP_S, Instance, Town, town
from tests.service.conftest import log_dsn, state_dsn  # noqa: F401

DAY_S = int(datetime(2026, 11, 13, 23, tzinfo=UTC).timestamp())  # midnight in Zurich
INTERVALS = 96
SPEED = 900.0
PLAYED = pytest.StashKey[Instance]()


class Glance(NamedTuple):
    """What evcc would have got at some moment of the day."""

    before_s: float
    body: bytes
    after_s: float


class Day(NamedTuple):
    """The town after its day, with the service still running, and what was seen of it meanwhile."""

    town: Town
    instance: Instance
    feed: Feed
    glances: list[Glance]
    heard: dict | None  # by a client of the broker; none: there is no such client


def records(instance: Instance) -> list[dict]:
    """The zone's public log, without its plans."""
    lines = httpx.get(instance.url("/zones/harbour/log.jsonl")).text.splitlines()
    return [json.loads(line) for line in lines if "murmurate_plan" not in line]


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
    root = tmp_path_factory.mktemp("town")
    with town(root, DAY_S - LEAD * STEP_S, SPEED) as made:
        made.prepare(keys={home: signer.public for home, signer in SIGNERS.items()})
        made.begin(in_s=12.0)  # time for the service and the listener to start
        instance = request.config.stash[PLAYED] = made.instance().start()
        with closing(Feed(made)) as feed, _listener(clients, instance) as listener:
            glances = _play(made, instance, feed)
            time.sleep(1.0)  # the last notice may still be on its way
            yield Day(made, instance, feed, glances, listener.heard() if listener else None)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem) -> None:
    """The service of the day does not run beside tests that no longer look at it."""
    instance = item.config.stash.get(PLAYED, None)
    if instance is not None and "day" not in getattr(nextitem, "fixturenames", ()):
        instance.stop()


def _listener(clients: Environment, instance: Instance):
    """Without its packages there is no listener: the day itself can be played all the same."""
    return closing(clients.listen(instance.url(OPENADR))) if clients.python else nullcontext()


def _play(made: Town, instance: Instance, feed: Feed) -> list[Glance]:
    glances = []
    feed.sign_in(instance)
    for number in range(INTERVALS):
        feed.play(instance, number)
        if number % 2:
            glances.append(_glance(made, instance))
    _until_decided(made, instance)
    return [*glances, _glance(made, instance)]


def _glance(made: Town, instance: Instance) -> Glance:
    before_s = made.clock.now()
    answer = httpx.get(instance.url("/zones/harbour/evcc")).raise_for_status()
    return Glance(before_s, answer.content, made.clock.now())


def _until_decided(made: Town, instance: Instance) -> None:
    """Wait until the local day is whole."""
    end = time.monotonic() + 30 * made.slow
    while httpx.get(instance.url("/zones/harbour/days/2026-11-14.json")).status_code != 200:
        assert time.monotonic() < end, (made.root / "serve.log").read_text()[-3000:]
        time.sleep(0.1)
