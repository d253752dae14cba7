"""The picture of the architecture is the one that the code and its layers give."""

import re
from xml.etree import ElementTree as ET

import pytest
from tools import architecture_diagram as diagram


@pytest.fixture(scope="module")
def drawn():
    return diagram.draw_architecture()


@pytest.mark.slow
def test_the_picture_is_up_to_date(drawn):
    """If this fails: python -m tools.architecture_diagram."""
    assert diagram.PICTURE.read_text(encoding="utf-8") == drawn


def test_every_package_of_the_layers_is_in_the_picture(drawn):
    layers = [layer for contract in diagram.load_contracts() for layer in contract.get("layers", ())]
    packages = [diagram.short(name.strip()) for layer in layers for name in layer.split("|")]
    names = re.findall(r'<text class="name"[^>]*>(\w+)</text>', drawn)
    assert len(packages) > 30
    assert sorted(names) == sorted(packages)


def test_the_picture_is_plain_svg_with_light_and_dark_colours(drawn):
    root = ET.fromstring(drawn)  # noqa: S314  our own text
    assert root.tag.endswith("svg")
    assert "prefers-color-scheme: dark" in drawn
    assert "<image" not in drawn
    assert "<script" not in drawn


def test_an_import_that_follows_from_others_is_left_out():
    edges = {("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")}
    assert diagram.reduce_transitively(edges) == {("a", "b"), ("b", "c"), ("a", "d")}


def test_every_arrow_points_down(drawn):
    starts_and_tips = re.findall(r'class="edge" d="M[\d.]+,([\d.]+) .*? [\d.]+,([\d.]+)"', drawn)
    assert len(starts_and_tips) > 40
    assert all(float(start) < float(tip) for start, tip in starts_and_tips)
