"""deploy/nginx/murmurate.conf in a real nginx, in front of a real public process."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.api_servers import STEP_S, plan_of, public_process
from tests.support.databases import migrated_database
from tests.support.ports import free_port
from tests.support.postgres_stores import ShardWriter
from tests.support.waiting import wait_until

from murmurate.service.settings import ClientLimits

pytestmark = [pytest.mark.nginx, pytest.mark.slow]
CONFIGURATION = Path(__file__).parents[3] / "deploy" / "nginx" / "murmurate.conf"
FIRST, PRICED = 1_900_000, 120
FAST_S, LEAD_OF_FAST, BOUNDARIES = 3, 60, 3
KEPT = "proxy_cache murmurate_answers;"
BURST = 5
CLIENTS_ADDRESS = "set_real_ip_from 127.0.0.1; real_ip_header X-Test-Client;"  # nginx then sees this as the client's
PROXIED = ClientLimits(streams_per_address=1, forwarded_by=("127.0.0.1",))


def write_certificate(folder):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prices.example")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "murmurate.pem").write_bytes(certificate)
    (folder / "murmurate.key").write_bytes(private)


def write_configuration(folder, service, changes=()):
    """Write the file, but for places of this machine and a rate that no machine is too slow for. Returns its ports."""
    write_certificate(folder)
    ports = SimpleNamespace(http=free_port(), https=free_port(), private=free_port())
    text = CONFIGURATION.read_text(encoding="utf-8")
    places = {
        "listen 80;": f"listen 127.0.0.1:{ports.http};",
        "    listen [::]:80;\n": "",
        "listen 443 ssl;": f"listen 127.0.0.1:{ports.https} ssl; {CLIENTS_ADDRESS}",
        "    listen [::]:443 ssl;\n": "",
        "listen 8443 ssl;": f"listen 127.0.0.1:{ports.private} ssl;",
        "    listen [::]:8443 ssl;\n": "",
        "/etc/nginx/": f"{folder}/",
        "/var/cache/murmurate ": f"{folder}/cache ",
        "/var/cache/murmurate-answers": f"{folder}/answers",
        "/var/lib/murmurate-public/static": f"{folder}/static",
        "http://127.0.0.1:8080": f"http://{service}",
        "rate=50r/s": "rate=1r/m",
        "burst=500": f"burst={BURST}",
    }
    for old, new in [*places.items(), *changes]:
        assert old in text, old
        text = text.replace(old, new)
    (folder / "murmurate.conf").write_text(text, encoding="utf-8")
    scratch = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("proxy", "client_body", "fastcgi", "scgi", "uwsgi")
    )
    frame = f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
    (folder / "nginx.conf").write_text(
        f"{frame} http {{ access_log off; {scratch} include {folder}/murmurate.conf; }}", encoding="utf-8"
    )
    return ports


def command_of(folder):
    as_user = [] if (Path("/proc/self").stat().st_uid) else ["-g", "user root;"]
    return ["nginx", "-c", folder / "nginx.conf", "-e", folder / "error.log", *as_user]


@contextmanager
def proxy(folder, service, changes=()):
    """The file in a running nginx. Yields its ports."""
    ports = write_configuration(folder, service, changes)
    with subprocess.Popen(command_of(folder)) as nginx:
        try:
            assert wait_until(lambda: nginx.poll() is not None or is_open(ports.https))
            assert nginx.poll() is None, (folder / "error.log").read_text()
            yield ports
        finally:
            nginx.terminate()


def name_of(interval):
    return f"{datetime.fromtimestamp(interval * STEP_S, UTC):%Y%m%dT%H%M%SZ}.json"


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port), 60).close()
    except ConnectionRefusedError:
        return False
    return True


def client(port, address="198.51.100.1"):
    """A client whose connections seem to come from another machine."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url, headers = f"https://127.0.0.1:{port}", {"x-test-client": address}
    return httpx.Client(base_url=url, headers=headers, verify=context, timeout=60, trust_env=False)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """The public process with its static files; of the static files nginx has the documents alone."""
    folder = tmp_path_factory.mktemp("service")
    with migrated_database("log") as dsn:
        writer = ShardWriter(dsn, {"harbour": plan_of("harbour")}, first=FIRST, lead=2)
        writer.write(PRICED)
        writer.close()
        with public_process(dsn, (FIRST + PRICED) * STEP_S, limits=PROXIED, static_files=folder / "static") as (
            direct,
            state,
        ):
            assert wait_until((folder / "static" / "shards").exists)
            yield SimpleNamespace(direct=direct, address=state.settings.public, static=folder / "static")


@pytest.fixture
def folder(tmp_path, service):
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "documents").symlink_to(service.static / "documents")
    return tmp_path


def test_the_file_is_valid_and_a_misspelled_line_is_found(tmp_path):
    for changes, status in (((), 0), ([("limit_req zone", "limit_reqs zone")], 1)):
        write_configuration(tmp_path, "127.0.0.1:8080", changes)
        done = subprocess.run([*command_of(tmp_path), "-t", "-q"], capture_output=True, text=True, check=False)
        assert (done.returncode, "warn" in done.stderr) == (status, False), done.stderr


