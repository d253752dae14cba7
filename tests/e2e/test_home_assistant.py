"""The integration, and discovery over MQTT, in a real Home Assistant: it reads services whose logs are known.

The tests that run inside it are in integrations/home_assistant/tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.public_api.home_assistant import HomeAssistantTopics, discovery_topic
from murmurate.service.public_api.notifications import zone_topic
from murmurate.service.settings import MqttBroker
from murmurate.service.storage.migrate import migrate_database
from tests.e2e.interop_clients import TOO_OLD, Environment, environment, newer_python
from tests.support.api_servers import LEAD, STEP_S, plan_of, public_process
from tests.support.databases import database
from tests.support.postgres_stores import ShardWriter

HOME = Path(__file__).parents[2] / "integrations" / "home_assistant"
PYTHON_MINOR = 13
DAYS = {  # when it is now
    "usual": datetime(2025, 11, 14, 11, 10, tzinfo=UTC),
    "autumn": datetime(2025, 10, 26, 9, 40, tzinfo=UTC),
    "spring": datetime(2026, 3, 29, 15, 55, tzinfo=UTC),
}

pytestmark = pytest.mark.home_assistant


@pytest.fixture(scope="module")
def home_assistant(tmp_path_factory) -> Environment:
    cache = tmp_path_factory.getbasetemp().parent
    found = environment("MURMURATE_HOME_ASSISTANT", HOME / "requirements.txt", newer_python(PYTHON_MINOR), cache)
    if found.why == TOO_OLD:
        pytest.skip(TOO_OLD)
    return found


def run_inside(home_assistant: Environment, tests: str, **variables: str) -> None:
    """Run tests inside Home Assistant."""
    assert home_assistant.python is not None, home_assistant.why
    command = [home_assistant.python, "-m", "pytest", "-c", HOME / "pytest.ini", HOME / "tests" / tests]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "HYPOTHESIS", "PYTHON"))}
    done = subprocess.run(command, cwd=HOME, env={**own, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@contextmanager
def written_log(zone: str, now_s: int) -> Iterator[tuple[str, dict[str, float | None]]]:
    """A log with two days of prices until now; and each price by its start. Some were withheld."""
    with database("log") as dsn:
        migrate_database(dsn, "log")
        last = now_s // STEP_S
        writer = ShardWriter(dsn, {zone: plan_of(zone, "EUR")}, first=last - 192, lead=LEAD)
        for n in range(last - 193, last):
            writer.write(1, None if n % 9 == 1 and n < last - 9 else 400_000 + n % 96 * 1000)
        writer.close()
        tick = Fraction(writer.terms[zone].tick)
        yield (
            dsn,
            {
                datetime.fromtimestamp(n * STEP_S, UTC).isoformat(): None if ticks is None else float(ticks * tick)
                for n, ticks in writer.prices(zone).items()
            },
        )


def test_the_integration_shows_the_prices_of_the_log(home_assistant, tmp_path):
    days = {}
    with ExitStack() as stack:
        for name, now in DAYS.items():
            dsn, prices = stack.enter_context(written_log("harbour", int(now.timestamp())))
            clients = public_process(dsn, now.timestamp(), timezone="Europe/Berlin")
            client, _ = stack.enter_context(clients)
            days[name] = {"url": str(client.base_url).rstrip("/"), "now": now.isoformat(), "prices": prices}
        (tmp_path / "days.json").write_text(json.dumps(days))
        run_inside(home_assistant, "test_price.py", MURMURATE_DAYS=str(tmp_path / "days.json"))


@pytest.mark.mqtt
def test_home_assistant_finds_a_zone_at_a_broker(home_assistant):
    zone, now_s = f"z{uuid.uuid4().hex[:10]}", time.time()
    client = connect_mqtt(MqttBroker(), f"test-{zone}", max_queued_messages=100)
    try:
        with written_log(zone, int(now_s)) as (dsn, prices):
            topics = HomeAssistantTopics(client, "https://prices.example")
            with public_process(dsn, now_s, speed=1.0, home_assistant=topics):
                live = json.dumps({"zone": zone, "prices": prices})
                run_inside(home_assistant, "test_mqtt.py", MURMURATE_LIVE=live)
    finally:
        for topic in (discovery_topic(zone), zone_topic(zone, "now"), zone_topic(zone, "prices")):
            client.publish(topic, "", qos=1, retain=True).wait_for_publish(60)
        client.disconnect()
        client.loop_stop()
