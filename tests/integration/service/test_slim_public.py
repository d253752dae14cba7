"""The public process in an environment without the packages that only plans, readings and noise need."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from tests.support.api_cases import PAGES
from tests.support.api_servers import NOW_S, WHOLE_DAYS, write_log
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from murmurate.commands.prices import show_prices

ABSENT = ("msgspec", "opendp", "pyarrow", "scipy")


@contextmanager
def slim_public(folder: Path, log_dsn: str):
    """The address of a public process whose packages are those of this environment, but for the absent."""
    packages, port = folder / "packages", free_port()
    packages.mkdir()
    (packages / "murmurate").symlink_to(Path(find_spec("murmurate").origin).parent)
    for path in Path(find_spec("psycopg").origin).parents[1].iterdir():
        if not path.name.lower().startswith((*ABSENT, "murmurate")):
            (packages / path.name).symlink_to(path)
    (folder / "service.toml").write_text(f"""
        public = "127.0.0.1:{port}"
        country = "CH"
        mqtt = {{ port = {free_port()} }}
        clock = {{ simulated_s = {NOW_S}, wall_s = {time.time()}, speed = 1e-6 }}
        [zones]
        harbour = {{ timezone = "Europe/Zurich" }}
        "old town" = {{ timezone = "America/New_York" }}
    """)
    environment = os.environ | {"PYTHONPATH": str(packages), "MURMURATE_LOG": log_dsn, "MURMURATE_STATE": log_dsn}
    # -S: without the packages of this environment itself
    command = [sys.executable, "-S", "-m", "murmurate", "serve", "service.toml", "--only"]
    refused = subprocess.run(
        [*command, "worker"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stderr) == (
        2,
        'murmurate: msgspec is not installed: run pip install "murmurate[service]"\n',
    )
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([*command, "public"], cwd=folder, env=environment, stderr=output)
    address = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{address}/readyz", timeout=60, trust_env=False).status_code == 200
        return process.poll() is not None

    try:
        assert wait_until(is_ready), (folder / "output").read_text()
        yield address
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_the_public_process_serves_every_page_and_format_without_heavy_packages(log_dsn, tmp_path, capsys):
    digests = write_log(log_dsn)
    with (
        slim_public(tmp_path, log_dsn) as address,
        httpx.Client(base_url=address, timeout=60, trust_env=False) as client,
    ):
        paths = [path.replace("{plan}", digests["harbour"]) for path in [*PAGES, "/zones/harbour/plan"]]
        assert wait_until(lambda: client.get(paths[-1]).status_code == 200)
        parquet = {path for path in paths if path.endswith(".parquet")}
        statuses = {path: client.get(path).status_code for path in paths}
        assert statuses == dict.fromkeys(paths, 200) | dict.fromkeys(parquet, 501)
        for path in parquet:
            refused = client.get(path)
            assert refused.json()["detail"] == "this server writes no Parquet; history.csv has the same columns"
            assert refused.headers["cache-control"] == "no-store"
        page = client.get("/zones/harbour").text
        assert "history.csv" in page
        assert "history.parquet" not in page
        show_prices(f"{address}/zones/harbour", day=datetime.fromisoformat(WHOLE_DAYS[1]), verify=True)
        assert "Not verified" not in capsys.readouterr().out
