"""A service whose database comes late, whose parts stand still, and that is told to read its settings again."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psycopg
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.running_service import service_under_test
from tests.support.databases import SERVER

PARTS = ("worker", "private", "public")
FIRST_S = 1_794_614_400  # 2026-11-14 00:00 UTC


def allow_connections(dsn, allowed):
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {dsn.rsplit('/', 1)[1]} ALLOW_CONNECTIONS {allowed}")


def until(condition, service):
    end = time.monotonic() + 300
    while not (found := condition()):
        assert time.monotonic() < end, (service.root / "serve.log").read_text()[-3000:]
        time.sleep(0.1)
    return found


def process_named(instance, name):
    """The process of an instance that runs one part, or None."""
    for pid in instance.process_ids():
        if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2:-1] == [name]:
            return pid
    return None


def metrics(instance, service):
    answer = httpx.get(f"http://127.0.0.1:{instance.private}/metrics", auth=("ops", service.secrets["ops"]))
    families = text_string_to_metric_families(answer.raise_for_status().text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def stop_until_restarted(instance, part, service):
    """Stop a part as a debugger would, until the supervisor has replaced it and the operator's metrics say so."""
    stopped = until(lambda: process_named(instance, part), service)
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: process_named(instance, part) not in {stopped, None}, service)
    instance.until_ready()
    until(lambda: metrics(instance, service).get(("murmurate_part_restarts_total", part), 0) >= 1, service)


def test_a_service_waits_for_its_database_restarts_each_part_that_stands_still_and_takes_sighup(tmp_path):
    with service_under_test(tmp_path, FIRST_S, 1.0) as service:
        service.prepare()
        service.begin(in_s=0)
        instance = service.instance(mqtt=False)
        text = instance.settings.read_text()
        instance.settings.write_text("watchdog_s = 15\n" + text)
        log = tmp_path / "serve.log"

        allow_connections(service.log, allowed=False)
        with log.open("ab") as file:
            command = [sys.executable, "-m", "murmurate", "serve", str(instance.settings)]
            instance.process = subprocess.Popen(command, env=service.environment, stdout=file, stderr=file)
        until(lambda: log.read_text().count("waiting for a database") >= 4, service)  # each process says it
        assert instance.process.poll() is None
        allow_connections(service.log, allowed=True)
        instance.until_ready()

        until(lambda: metrics(instance, service)["murmurate_worker_heartbeat_age_seconds",] >= 0, service)
        until(lambda: '"released"' in log.read_text(), service)
        for part in PARTS:
            stop_until_restarted(instance, part, service)
        assert set(re.findall(r'"killed": ?"(\w+)"', log.read_text())) == set(PARTS)

        before = set(instance.process_ids())
        instance.settings.write_text("nonsense = 1\n" + text)
        instance.process.send_signal(signal.SIGHUP)
        until(lambda: "settings not read" in log.read_text(), service)
        assert set(instance.process_ids()) == before
        instance.settings.write_text(text)
        instance.process.send_signal(signal.SIGHUP)
        until(lambda: len(after := instance.process_ids()) == 3 and not before & set(after), service)
        instance.until_ready()
        instance.stop()
