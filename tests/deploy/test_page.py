"""docs/how-to/deploy-containers.md runs as written, from an empty folder to processes with the least rights.

Containers are played: what `docker compose` and `kubectl exec` run in one runs here, with the connection strings that
the page has made for it, on two servers. `python -m tests.deploy` runs the images.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.deploy.test_manifests import COMPOSE, DEPLOY, IMAGES, compose_services
from tests.support.documented_commands import commands_in, prints, run_in_shell, shown_below
from tests.support.operator_cli import DOCS, small_zone
from tests.support.ports import free_port
from tests.support.postgres_cluster import clusters
from tests.support.waiting import wait_until

METERS = "meter,zone,bound_wh,imputed_wh,id,key\n0,harbour,1000,150,home-17,\n1,harbour,1000,150,home-18,\n"
# In place of docker and kubectl. A server of the page has the name of its container: state, log.
PLAYER = r"""#!/bin/bash -e
connect() { # container: its connection strings, with the servers of this test
    for store in state log; do
        [ -f "$SECRETS/$1-$store" ] || continue
        port=${store^^}_PORT
        sed "s|@$store/murmurate|@127.0.0.1:${!port}/postgres|" "$SECRETS/$1-$store" > "$DATA.$1-$store"
        export "MURMURATE_${store^^}_FILE=$DATA.$1-$store"
    done
}
export PGHOST=127.0.0.1 PGDATABASE=postgres
case "$(basename "$0") $*" in
"docker compose run --rm -T owner "*) connect owner; cd "$DATA"; "${@:6}" ;;
"docker compose exec -T state "*) PGPORT=$STATE_PORT "${@:5}" ;;
"docker compose exec -T log "*) PGPORT=$LOG_PORT "${@:5}" ;;
"docker compose up --detach"*) ;;
"docker play "*) connect "$2"; exec murmurate serve "$DATA.toml" --only "$2" ;;
"kubectl -n murmurate exec -i murmurate-owner -- "*) connect owner; cd "$DATA"; "${@:7}" ;;
"kubectl -n murmurate create secret generic murmurate-keys --from-file=keys") cp -r keys "$DATA" ;;
"kubectl -n murmurate create secret generic "*) for each in "${@:7}"; do test -f "${each##*=}"; done ;;
"kubectl apply -k "*) test -f "$3/kustomization.yaml" ;;
"kubectl create namespace murmurate" | "kubectl -n murmurate "*" pod"[/\ ]"murmurate-owner") ;;
*) echo "not played: $(basename "$0") $*" >&2; exit 9 ;;
esac
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with what plays `docker` and `kubectl`, and an empty one for the page; two servers run."""
    for name in ("bin", "data", "page"):
        (tmp_path / name).mkdir()
    for name in ("docker", "kubectl"):
        (tmp_path / "bin" / name).write_text(PLAYER)
        (tmp_path / "bin" / name).chmod(0o755)
    variables = {"DATA": tmp_path / "data", "SECRETS": tmp_path / "page" / "secrets", "COLUMNS": "200"}
    variables["PATH"] = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    with clusters() as servers:
        for store in ("state", "log"):
            server = servers.new(store).start()
            server.execute("CREATE ROLE murmurate SUPERUSER LOGIN")
            variables[f"{store.upper()}_PORT"] = str(server.port)
            monkeypatch.delenv(f"MURMURATE_{store.upper()}", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        yield tmp_path


def play(place, sections, ports):
    """Run the commands of sections of the page and check what each prints. Yields each after it was run."""
    text = (DOCS / "how-to" / "deploy-containers.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    chosen = place / "sections.md"
    chosen.write_text("".join(parts[parts.index(section) + 1] for section in sections), encoding="utf-8")
    (place / "page" / "meters.csv").write_text(METERS, encoding="utf-8")
    for (command, _), shown in zip(commands_in(chosen.read_text()), shown_below(chosen), strict=True):
        line = command.replace("~/murmurate", str(DEPLOY.parent))
        line = line.replace("/etc/murmurate/service.toml", str(place / "data.toml"))
        line = line.replace("-k -s https://127.0.0.1", f"-s http://127.0.0.1:{ports.get('8080')}")
        done = run_in_shell(line, place / "page", PATH=os.environ["PATH"])
        assert done.returncode == 0 or (done.returncode == 1 and "murmurate status" in command), (command, done)
        assert "ERROR" not in done.stderr, (command, done)  # of psql
        assert prints(done.stdout, shown), (command, done)
        if command.endswith("plan --example > zone.toml"):  # a plan that takes no time to prove
            zone = small_zone().replace("interval_minutes = 5", "interval_minutes = 15")
            (place / "page" / "zone.toml").write_text(zone, encoding="utf-8")
        yield command


def write_settings(place):
    """The settings of compose, with folders and ports of this test. Returns the ports."""
    text = COMPOSE.with_name("service.toml").read_text(encoding="utf-8")
    text = text.replace("/var/lib/murmurate-backups", str(place / "page" / "backups"))
    ports = {port: free_port() for port in re.findall(r'"0\.0\.0\.0:(\d+)"', text)}
    for port, free in ports.items():
        text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{free}")
    (place / "data.toml").write_text(text.replace("/var/lib/murmurate", str(place / "data")), encoding="utf-8")
    return ports


@pytest.mark.curl
@pytest.mark.pg_dump
def test_the_sections_for_compose_run_and_their_processes_have_the_rights_that_they_need(place):
    ports = write_settings(place)
    sections = ("Secrets", "Compose: one machine", "What to back up")
    with ExitStack() as processes:
        for command in play(place, sections, ports):
            if command == "docker compose up --detach":
                for name in IMAGES:
                    assert compose_services()[name]["command"][2:] == ["--only", name]
                    log = processes.enter_context((place / f"{name}.log").open("wb"))
                    process = subprocess.Popen(["docker", "play", name], stderr=log)
                    processes.callback(process.wait)
                    processes.callback(process.terminate)
                for port in ("8080", "8081"):
                    address = f"http://127.0.0.1:{ports[port]}/readyz"
                    assert wait_until(lambda address=address: answers(address)), logs(place)
                assert wait_until(lambda: '"working"' in (place / "worker.log").read_text()), logs(place)
        for name, port in (("private", "9464"), ("worker", "9465"), ("public", "9466")):
            metrics = httpx.get(f"http://127.0.0.1:{ports[port]}/metrics").raise_for_status().text
            assert f'process="{name}"' in metrics
    assert "permission denied" not in logs(place)
    assert (place / "page" / "keys.tar").stat().st_size
    assert {path.name for path in (place / "page" / "backups").iterdir()} == {"state.dump", "log.dump"}
    made = {path.name for path in (place / "page" / "secrets").iterdir()}
    assert {secret for service in compose_services().values() for secret in service.get("secrets", ())} <= made


def test_the_section_for_kubernetes_runs_as_written(place):
    commands = list(play(place, ("Secrets", "Kubernetes"), {}))
    assert commands[-1] == "kubectl -n murmurate delete pod murmurate-owner"
    assert (place / "data" / "plan.json").exists()


def answers(address):
    try:
        return httpx.get(address).status_code == 200
    except httpx.TransportError:
        return False


def logs(place):
    return "".join((place / f"{name}.log").read_text() for name in IMAGES)
