"""`python -m tools.sbom` lists every locked package, in the form of CycloneDX, the same each time."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.sbom import LOCK, PROJECT, find_needed, make_bom, read_lock, read_requirements

import murmurate

ROOT = Path(__file__).parents[2]
TINY_LOCK = """\
# by pip-compile
alpha==1.0 \\
    --hash=sha256:00
    # via murmurate (pyproject.toml)
Beta_Two==2.0.post1 ; python_version < "4" \\
    --hash=sha256:01 \\
    --hash=sha256:02
    # via
    #   alpha
    #   gamma
gamma==3 \\
    --hash=sha256:03
    # via murmurate (pyproject.toml)
tool==4
    # via murmurate (pyproject.toml)
"""
TINY_PROJECT = """\
[project]
name = "murmurate"
description = "d"
license = "Apache-2.0"
dependencies = ["alpha>=1"]
[project.optional-dependencies]
service = ["gamma[fast]>=2", "windows-only; sys_platform == 'win32'"]
all = ["murmurate[service]"]
dev = ["tool"]
"""


@pytest.fixture(scope="module")
def bom():
    return make_bom(LOCK.read_text(encoding="utf-8"), PROJECT.read_text(encoding="utf-8"), murmurate.__version__)


def test_the_document_has_the_members_that_cyclonedx_asks_for(bom):
    assert list(bom) == [
        "bomFormat",
        "specVersion",
        "serialNumber",
        "version",
        "metadata",
        "components",
        "dependencies",
    ]
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", bom["serialNumber"]
    )
    assert bom["metadata"]["component"]["purl"] == f"pkg:pypi/murmurate@{murmurate.__version__}"
    for component in bom["components"]:
        assert set(component) == {"type", "bom-ref", "name", "version", "purl", "scope"}
        assert (component["type"], component["bom-ref"]) == ("library", component["purl"])
        assert component["scope"] in {"required", "optional", "excluded"}


def test_every_locked_package_is_listed_once_with_its_version_and_purl(bom):
    pins = re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", LOCK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(pins) > 20
    found = [(component["name"], component["version"], component["purl"]) for component in bom["components"]]
    names = [(canonicalize_name(name), version) for name, version in pins]
    assert found == sorted((name, version, f"pkg:pypi/{name}@{version}") for name, version in names)


def test_every_dependency_is_a_component_and_every_component_has_its_dependencies(bom):
    references = [bom["metadata"]["component"]["bom-ref"], *(component["bom-ref"] for component in bom["components"])]
    assert len(set(references)) == len(references)
    assert [each["ref"] for each in bom["dependencies"]] == references
    assert {child for each in bom["dependencies"] for child in each["dependsOn"]} == set(references[1:])


def test_what_the_package_requires_is_required(bom):
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    scopes = {component["name"]: component["scope"] for component in bom["components"]}
    assert {scopes[Requirement(line).name] for line in project["dependencies"]} == {"required"}
    assert (scopes["paho-mqtt"], scopes["pytest"], scopes["ruff"]) == ("optional", "excluded", "excluded")


def test_there_is_no_address_and_no_path_in_it(bom):
    text = json.dumps(bom)
    assert "://" not in text
    assert str(ROOT) not in text


def test_a_lock_is_a_graph():
    locked = read_lock(TINY_LOCK)
    assert [package.purl for package in locked.values()] == [
        "pkg:pypi/alpha@1.0",
        "pkg:pypi/beta-two@2.0.post1",
        "pkg:pypi/gamma@3",
        "pkg:pypi/tool@4",
    ]
    assert locked["beta-two"].required_by == {"alpha", "gamma"}
    assert find_needed(locked, {"alpha"}) == {"alpha", "beta-two"}


def test_an_extra_may_name_another_and_a_requirement_of_another_system_is_left_out():
    direct = read_requirements(tomllib.loads(TINY_PROJECT)["project"])
    assert direct == {"": {"alpha"}, "service": {"gamma"}, "all": {"gamma"}, "dev": {"tool"}}
    scopes = [component["scope"] for component in make_bom(TINY_LOCK, TINY_PROJECT, "1")["components"]]
    assert scopes == ["required", "required", "optional", "excluded"]


def test_a_requirement_that_is_not_locked_is_named():
    with pytest.raises(LookupError, match="not in the lock: delta"):
        make_bom(TINY_LOCK, TINY_PROJECT.replace('"alpha>=1"', '"alpha>=1", "delta"'), "1")


def test_the_command_writes_the_same_bytes_twice_and_another_serial_number_for_another_lock(tmp_path, bom):
    for name in ("a.json", "b.json"):
        command = [sys.executable, "-m", "tools.sbom", "--out", tmp_path / name]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == bom
    other = make_bom(TINY_LOCK.replace("gamma==3", "gamma==4"), TINY_PROJECT, "1")
    assert other["serialNumber"] != make_bom(TINY_LOCK, TINY_PROJECT, "1")["serialNumber"]