def test_what_never_changes_comes_from_a_file_or_once_from_the_service_and_the_rest_is_kept_until_it_expires(
    folder, service
):
    (shard,) = service.direct.get("/shards").json()
    tile, document = f"/tiles/{shard['shard']}/{shard['seq']}", f"/documents/{shard['table']}"
    with proxy(folder, service.address, [(f"burst={BURST}", "burst=500")]) as ports, client(ports.https) as web:
        kept = ("cache-control", "access-control-allow-origin", "x-content-type-options", "content-type")
        prices = f"/prices/{shard['shard']}/{name_of(FIRST + PRICED)}"
        for path, statuses in ((tile, ["MISS", "HIT"]), (prices, ["MISS", "HIT"]), (document, [None, None])):
            direct = service.direct.get(path)
            answers = [web.get(path) for _ in range(2)]
            assert [answer.headers.get("x-cache-status") for answer in answers] == statuses
            for answer in answers:
                assert answer.content == direct.content
                assert [answer.headers[name] for name in kept] == [direct.headers[name] for name in kept]
        for path, is_kept in (("/zones/harbour/now", True), ("/tiles/none/1", False)):
            direct, answers = service.direct.get(path), [web.get(path) for _ in range(2)]
            assert {answer.status_code for answer in answers} == {direct.status_code}
            assert {answer.headers["cache-control"] for answer in answers} == {direct.headers["cache-control"]}
            assert ("HIT" in [answer.headers.get("x-cache-status") for answer in answers]) == is_kept
        assert web.get("/metrics").status_code == 404
        moved = httpx.get(f"http://127.0.0.1:{ports.http}/zones", headers={"host": "prices.example"}, trust_env=False)
        assert (moved.status_code, moved.headers["location"]) == (301, "https://prices.example/zones")
        with client(ports.private) as outside:
            assert outside.get("/operator").status_code == 403


@pytest.fixture
def fast_service(log_dsn):
    """A service whose intervals take three seconds, and the end of its current interval at a moment."""
    writer = ShardWriter(log_dsn, {"harbour": plan_of("harbour")}, first=FIRST, lead=LEAD_OF_FAST)
    writer.write(PRICED)
    writer.close()
    with public_process(log_dsn, (FIRST + PRICED) * STEP_S, speed=STEP_S / FAST_S, limits=PROXIED) as (direct, state):
        yield SimpleNamespace(direct=direct, address=state.settings.public, clock=state.clock)


@pytest.mark.parametrize(
    ("changes", "is_right"),
    [
        ((), True),
        (
            [("proxy_cache murmurate_answers;", f"{KEPT} proxy_ignore_headers Expires; proxy_cache_valid 200 2s;")],
            False,
        ),
    ],
    ids=["as it is", "kept for two seconds"],
)
def test_nginx_never_sends_the_price_of_an_interval_that_is_over(tmp_path, fast_service, changes, is_right):
    """Several clients ask all the time, over some ends of intervals."""
    clock, old, kept, ends = fast_service.clock, [], [], set()
    (tmp_path / "static").mkdir()

    def ask_all_the_time(port):
        with client(port) as web:
            while len(ends) <= BOUNDARIES:
                asked_s = time.time()
                answer = web.get("/zones/harbour/now")
                assert answer.status_code == 200, answer.text
                end_s = datetime.fromisoformat(answer.json()["end"]).timestamp()
                kept.append(answer.headers["x-cache-status"])
                old.extend([end_s] if end_s <= clock.simulated_at(asked_s) else [])
                ends.add(end_s)

    unlimited = [(f"burst={BURST}", "burst=9999999"), ("murmurate_clients 100", "murmurate_clients 1000")]
    with proxy(tmp_path, fast_service.address, [*changes, *unlimited]) as ports, ThreadPoolExecutor(4) as pool:
        list(pool.map(ask_all_the_time, [ports.https] * 4))
    assert "HIT" in kept
    assert (old == []) == is_right


def test_many_that_ask_for_the_prices_of_a_shard_at_once_are_one_request_to_the_service(folder, service):
    (shard,) = service.direct.get("/shards").json()
    patient = ("proxy_cache_lock on;", "proxy_cache_lock on; proxy_cache_lock_timeout 5m; proxy_cache_lock_age 5m;")
    changes = [(f"burst={BURST}", "burst=500"), patient]
    with proxy(folder, service.address, changes) as ports, ThreadPoolExecutor(20) as pool:

        def status_of(path):
            with client(ports.https) as web:
                return web.get(path).headers["x-cache-status"]

        for interval in (FIRST + PRICED, FIRST + PRICED + 9):  # the second is not decided
            path = f"/prices/{shard['shard']}/{name_of(interval)}"
            assert sorted(pool.map(status_of, [path] * 20)).count("MISS") == 1


def test_a_client_that_asks_too_often_is_limited_and_others_are_not(folder, service):
    with (
        proxy(folder, service.address) as ports,
        client(ports.https) as web,
        client(ports.https, "198.51.100.2") as other,
    ):
        statuses = [web.get("/zones").status_code for _ in range(2 * BURST + 2)]
        assert statuses == [200] * (BURST + 1) + [429] * (BURST + 1)
        assert other.get("/zones").status_code == 200


@pytest.mark.parametrize(
    ("changes", "forged"),
    [((), 429), ([("X-Forwarded-For $remote_addr", "X-Forwarded-For $http_x_forwarded_for")], 200)],
    ids=["as it is", "with the client's own header"],
)
def test_streams_count_for_the_address_that_nginx_sees_whatever_a_client_writes(folder, service, changes, forged):
    """One stream an address. The planted bug passes the header on: then each forged address has a stream of its own."""
    stream, header = "/zones/harbour/stream", "x-forwarded-for"
    with (
        proxy(folder, service.address, [*changes, (f"burst={BURST}", "burst=500")]) as ports,
        client(ports.https, "198.51.100.2") as web,
        client(ports.https, "198.51.100.3") as other,
        web.stream("GET", stream, headers={header: "192.0.2.1"}) as first,
        web.stream("GET", stream, headers={header: "192.0.2.2"}) as second,
        other.stream("GET", stream, headers={header: "192.0.2.3"}) as third,
    ):
        assert [first.status_code, second.status_code, third.status_code] == [200, forged, 200]
