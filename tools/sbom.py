# ruff: noqa: INP001  a script of its own
"""Write the software bill of materials: the locked requirements as a CycloneDX document (JSON).

    python -m tools.sbom --out murmurate.cdx.json

Versions and the graph of dependencies come from requirements-dev.txt, which pip-compile writes; what is needed for what
comes from pyproject.toml. Scopes: `required` by the package, `optional` for an extra, `excluded` for those that develop
it. The same files give the same bytes: there is no time in the document.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import murmurate

ROOT = Path(__file__).parents[1]
LOCK, PROJECT = ROOT / "requirements-dev.txt", ROOT / "pyproject.toml"
SPECIFICATION = "1.6"  # of CycloneDX
DEVELOPMENT_EXTRAS = frozenset({"dev", "docs"})
SERIAL_NAMESPACE = uuid.UUID(
    "7f2b7f0e-7a0c-5d5e-9a43-4f1d0c7f6f10"
)  # any fixed one: a serial number follows from the content
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s\\;]+)", flags=re.MULTILINE)
VIA = re.compile(r"^ +# (?: +|via )([A-Za-z0-9][\w.-]*)", flags=re.MULTILINE)


class LockedPackage(NamedTuple):
    """A package of the lock: its version, and the packages that require it."""

    name: str
    version: str
    required_by: frozenset[str]

    @property
    def purl(self) -> str:
        """The package URL, which tools compare with lists of vulnerabilities."""
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(text: str) -> dict[str, LockedPackage]:
    """Return the packages of a lock that pip-compile wrote, by name."""
    pins = list(PIN.finditer(text))
    ends = [pin.start() for pin in pins[1:]] + [len(text)]
    packages: dict[str, LockedPackage] = {}
    for pin, end in zip(pins, ends, strict=True):
        name = canonicalize_name(pin[1])
        parents = frozenset(canonicalize_name(parent) for parent in VIA.findall(text[pin.end() : end]))
        packages[name] = LockedPackage(name, pin[2], parents)
    return packages


def read_requirements(project: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the direct requirements of the package ("") and of each extra, by name. An extra may name other extras."""
    extras = project.get("optional-dependencies", {})
    direct = {"": project["dependencies"], **extras}
    return {extra: _direct_names(project["name"], direct, extra) for extra in direct}


def _direct_names(package: str, direct: Mapping[str, list[str]], extra: str) -> set[str]:
    names = set()
    for line in direct[extra]:
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) == package:
            names |= {name for other in requirement.extras for name in _direct_names(package, direct, other)}
        elif requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            names.add(canonicalize_name(requirement.name))
    return names


def find_needed(locked: Mapping[str, LockedPackage], direct: Iterable[str]) -> set[str]:
    """Return the packages that these need, themselves included. Raises LookupError for one that is not locked."""
    children: dict[str, set[str]] = {name: set() for name in locked}
    for package in locked.values():
        for parent in package.required_by & locked.keys():
            children[parent].add(package.name)
    needed, open_names = set[str](), set(direct)
    if missing := open_names - locked.keys():
        raise LookupError(f"not in the lock: {', '.join(sorted(missing))}")
    while open_names:
        needed |= open_names
        open_names = {child for name in open_names for child in children[name]} - needed
    return needed


def make_bom(lock_text: str, project_text: str, version: str) -> dict[str, Any]:
    """Return the CycloneDX document of a lock and a pyproject.toml, for this version of the package."""
    locked, project = read_lock(lock_text), tomllib.loads(project_text)["project"]
    direct = read_requirements(project)
    required = find_needed(locked, direct[""])
    run_time = {name for extra, names in direct.items() if extra not in DEVELOPMENT_EXTRAS for name in names}
    optional = find_needed(locked, run_time)
    own = LockedPackage(project["name"], version, frozenset())
    components = [
        _component(package) | {"scope": _scope(package.name, required, optional)} for package in sorted(locked.values())
    ]
    content: dict[str, Any] = {
        "metadata": {"component": _own_component(own, project)},
        "components": components,
        "dependencies": _dependencies(own, locked, set[str]().union(*direct.values())),
    }
    serial = uuid.uuid5(SERIAL_NAMESPACE, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": SPECIFICATION, "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return head | content


def _component(package: LockedPackage) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
    }


def _own_component(own: LockedPackage, project: Mapping[str, Any]) -> dict[str, Any]:
    more = {
        "type": "application",
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
    }
    return _component(own) | more


def _scope(name: str, required: set[str], optional: set[str]) -> str:
    if name in required:
        return "required"
    return "optional" if name in optional else "excluded"


def _dependencies(own: LockedPackage, locked: Mapping[str, LockedPackage], direct: set[str]) -> list[dict[str, Any]]:
    edges = {own.purl: sorted(locked[name].purl for name in direct)}
    for parent in sorted(locked.values()):
        edges[parent.purl] = sorted(child.purl for child in locked.values() if parent.name in child.required_by)
    return [{"ref": ref, "dependsOn": children} for ref, children in edges.items()]


def main() -> None:
    """Write the document of this repository."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the file to write, such as murmurate.cdx.json")
    out = parser.parse_args().out
    bom = make_bom(LOCK.read_text(encoding="utf-8"), PROJECT.read_text(encoding="utf-8"), murmurate.__version__)
    out.write_text(json.dumps(bom, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(bom['components'])} components written to {out}.\n")


if __name__ == "__main__":
    main()
