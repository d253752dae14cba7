"""Build both images without a registry, look into them, and play a day through them: python -m tests.deploy

Needs root, buildah, podman, crun and mmdebstrap (Debian), a PostgreSQL server and an MQTT broker on this machine. The
base is a Debian that mmdebstrap makes; the cache of CI keeps it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import httpx
from benchmarks.goals import Goals

from tests.e2e.conftest import DAY_S, INTERVALS, SPEED, published_rows, zone_lines
from tests.e2e.harbour import LEAD, SETTINGS, STEP_S, demand_by_interval, harbour_operator
from tests.e2e.meter_feed import SIGNERS, Feed
from tests.support.running_service import PARTS, RunningService, ServiceOperator

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("MURMURATE_CI_CACHE", Path.home() / ".cache" / "murmurate-ci"))
WHOLE, PUBLIC, BASE = "localhost/murmurate", "localhost/murmurate-public", "localhost/murmurate-base"
UID = 10_001
VARIABLES = ("MURMURATE_STATE", "MURMURATE_LOG", "MURMURATE_KEYS")
MAX_PUBLIC_MB = 250
PACKAGES = "ca-certificates,python3-minimal,python3-venv,libpython3-stdlib,tzdata,libstdc++6,libgcc-s1"
LEFT_OUT = ("path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright")
LEFT_OUT += ("path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*")
# The last line is how every host runs it. The two before are for machines with the first version of cgroups, and for
# those that may not raise a limit.
PODMAN = (
    *("podman", "run", "--rm", "--network=host", "--runtime=crun"),
    *("--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"),
    *("--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp", "--cap-drop=all", "--security-opt=no-new-privileges"),
)
SECOND_CGROUPS = 'umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"'
CONFINEMENT = """
test "$(id -u):$(id -g)" = 10001:10001
grep -q '^CapEff:.0000000000000000$' /proc/self/status
grep -q '^CapBnd:.0000000000000000$' /proc/self/status
grep -q '^NoNewPrivs:.1$' /proc/self/status
touch /tmp/new
for folder in / /etc /opt/murmurate /var/lib/murmurate; do if touch "$folder/new" 2>/dev/null; then exit 1; fi; done
"""
LICENSES = """
from importlib.metadata import distributions
found = {each.name: [file for file in each.files if "licen" in str(file).lower()] for each in distributions()}
assert {"murmurate", "psycopg", "psycopg-binary", "psycopg-pool"} <= found.keys(), found
for name, files in found.items():
    assert files, name
    if name.startswith("psycopg"):
        assert any("LESSER GENERAL PUBLIC LICENSE" in file.read_text().upper() for file in files), name
"""


def run(*command: str) -> str:
    """What a command prints. If it fails, the end of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def build_base(work: Path) -> None:
    """A Debian with Python and the certificates of this machine, which may have its own."""
    archive = CACHE / "trixie-python.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        options = [f"--dpkgopt={option}" for option in LEFT_OUT]
        made = work / archive.name
        run("mmdebstrap", "--variant=essential", f"--include={PACKAGES}", *options, "trixie", str(made))
        shutil.move(made, archive)
    container = run("buildah", "from", "scratch").strip()
    run("buildah", "add", "--quiet", container, str(archive), "/")
    run("buildah", "copy", "--quiet", container, "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/")
    run("buildah", "commit", "--quiet", "--rm", container, BASE)


def build_images(work: Path) -> None:
    shutil.copytree(ROOT / "deploy" / "image", work / "deploy" / "image")
    wheel = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(work / "dist"), str(ROOT))
    run(sys.executable, "-m", "pip", *wheel)
    options = ("--layers", "--format=oci", f"--build-arg=BASE={BASE}", f"--file={work}/deploy/image/Containerfile")
    for target, tag in (("whole", WHOLE), ("public", PUBLIC)):
        run("buildah", "bud", *options, f"--target={target}", f"--tag={tag}", str(work))


def size_mb(tag: str) -> float:
    (image,) = json.loads(run("podman", "image", "inspect", tag))
    return image["Size"] / 1e6


def look_into(tag: str) -> None:
    """End the program unless the image runs confined and carries the licence of each of its packages."""
    run(*PODMAN, "--entrypoint=sh", tag, "-euc", CONFINEMENT)
    run(*PODMAN, "--entrypoint=python3", tag, "-c", LICENSES)


