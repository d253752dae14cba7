"""The extras of `pip install`: each holds all of those that it builds on."""

import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {name: set(packages) for name, packages in PROJECT["optional-dependencies"].items()}


def test_an_extra_holds_what_it_builds_on():
    assert EXTRAS["plan"] < EXTRAS["lab"]
    assert EXTRAS["plan"] < EXTRAS["service"] <= EXTRAS["demo"]
    assert EXTRAS["test"] < EXTRAS["dev"]


def test_the_base_has_nothing_of_an_extra():
    assert not set(PROJECT["dependencies"]) & set.union(*EXTRAS.values())
