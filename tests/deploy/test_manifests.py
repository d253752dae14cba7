"""What is in `deploy/`: manifests that their tools accept, and processes that can do no more than they need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import cache
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml

from murmurate.service.settings import load_settings
from murmurate.service.watchdog import report_progress
from tests.e2e.interop_clients import environment

DEPLOY = Path(__file__).parents[2] / "deploy"
LOCK = Path(__file__).with_name("requirements.txt")
COMPOSE = DEPLOY / "compose" / "compose.yaml"
IMAGES = {"private": "murmurate", "worker": "murmurate", "public": "murmurate-public"}
OVERLAYS = ("overlays/small", "overlays/large", "owner")


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    """Run a validator, which lies in an environment of its own. Returns its exit status and what it prints."""
    cache = tmp_path_factory.getbasetemp().parent
    found = environment("MURMURATE_DEPLOY_TOOLS", str(LOCK), Path(sys.executable), cache)
    assert found.python is not None, found.why

    def run(name, *words):
        command = [str(found.python.with_name(name)), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


@cache
def kustomize(folder):
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_kind(overlay, *kinds):
    documents = yaml.safe_load_all(kustomize(DEPLOY / "kubernetes" / overlay))
    return {each["metadata"]["name"]: each for each in documents if each["kind"] in kinds}


def compose_services():
    return yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]


@pytest.mark.kubectl
@pytest.mark.deploy_tools
@pytest.mark.slow
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_accepts_an_overlay_and_refuses_a_misspelling(tool, tmp_path, overlay):
    (tmp_path / "right.yaml").write_text(kustomize(DEPLOY / "kubernetes" / overlay), encoding="utf-8")
    status, shown = tool("kubernetes-validate", "--strict", tmp_path / "right.yaml")
    assert status == 0, shown
    shutil.copytree(DEPLOY / "kubernetes", tmp_path / "kubernetes")
    for file in (tmp_path / "kubernetes").rglob("*.yaml"):
        file.write_text(file.read_text().replace("readOnlyRootFilesystem", "readOnlyRootFileSystem"))
    (tmp_path / "wrong.yaml").write_text(kustomize(tmp_path / "kubernetes" / overlay), encoding="utf-8")
    status, shown = tool("kubernetes-validate", "--strict", tmp_path / "wrong.yaml")
    assert status == 1
    assert "readOnlyRootFileSystem" in shown


@pytest.mark.deploy_tools
@pytest.mark.slow
def test_compose_accepts_the_file_and_refuses_a_misspelling(tool, tmp_path):
    status, shown = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    assert status == 0, shown
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text(encoding="utf-8").replace("cap_drop", "cap_dropp"), encoding="utf-8")
    status, shown = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", wrong)
    assert status == 1
    assert "cap_dropp" in shown


@pytest.mark.deploy_tools
@pytest.mark.slow
def test_hadolint_accepts_the_containerfile_and_refuses_a_shell_that_expands_wrongly(tool, tmp_path):
    path = DEPLOY / "image" / "Containerfile"
    assert tool("hadolint", path) == (0, "")
    wrong = tmp_path / "Containerfile"
    wrong.write_text(path.read_text() + 'RUN pip install "$wheel[service]"\n')
    assert tool("hadolint", wrong)[0] == 1


@pytest.mark.kubectl
@pytest.mark.slow
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_pod_is_confined(overlay):
    found = of_kind(overlay, "Deployment", "Pod")
    assert found
    for each in found.values():
        pod = each["spec"]["template"]["spec"] if each["kind"] == "Deployment" else each["spec"]
        assert pod["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001}.items()
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert writable <= {"/tmp", "/var/lib/murmurate"}  # noqa: S108  of a container
        assert ("/var/lib/murmurate" in writable) == ("public" not in each["metadata"]["name"])


def test_each_container_of_compose_is_confined():
    for name, service in compose_services().items():
        assert service["security_opt"] == ["no-new-privileges:true"]
        if name in {"state", "log"}:  # their images begin as root
            continue
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        if name in {"owner", *IMAGES}:
            assert service["user"] == "10001:10001"
            data = [volume for volume in service["volumes"] if volume.startswith("data:")]
            assert bool(data) == (name != "public")


@pytest.mark.kubectl
@pytest.mark.slow
def test_a_process_sees_its_own_secrets_alone():
    services = compose_services()
    assert services["public"]["secrets"] == ["public-log"]
    assert "state" not in services["public"]["networks"]
    assert [name for name, each in services.items() if "keys" in str(each.get("volumes"))] == ["worker", "owner"]
    for name in IMAGES:
        assert all(secret.startswith(f"{name}-") for secret in services[name]["secrets"])
    pods = {name: each["spec"]["template"]["spec"] for name, each in of_kind(OVERLAYS[1], "Deployment").items()}
    for name in IMAGES:
        secrets = {
            volume["secret"]["secretName"] for volume in pods[f"murmurate-{name}"]["volumes"] if "secret" in volume
        }
        assert secrets == {f"murmurate-{name}", *({"murmurate-keys"} if name == "worker" else ())}


@pytest.mark.kubectl
@pytest.mark.slow
def test_ports_networks_and_images_of_the_manifests_are_those_of_the_settings():
    services = compose_services()
    settings = load_settings(COMPOSE.with_name("service.toml"))
    (front,) = yaml.safe_load(COMPOSE.read_text())["networks"]["front"]["ipam"]["config"]
    assert [ip_network(each) for each in settings.limits.forwarded_by] == [ip_network(front["subnet"])]
    jobs = yaml.safe_load(COMPOSE.with_name("prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    ports = {name: address.rpartition(":")[2] for name, address in settings.metrics.items()}
    assert targets == {f"murmurate-{name}": [f"{name}:{ports[name]}"] for name in IMAGES}
    proxy = COMPOSE.with_name("nginx.conf").read_text()
    for name, (_, port) in (("public", settings.public_address), ("private", settings.private_address)):
        assert f"http://{name}:{port};" in proxy
    settings = load_settings(DEPLOY / "kubernetes" / "base" / "service.toml")
    clients = {"public": settings.public_address[1], "private": settings.private_address[1]}
    for name, each in of_kind(OVERLAYS[0], "Deployment").items():
        part = name.removeprefix("murmurate-")
        (container,) = each["spec"]["template"]["spec"]["containers"]
        listens = {port["name"]: port["containerPort"] for port in container["ports"]}
        wanted = {"metrics": settings.metrics_addresses[part][1]}
        assert listens == wanted | ({"http": clients[part]} if part in clients else {})
        assert container["args"][-1] == services[part]["command"][-1] == part
        assert container["image"].partition(":")[0] == IMAGES[part]
        assert IMAGES[part] in services[part]["image"]


@pytest.mark.kubectl
@pytest.mark.slow
def test_a_drain_leaves_a_process_of_each_kind_and_no_budget_keeps_a_node_from_being_drained():
    assert of_kind("overlays/small", "PodDisruptionBudget") == {}
    deployments, budgets = (of_kind("overlays/large", kind) for kind in ("Deployment", "PodDisruptionBudget"))
    assert budgets.keys() == deployments.keys()
    for name, each in deployments.items():
        assert each["spec"]["replicas"] > 1
        assert budgets[name]["spec"] == {"maxUnavailable": 1, "selector": each["spec"]["selector"]}


@pytest.mark.kubectl
@pytest.mark.slow
def test_the_probe_of_the_worker_finds_one_that_stands_still(tmp_path, monkeypatch):
    (container,) = of_kind("overlays/small", "Deployment")["murmurate-worker"]["spec"]["template"]["spec"]["containers"]
    (variable,) = [each["value"] for each in container["env"] if each["name"] == "MURMURATE_PROGRESS_FILE"]
    progress = tmp_path / "progress"
    monkeypatch.setenv("MURMURATE_PROGRESS_FILE", str(progress))

    def is_alive(probe):
        command = [word.replace(variable, str(progress)) for word in container[probe]["exec"]["command"]]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert not is_alive("startupProbe")
    report_progress()
    assert is_alive("startupProbe")
    assert is_alive("livenessProbe")
    long_ago_s = time.time() - 120
    os.utime(progress, (long_ago_s, long_ago_s))
    assert not is_alive("livenessProbe")
    report_progress(600)
    assert progress.stat().st_mtime > time.time() + 500
