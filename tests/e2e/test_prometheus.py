"""A Prometheus on another machine scrapes all processes; an alert reaches a person and ends; the dashboard has data."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import ExitStack, closing
from importlib.resources import files
from pathlib import Path

import pytest

from tests.e2e.harbour import HOMES, STEP_S, harbour_operator
from tests.support.ports import free_port
from tests.support.prometheus import Monitor, Webhook
from tests.support.request_bodies import readings_parquet
from tests.support.running_service import PARTS, HeadEnd
from tests.support.waiting import wait_until

OPERATOR_API = files("murmurate.service.operator_api")
SPEED = 300.0  # an interval takes 3 s
CUT_S = 20  # after which the alert about readings that have stopped fires here; its own rule has an hour
ALERT = "MurmurateReadingsStopped"


class SteadyFeed:
    """Posts the readings of each interval when it is over, in a thread, unless it is cut."""

    def __init__(self, operator, service):
        self._head_end, self._operator, self._service = HeadEnd(operator), operator, service
        self.connected, self._ended = threading.Event(), threading.Event()
        self.connected.set()
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self):
        sent_s = 0
        while not self._ended.wait(0.1):
            over_s = int(self._operator.clock.now()) // STEP_S * STEP_S - STEP_S
            if over_s > sent_s and self.connected.is_set():
                body = readings_parquet(range(HOMES), over_s, [400] * HOMES)
                self._head_end.post(self._service, body, "application/vnd.apache.parquet")
                sent_s = over_s

    def close(self):
        self._ended.set()
        self._thread.join()
        self._head_end.close()


def quick_rules():
    """The rules, but that they fire after a second; and this alert not after an hour, but CUT_S."""
    text, count = re.subn(r"for: \d+[mh]", "for: 1s", (OPERATOR_API / "alerts.yml").read_text(encoding="utf-8"))
    assert count > 30
    assert text.count("newest_reading_age_seconds > 3600") == 1
    return text.replace("newest_reading_age_seconds > 3600", f"newest_reading_age_seconds > {CUT_S}")


def dashboard_queries():
    """Each query of the dashboard, for all zones, as Grafana sends it."""
    document = json.loads((OPERATOR_API / "dashboard.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    queries += [annotation["expr"] for annotation in document["annotations"]["list"]]
    return [query.replace("$__rate_interval", "1m").replace("$zone", ".*") for query in queries]


@pytest.mark.prometheus
def test_prometheus_elsewhere_scrapes_all_processes_and_an_alert_fires_and_resolves(tmp_path, figure):
    begun = time.monotonic()
    with ExitStack() as stack:
        monitor = Monitor(tmp_path, stack)
        webhook = stack.enter_context(closing(Webhook(monitor.host)))
        operator = stack.enter_context(harbour_operator(tmp_path, in_s=0, speed=SPEED))
        operator.mqtt = "[mqtt]"
        for store in ("state", "log"):  # as a secret of Docker or Kubernetes is a file
            operator.write(f"{store}.secret", f"{operator.dsn(store)}\n")
            variable = f"MURMURATE_{store.upper()}"
            operator.extra |= {variable: "", f"{variable}_FILE": str(tmp_path / f"{store}.secret")}
        (tmp_path / "backups").mkdir()
        for name in ("state.dump", "log.dump"):
            (tmp_path / "backups" / name).write_text("a dump")
        ports = {f"murmurate-{part}": free_port() for part in PARTS}
        metrics = ", ".join(f'{part} = "{monitor.host}:{ports[f"murmurate-{part}"]}"' for part in PARTS)
        extra = f'grace_s = {2 * STEP_S}\nstatic_files = "static"\nbackups = "backups"\nmetrics = {{ {metrics} }}'
        service = operator.add_service(extra)
        text = service.settings.read_text()
        service.settings.write_text(text.replace(f'"127.0.0.1:{service.public}"', f'"0.0.0.0:{service.public}"'))
        service.start()
        service.wait_for(service.is_ready)
        known = Path(f"/proc/{service.part_pid('public')}/environ").read_bytes()
        assert b"MURMURATE_LOG=" in known
        assert b"MURMURATE_STATE" not in known
        feed = stack.enter_context(closing(SteadyFeed(operator, service)))
        monitor.start(ports, quick_rules(), webhook)

        up = 'up{job=~"murmurate.*"} == 1'
        assert wait_until(lambda: len(monitor.query(up)) == len(PARTS)), monitor.query("up")
        public = f"http://{monitor.host}:{service.public}"
        assert [monitor.status_of(f"{public}{path}") for path in ("/zones", "/metrics")] == [200, 404]
        for port in ports.values():  # metrics, and nothing else
            paths = ("/metrics", "/", "/zones", "/operator", "/readings", "/healthz")
            statuses = [monitor.status_of(f"http://{monitor.host}:{port}{path}") for path in paths]
            assert statuses == [200, 404, 404, 404, 404, 404]
        assert not monitor.query('{__name__=~"process_cpu.*"}')

        of_alert = f'ALERTS{{alertname="{ALERT}"}}'
        assert wait_until(lambda: monitor.query("murmurate_zone_share_reported > 0.9") and not monitor.query(of_alert))
        assert not monitor.query('ALERTS{alertname="MurmurateNotScraped"}')
        webhook.received.clear()
        feed.connected.clear()
        assert wait_until(lambda: (ALERT, "firing") in webhook.received), monitor.query(of_alert)
        queries = dashboard_queries()
        assert len(queries) > 30
        assert wait_until(lambda: all(map(monitor.query, queries))), [
            each for each in queries if not monitor.query(each)
        ]
        feed.connected.set()
        assert wait_until(lambda: (ALERT, "resolved") in webhook.received), monitor.query(of_alert)
        took_s = time.monotonic() - begun
    figure(
        f"alert through Prometheus and Alertmanager: {took_s:.0f} s, commands {operator.slow:.1f} times as slow as idle"
    )