def start_in_container(operator: ServiceOperator, part: str) -> RunningService:
    """A process of the service. It can write to the landing and /tmp; the public one sees its settings alone."""
    service = operator.add_service(SETTINGS, (part,))
    landing = operator.folder / "landing"
    volumes = [f"--volume={service.settings}:{service.settings}:ro"]
    if part != "public":
        volumes = [f"--volume={operator.folder}:{operator.folder}:ro", f"--volume={landing}:{landing}"]
    variables = ["--env=MURMURATE_LOG", *([] if part == "public" else ["--env=MURMURATE_STATE"])]
    service.program = (*PODMAN, *volumes, *variables, PUBLIC if part == "public" else WHOLE)
    return service.start()


def play_day(folder: Path, goals: Goals) -> None:
    """A day of readings into the private process, until the public one has each price in a log that verifies."""
    os.chown(folder, UID, UID)
    shared = (f"--volume={folder}:{folder}", f"--workdir={folder}", *(f"--env={name}" for name in VARIABLES))
    command = shlex.join((*PODMAN, *shared, WHOLE))
    os.environ["BASH_FUNC_murmurate%%"] = f'() {{ {command} "$@"; }}'  # noqa: SIM112  a function of bash
    keys = {home: signer.public_key for home, signer in SIGNERS.items()}
    with harbour_operator(folder, speed=SPEED, keys=keys, first_s=DAY_S - LEAD * STEP_S, in_s=120.0) as operator:
        operator.mqtt = "[mqtt]"
        services = [start_in_container(operator, part) for part in PARTS]
        private, _, public = services
        for service in (private, public):
            service.wait_for(service.is_ready)
        # A broker keeps nothing for a client that has never been there: the first points of registers would be lost.
        login = ("ops", operator.secrets["ops"])
        private.wait_for(lambda: private.metrics(auth=login)["murmurate_mqtt_connected",])
        with closing(Feed(operator, private)) as feed:  # its client of the broker may still have messages at the end
            for number in range(INTERVALS):
                feed.play(number)
            public.wait_for(lambda: httpx.get(public.url("/zones/harbour/days/2026-11-14.json")).status_code == 200)
        measured = [row.interval for row in published_rows(public) if row.kind == "measured"]
        counted = demand_by_interval(operator)
        other = {at: (sent, counted.get(at)) for at, sent in feed.expected.items() if counted.get(at) != sent}
        if other:  # the cause, as far as the processes know it
            logged = [line for service in services for line in service.log.read_text().splitlines(keepends=True)]
            sys.stderr.writelines(line for line in logged if '"level": "info"' not in line)
            sys.stderr.write(f"{private.metrics(auth=login)}\n")
        goals.check("intervals whose demand is not what was sent", str(other or 0), held=not other)
        goals.print_figure(
            "measured prices in the public image", len(set(measured) & set(feed.expected)), at_least=INTERVALS
        )
        key = zone_lines(public)[0]["tile"]["key"]
        shown = operator.run(f"murmurate log verify {public.url('/zones/harbour/log.jsonl')} --key {key}")
        goals.check("the log of the public image", "verifies", held="Everything holds." in shown)
        statuses = [service.stop() for service in services]
        goals.check("exit statuses after SIGTERM", str(statuses), held=statuses == [0, 0, 0])


def main() -> int:
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists() and "MURMURATE_SECOND_CGROUPS" not in os.environ:
        os.environ["MURMURATE_SECOND_CGROUPS"] = "mounted"
        command = (sys.executable, "-m", "tests.deploy", *sys.argv[1:])
        os.execvp("unshare", ("unshare", "-m", "bash", "-c", SECOND_CGROUPS, "bash", *command))  # noqa: S606
    goals = Goals()
    with tempfile.TemporaryDirectory() as made:
        work, begun = Path(made), time.monotonic()
        work.chmod(0o755)
        storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{work}/images"\nrunroot = "{work}/run"\n'
        (work / "storage.conf").write_text(storage)  # what this program leaves elsewhere would stay
        os.environ |= {"BUILDAH_ISOLATION": "chroot", "CONTAINERS_STORAGE_CONF": str(work / "storage.conf")}
        build_base(work)
        build_images(work)
        goals.print_figure("both images built", time.monotonic() - begun, "s")
        goals.print_figure("whole image", size_mb(WHOLE), "MB")
        goals.print_figure("public image", size_mb(PUBLIC), "MB", at_most=MAX_PUBLIC_MB)
        for tag in (WHOLE, PUBLIC):
            look_into(tag)
        plan = "cd /tmp && murmurate plan --example > zone.toml && murmurate plan zone.toml"
        goals.check(
            "murmurate plan in the image", "runs", held="epsilon" in run(*PODMAN, "--entrypoint=sh", WHOLE, "-c", plan)
        )
        (work / "service").mkdir()
        play_day(work / "service", goals)
    return goals.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
