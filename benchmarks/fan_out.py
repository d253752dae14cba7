"""A million readers of 100,000 zones behind one nginx with a cache: how many requests reach the service?

    python -m benchmarks.fan_out [--readers 1000000] [--zones 100000]

Needs nginx. Each reader asks once within an interval for the price of one zone, chosen at random: first all of them for
the prices of its shard, then all for `/now` of the zone. The cache is empty before each, as when an interval begins.
The access log of nginx counts the requests of readers and those that were passed on. A connection carries many.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from tests.support.databases import migrated_databases
from tests.support.waiting import wait_until

from benchmarks.deep_log import INTERVAL_S
from benchmarks.goals import Goals, read_options
from benchmarks.server_start import make_log
from benchmarks.servers import ServerProcess
from murmurate.public_log.zone_table import MAX_ZONES
from murmurate.service.storage.public_log_store import PostgresLogStore

MAX_SHARD_SHARE = 0.01  # of the requests of readers that reach the service
LEAD_INTERVALS, MEASURED = 8, 8  # the prices of now and of the next hours are decided
CONNECTIONS, REQUESTS_PER_CONNECTION = 24, 500
SERVICE, PROXY = 28_095, 28_096
_CONFIGURATION = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; events {{ worker_connections 1024; }}
http {{
    {scratch}
    log_format cache "$status $upstream_cache_status";
    proxy_cache_path {folder}/cache keys_zone=answers:100m max_size=4g use_temp_path=off;
    server {{
        listen 127.0.0.1:{proxy};
        keepalive_requests {requests};
        access_log {folder}/access.log cache buffer=1m;
        location / {{ proxy_pass http://127.0.0.1:{service}; proxy_cache {cache}; proxy_cache_lock on; }}
    }}
}}
"""


@contextmanager
def nginx_cache(folder: Path, cache: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run nginx with an empty cache in front of the service. It has written its access log when the block has ended."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    (folder / "access.log").unlink(missing_ok=True)
    kinds = ("proxy", "client_body", "fastcgi", "scgi", "uwsgi")
    scratch = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    names = {"folder": folder, "scratch": scratch, "proxy": PROXY, "service": SERVICE, "cache": cache}
    (folder / "nginx.conf").write_text(_CONFIGURATION.format(requests=REQUESTS_PER_CONNECTION + 1, **names))
    as_user = ["-g", "user root;"] if os.getuid() == 0 else []
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log"), *as_user]
    with subprocess.Popen(command) as nginx:  # noqa: S603
        try:
            assert wait_until(lambda: nginx.poll() is not None or _is_open()), (folder / "error.log").read_text()
            yield nginx
        finally:
            nginx.terminate()


def _is_open() -> bool:
    try:
        socket.create_connection(("127.0.0.1", PROXY), 60).close()
    except ConnectionRefusedError:
        return False
    return True


def ask_all(paths: list[str]) -> int:
    """Request each path over one connection. Return the bytes of all answers."""
    requests = [f"GET {path} HTTP/1.1\r\nhost: prices.example\r\n\r\n" for path in paths]
    requests[-1] = requests[-1].replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")
    buffer, total = bytearray(2**20), 0
    with socket.create_connection(("127.0.0.1", PROXY), 600) as connection:
        connection.sendall("".join(requests).encode())
        while count := connection.recv_into(buffer):
            total += count
    return total


def measure_reads(goals: Goals, root: Path, what: str, paths: list[str], *, cache: str, at_most: float) -> None:
    """Have each reader ask for its path, and print how many requests reached the service."""
    batches = [paths[at : at + REQUESTS_PER_CONNECTION] for at in range(0, len(paths), REQUESTS_PER_CONNECTION)]
    begin = time.perf_counter()
    with nginx_cache(root, cache), ThreadPoolExecutor(CONNECTIONS) as pool:
        total = sum(pool.map(ask_all, batches))
        took_s = time.perf_counter() - begin
    with (root / "access.log").open() as file:
        counts = Counter(line.rstrip("\n") for line in file)
    asked = sum(counts.values())
    passed_on = asked - sum(count for line, count in counts.items() if line == "200 HIT")
    answered = sum(count for line, count in counts.items() if line.startswith("200 "))
    goals.check(f"readers that got {what}", f"{answered:,}", held=answered == asked == len(paths))
    goals.print_figure(f"requests for {what} at the service", passed_on)
    goals.print_figure(f"share of readers' requests for {what}", passed_on / asked, at_most=at_most)
    goals.print_figure(f"time, {total / 2**30:.3g} GiB", took_s, "s")


def measure(log_dsn: str, readers: int, zones: int, root: Path, cache: str = "answers") -> int:
    """Print the figures. Return 1 where one misses its goal."""
    goals, log = Goals(), PostgresLogStore(log_dsn)
    make_log(log, zones, int(time.time()) // INTERVAL_S - MEASURED, LEAD_INTERVALS).fill(log_dsn, None, MEASURED)
    settings = root / "service.toml"
    settings.write_text(f'public = "127.0.0.1:{SERVICE}"\n')
    command = ["-m", "murmurate", "serve", str(settings), "--log", log_dsn, "--only", "public"]
    chosen = np.random.default_rng(1).integers(0, zones, readers)
    with ServerProcess(command, SERVICE, root / "stderr") as server:
        server.await_ready()
        urlopen(f"http://127.0.0.1:{SERVICE}/zones/zone-{zones - 1:06d}/now", timeout=60).close()
        now = datetime.fromtimestamp(time.time() // INTERVAL_S * INTERVAL_S, UTC)
        of_shard = [f"/prices/shard-{zone // MAX_ZONES:04d}/{now:%Y%m%dT%H%M%SZ}.json" for zone in chosen.tolist()]
        of_zone = [f"/zones/zone-{zone:06d}/now" for zone in chosen.tolist()]
        print(f"{readers:,} readers of {zones:,} zones, one place with a cache, load {os.getloadavg()[0]:.1f}")
        before_s = server.core_s()
        measure_reads(goals, root, "prices of a shard", of_shard, cache=cache, at_most=MAX_SHARD_SHARE)
        goals.print_figure("core time of the service", server.core_s() - before_s, "s")
        before_s = server.core_s()
        # At least the first reader of each zone; twice that where the interval ends meanwhile.
        share = zones * -np.expm1(-readers / zones) / readers
        measure_reads(goals, root, "/now", of_zone, cache=cache, at_most=2.2 * share)
        goals.print_figure("of these, first readers of a zone", share)
        goals.print_figure("core time of the service", server.core_s() - before_s, "s")
    log.close()
    return goals.exit_status()


def main() -> int:
    """Print the figures. Return 1 where one misses its goal."""
    options = read_options(__doc__, readers=1_000_000, zones=100_000)
    with migrated_databases() as (_, log_dsn), tempfile.TemporaryDirectory() as folder:
        return measure(log_dsn, options.readers, options.zones, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
