"""What a test needs of the machine besides Python: servers, programs, a package index. Each has a pytest marker."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import PurePath

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.support import ceph_gateway, postgres_cluster, spark_cluster
from tests.support.noise_without_writable_code import is_supported

BROKER = ("127.0.0.1", 1883)
TIMEOUT_S = 20.0

# Markers by the beginning of a test's path; the longest match counts. Other tests bear their markers in the file.
_MARKERS_BY_PATH = {
    "tests/e2e/": ("postgres", "mqtt", "slow"),
    "tests/e2e/test_interop_clients.py": ("postgres", "mqtt", "slow", "clients"),
    "tests/deploy/test_page.py": ("postgres_programs", "slow"),
    "tests/fault_injection/": ("postgres_programs", "slow"),
    "tests/fuzzing/": ("slow",),
    "tests/integration/": ("postgres",),
    "tests/integration/aggregation/test_spark.py": ("slow",),
    "tests/integration/aggregation/test_spark_faults.py": ("spark", "slow"),
    "tests/integration/docs/test_restore_runbook.py": ("postgres", "pg_dump", "slow"),
    "tests/integration/ingest/test_mqtt_consumer.py": ("postgres", "mqtt"),
    "tests/integration/storage/test_object_store.py": ("slow",),
    "tests/integration/storage/test_cut_creates.py": ("ceph", "slow"),
    "tests/integration/storage/test_store_probe.py": ("ceph", "slow"),
    "tests/paper/test_golden_numbers.py": ("slow", "long"),
    "tests/simulation/": ("slow",),
    "tests/statistical/": ("slow",),
    "tests/unit/commands/test_plan.py": ("slow",),
    "tests/unit/commands/test_registry_entry.py": ("slow",),
    "tests/unit/lab/": ("slow",),
    "tests/unit/research/": ("slow", "long"),
    "tests/unit/research/test_foreign_world.py": ("long",),
    "tests/whole_path/": ("slow",),
}


def markers_of(path: PurePath) -> tuple[str, ...]:
    """The markers that a test has because of the place of its file in the repository."""
    matches = (begin for begin in _MARKERS_BY_PATH if path.as_posix().startswith(begin))
    return _MARKERS_BY_PATH.get(max(matches, key=len, default=""), ())


def _without_postgres() -> str:
    server = os.environ.get("MURMURATE_TEST_SERVER", "postgresql://postgres@127.0.0.1:5432")
    try:
        psycopg.connect(f"{server}/postgres", connect_timeout=int(TIMEOUT_S)).close()
    except psycopg.OperationalError:
        known = conninfo_to_dict(server)
        where = f"{known.get('host', 'localhost')}:{known.get('port', 5432)}"
        return f"no PostgreSQL server at {where}: start one, or set MURMURATE_TEST_SERVER to the URL of another"
    return ""


def _without_postgres_programs() -> str:
    return "" if postgres_cluster.installed() else "no initdb: install the PostgreSQL server (Debian: postgresql)"


def _without_broker() -> str:
    try:
        socket.create_connection(BROKER, timeout=TIMEOUT_S).close()
    except OSError:
        return f"no MQTT broker at {BROKER[0]}:{BROKER[1]}: start one (Debian: mosquitto)"
    return ""


def _without_spark() -> str:
    return "" if spark_cluster.installed() else "no Spark: install Java 17 and murmurate[spark] on Linux"


def _without_index() -> str:
    """Ask pip, which alone knows the configured index, for a small package."""
    options = ["--quiet", "--retries", "0", "--timeout", str(TIMEOUT_S), "--no-deps", "--no-cache-dir", "--dest"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", *options, folder, "tzdata"]
        code = subprocess.run(command, capture_output=True, check=False).returncode
    return "no package index: pip cannot download; connect the machine to one" if code else ""


def _without_environment(variable: str, lock: str) -> Callable[[], str]:
    def probe() -> str:
        why = "" if os.environ.get(variable) else missing("network")
        return why and f"{why}, or set {variable} to a Python that has {lock}"

    return probe


def _without_program(name: str, package: str = "") -> Callable[[], str]:
    return lambda: "" if shutil.which(name) else f"no {name}: install it (Debian: {package or name})"


def _without_jupyter() -> str:
    lacking = [name for name in ("nbclient", "ipykernel", "nbformat") if find_spec(name) is None]
    return f"no {', '.join(lacking)}: pip install --require-hashes -r requirements-dev.txt" if lacking else ""


def _without_ceph() -> str:
    lacking = " ".join(package for program, package in ceph_gateway.PROGRAMS.items() if not shutil.which(program))
    return f"no Ceph: install it (Debian: {lacking})" if lacking else ""


def _without_namespaces() -> str:
    needed = "no right to make a network namespace: run the tests as root" if os.geteuid() else ""
    return "; ".join(filter(None, [_without_program("ip", "iproute2")(), needed]))


def _without_prometheus() -> str:
    found = [_without_program(name)() for name in ("prometheus", "prometheus-alertmanager")]
    return "; ".join(filter(None, [*found, _without_namespaces()]))


_PROBES: dict[str, Callable[[], str]] = {
    "postgres": _without_postgres,
    "postgres_programs": _without_postgres_programs,
    "mqtt": _without_broker,
    "spark": _without_spark,
    "network": _without_index,
    "clients": _without_environment("MURMURATE_CLIENTS", "tests/e2e/clients/requirements.txt"),
    "home_assistant": _without_environment("MURMURATE_HOME_ASSISTANT", "integrations/home_assistant/requirements.txt"),
    "deploy_tools": _without_environment("MURMURATE_DEPLOY_TOOLS", "tests/deploy/requirements.txt"),
    "browser": _without_program("chromium"),
    "ceph": _without_ceph,
    "gojq": _without_program("gojq"),
    "nginx": _without_program("nginx"),
    "promtool": _without_program("promtool", "prometheus"),
    "prometheus": _without_prometheus,
    "namespaces": _without_namespaces,
    "systemd": _without_program("systemd-analyze", "systemd"),
    "mdwe": lambda: "" if is_supported() else "no PR_SET_MDWE: needs Linux 6.3",
    "curl": _without_program("curl"),
    "jupyter": _without_jupyter,
    "kubectl": _without_program("kubectl", "kubernetes-client"),
    "pg_dump": _without_program("pg_dump", "postgresql-client"),
}


@cache
def missing(marker: str) -> str:
    """What the machine lacks for tests with this marker and how to provide it. Empty if it lacks nothing."""
    return _PROBES[marker]() if marker in _PROBES else ""
