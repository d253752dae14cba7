"""A real Prometheus and Alertmanager in a network namespace of their own: they see a service from another address."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.network_namespace import network_namespace

_SHARE = Path("/usr/share")  # where Alertmanager looks for its templates
_PROMETHEUS_PORT, _ALERTMANAGER_PORT = 9090, 9093


class Webhook:
    """A server that keeps what Alertmanager sends: the name of each alert, and whether it is firing or resolved."""

    def __init__(self, host: str) -> None:
        received = self.received = list[tuple[str, str]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                received.extend((alert["labels"]["alertname"], alert["status"]) for alert in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self.server.server_port}/"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


class Monitor:
    """Prometheus and Alertmanager in a network namespace."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack, self._namespace = folder, stack, stack.enter_context(network_namespace())
        self.host = self._namespace.host  # where services listen

    def start(self, ports: Mapping[str, int], rules: str, webhook: Webhook) -> None:
        """Have Prometheus scrape these ports of the host, by job, and Alertmanager send what fires to the webhook."""
        jobs = [{"job_name": job, "static_configs": [{"targets": [f"{self.host}:{ports[job]}"]}]} for job in ports]
        managers = {"static_configs": [{"targets": [f"127.0.0.1:{_ALERTMANAGER_PORT}"]}]}
        files = {
            "alerts.yml": rules,
            "prometheus.yml": {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": ["alerts.yml"],
                "scrape_configs": jobs,
                "alerting": {"alertmanagers": [managers]},
            },
            "alertmanager.yml": {
                "route": {"receiver": "hook", "group_by": ["alertname"], "group_wait": "1s", "group_interval": "1s"},
                "receivers": [{"name": "hook", "webhook_configs": [{"url": webhook.url}]}],
            },
        }
        for name, content in files.items():
            (self._folder / name).write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        listen = f"--web.listen-address=0.0.0.0:{_PROMETHEUS_PORT}"
        self._run("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", listen)
        listen = f"--web.listen-address=127.0.0.1:{_ALERTMANAGER_PORT}"
        options = ("--config.file=alertmanager.yml", "--storage.path=am", "--cluster.listen-address=", listen)
        self._run("prometheus-alertmanager", *options)

    def _run(self, program: str, *options: str) -> None:
        """Run a program behind the cable. One that was unpacked, not installed, finds its files as if it were."""
        path = Path(shutil.which(program) or "")
        share = path.parents[1] / "share"
        layer = f"mount -t overlay overlay -o lowerdir={share}:{_SHARE} {_SHARE} && " if share != _SHARE else ""
        command = self._namespace.command("bash", "-c", f'{layer}exec "$0" "$@"', str(path), *options)
        with (self._folder / f"{program}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)

    def status_of(self, url: str) -> int:
        """The status of an answer to a client behind the cable."""
        line = "import sys, httpx; print(httpx.get(sys.argv[1], timeout=60, trust_env=False).status_code)"
        command = self._namespace.command(sys.executable, "-c", line, url)
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that Prometheus finds now; none before it answers. It must understand the expression."""
        url = f"http://{self._namespace.far}:{_PROMETHEUS_PORT}/api/v1/query"
        try:
            answer = httpx.get(url, params={"query": expression}, timeout=60, trust_env=False)
        except httpx.TransportError:
            return []
        assert answer.status_code in {200, 503}, (expression, answer.text)
        return answer.json()["data"]["result"] if answer.status_code == 200 else []
