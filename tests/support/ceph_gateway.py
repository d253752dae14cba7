"""An object store of its own for tests: Ceph from Debian's packages, a monitor, an OSD in memory and a gateway.

It has two users with a bucket each, for readings and for a public log; neither may read the other's.
It listens on ports of this machine that were free, keeps everything in one folder, and ends by process id. The gateway,
which speaks S3, can be killed and started again; what it had acknowledged is in the OSD.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.ports import free_port
from tests.support.waiting import wait_until

PROGRAMS = {"ceph-mon": "ceph-mon", "ceph-osd": "ceph-osd", "radosgw": "radosgw", "ceph": "ceph-common"}  # and package
LANDINGS, LOGS = "landings", "logs"  # users and buckets
_SETTINGS = """
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_port}/0]
mon_initial_members = a
public_addr = 127.0.0.1
ms_bind_ipv6 = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
osd_objectstore = memstore
memstore_device_bytes = 4294967296
rgw_gc_obj_min_wait = 1
rgw_gc_processor_period = 2
run_dir = {root}
admin_socket = {root}/$name.asok
log_file = {root}/$name.log
pid_file = {root}/$name.pid
keyring = {root}/keyring
mon_data = {root}/mon
osd_data = {root}/osd
rgw_data = {root}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
[mon.a]
host = localhost
mon_addr = 127.0.0.1:{mon_port}
"""
_RIGHTS = {
    "mon.": ("mon",),
    "client.admin": ("mon", "osd", "mgr"),
    "osd.0": ("mon", "osd"),
    "client.rgw": ("mon", "osd"),
}


class CephGateway:
    """One Ceph. `environment` is what a client of the landings needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port, self._mon_port = free_port(), free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        return environment_of(self.port)

    def new_address(self, bucket: str = LANDINGS) -> str:
        """An address in which nothing is."""
        return f"s3://{bucket}/{uuid.uuid4().hex}"

    def start(self) -> Self:
        for folder in ("mon", "osd", "rgw"):
            (self.root / folder).mkdir()
        fsid = str(uuid.uuid4())
        settings = _SETTINGS.format(fsid=fsid, root=self.root, mon_port=self._mon_port, port=self.port)
        (self.root / "ceph.conf").write_text(settings, encoding="ascii")
        keyring = self.root / "keyring"
        for name, services in _RIGHTS.items():
            rights = [word for service in services for word in ("--cap", service, "allow *")]
            new = [] if keyring.exists() else ["--create-keyring"]
            self._run("ceph-authtool", *new, keyring, "--gen-key", "--name", name, *rights)
        monitors = ["--addv", "a", f"[v2:127.0.0.1:{self._mon_port}/0]"]
        self._run("monmaptool", "--create", *monitors, "--fsid", fsid, self.root / "monmap")
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", self.root / "monmap", "--keyring", keyring)
        self._start("ceph-mon", "-i", "a")
        osd = str(uuid.uuid4())
        self._run("ceph", "--connect-timeout", "120", "osd", "new", osd)
        shutil.copy(keyring, self.root / "osd")
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self._start("ceph-osd", "-i", "0")
        self._wait("the OSD", lambda: json.loads(self._run("ceph", "osd", "stat", "-f", "json"))["num_up_osds"])
        self.start_gateway()
        for user in (LANDINGS, LOGS):
            key, secret = _credentials(user)
            names = (f"--uid={user}", f"--display-name={user}", "--access-key", key, "--secret-key", secret)
            self._run("radosgw-admin", "-n", "client.rgw", "user", "create", *names)
            create_bucket(self.port, user, user)
        return self

    def start_gateway(self) -> None:
        """Start the gateway, and wait until it answers."""
        self._start("radosgw", "-n", "client.rgw")
        self._wait("the gateway", self._answers)

    def kill_gateway(self) -> None:
        """Send SIGKILL to the gateway."""
        gateway = self._processes.pop("radosgw")
        gateway.kill()
        gateway.wait()

    def stop(self) -> None:
        """End every process, the gateway first."""
        while self._processes:
            _, process = self._processes.popitem()
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{self.port}/", timeout=20):
            return True
        return False

    def _wait(self, what: str, condition: Callable[[], object]) -> None:
        def has_ended() -> bool:
            return any(process.poll() is not None for process in self._processes.values())

        if not wait_until(lambda: has_ended() or condition(), pause_s=0.1) or has_ended():
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.root.glob("*.log"))
            raise RuntimeError(f"{what} of Ceph did not start:\n{logs}")

    def _start(self, program: str, *options: str) -> None:
        command = [program, "-c", str(self.root / "ceph.conf"), *options, "-f"]
        with (self.root / f"{program}.out.log").open("ab") as log:
            self._processes[program] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root)

    def _run(self, program: str, *arguments: object) -> str:
        settings = [] if program in {"ceph-authtool", "monmaptool"} else ["-c", str(self.root / "ceph.conf")]
        command = [program, *settings, *map(str, arguments)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.root, env=environment)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")
        return done.stdout


def _credentials(user: str) -> tuple[str, str]:
    return f"key-of-{user}", f"secret-of-{user}"


def environment_of(port: int, host: str = "127.0.0.1", user: str = LANDINGS) -> dict[str, str]:
    """What a client of an S3 server has in its environment."""
    key, secret = _credentials(user)
    return {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
    }


def create_bucket(port: int, name: str, user: str = LANDINGS) -> None:
    """Create a bucket on a server that speaks S3. With its name in the endpoint, a put of the name does it."""
    from obstore.exceptions import GenericError  # noqa: PLC0415 an optional package
    from obstore.store import S3Store  # noqa: PLC0415

    server = f"http://127.0.0.1:{port}"
    key, secret = _credentials(user)
    keys = {"access_key_id": key, "secret_access_key": secret, "region": "us-east-1"}
    store = S3Store(
        name, endpoint=server, virtual_hosted_style_request=True, client_options={"allow_http": True}, **keys
    )
    try:
        store.put(name, b"", use_multipart=False)
    except GenericError as error:
        if "ETag Header missing" not in str(error):  # a new bucket has none
            raise


@contextlib.contextmanager
def ceph_gateway() -> Iterator[CephGateway]:
    """Run a Ceph during the block."""
    root = Path(tempfile.mkdtemp(prefix="ceph-"))  # short: a path of a socket has 107 characters at most
    ceph = CephGateway(root)
    try:
        yield ceph.start()
    finally:
        ceph.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def ceph() -> Iterator[CephGateway]:
    """A Ceph of its own for the whole run. What kills its gateway starts it again."""
    with ceph_gateway() as gateway:
        yield gateway


@pytest.fixture
def bucket_address(ceph: CephGateway, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address below which nothing is, with what this process and its children need to open it."""
    for name, value in ceph.environment.items():
        monkeypatch.setenv(name, value)
    return ceph.new_address()


@pytest.fixture
def bucket_log_address(ceph: CephGateway, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address for a public log, with what this process and its children need to open it and nothing else."""
    for name, value in environment_of(ceph.port, user=LOGS).items():
        monkeypatch.setenv(f"MURMURATE_LOG_{name}", value)
    return ceph.new_address(LOGS)
