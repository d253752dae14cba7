"""A service whose database comes late, whose parts stand still, that reads its settings again, and that is killed."""

import re
import signal
from pathlib import Path

import httpx
import pytest

from tests.e2e.harbour import SETTINGS, harbour_operator
from tests.support.databases import execute_on_server
from tests.support.running_service import PARTS


def allow_connections(dsn, allowed):
    execute_on_server(f"ALTER DATABASE {dsn.rsplit('/', 1)[1]} ALLOW_CONNECTIONS {allowed}")


def test_a_service_waits_for_its_database_restarts_each_part_that_stands_still_and_takes_sighup(tmp_path):
    with harbour_operator(tmp_path, in_s=0) as operator:
        login = {"auth": ("ops", operator.secrets["ops"])}
        service = operator.add_service(SETTINGS)
        text, log, wait_for = service.settings.read_text(), service.log, service.wait_for
        service.settings.write_text("watchdog_s = 15\n" + text)

        allow_connections(operator.dsn("log"), allowed=False)
        service.start()
        wait_for(lambda: log.read_text().count("waiting for a database") >= 4)  # each process says it
        assert service.process.poll() is None
        allow_connections(operator.dsn("log"), allowed=True)
        wait_for(service.is_ready)

        wait_for(lambda: service.metrics(**login)["murmurate_worker_heartbeat_age_seconds",] >= 0)
        wait_for(lambda: '"released"' in log.read_text())
        for part in PARTS:  # stopped as by a debugger, until the supervisor has replaced it and the metrics say so
            stopped = wait_for(lambda part=part: service.signal_part(part, signal.SIGSTOP))
            wait_for(lambda part=part, stopped=stopped: service.part_pid(part) not in {stopped, None})
            wait_for(service.is_ready)
            restarts = ("murmurate_part_restarts_total", part)
            wait_for(lambda restarts=restarts: service.metrics(**login).get(restarts, 0) >= 1)
        assert set(re.findall(r'"killed": ?"(\w+)"', log.read_text())) == set(PARTS)

        before = set(service.process_ids())
        service.settings.write_text("nonsense = 1\n" + text)
        service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "settings not read" in log.read_text())
        assert set(service.process_ids()) == before
        service.settings.write_text(text)
        service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(after := service.process_ids()) == 3 and not before & set(after))
        wait_for(service.is_ready)
        assert service.stop() == 0
        with pytest.raises(httpx.TransportError):
            httpx.get(service.url("/healthz"))

        service.start()
        parts = wait_for(lambda: parts if len(parts := service.process_ids()) == len(PARTS) else None)
        service.kill()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in parts))  # they end with their service
