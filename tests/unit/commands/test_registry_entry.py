"""`murmurate plan --registry`: an entry of the OpenDP deployments registry whose numbers are those of the plan."""

import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from murmurate.operations.registry_entry import format_registry_entry, main_promise, write_registry_entry
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.zone import LearnedHabits
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.promise import parse_promise

COMMAND = Path(sys.executable).with_name("murmurate")
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "zone-file.md"
PROMISES = 'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
INTERVAL = EXAMPLE_ZONE_FILE.replace(PROMISES, 'promise = ["interval: 0.5"]')  # soon planned
WINDOW = EXAMPLE_ZONE_FILE.replace(PROMISES, 'promise = ["any 24 h: epsilon 1, delta 1e-6"]')
MOMENT = EXAMPLE_ZONE_FILE.replace(PROMISES, 'promise = ["any moment: 1"]')

# The form of the registry: fields of each part, and the values of those that have a list of values.
FIELDS = {
    "basic": {
        "name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region",
        "data_product_sector", "publication_date",
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        "privacy_unit", "privacy_unit_details", "number_of_privacy_units", "privacy_parameters",
        "privacy_parameters_details",
    },
    "deployment_model": {
        "model_name", "model_name_details", "trust_assumptions", "actors", "release_type", "release_type_details",
        "data_source_type", "data_source_type_details", "access_type", "access_type_details",
    },
    "implementation": {
        "preprocessing_and_hyperparameter_tuning", "mechanisms", "composition", "post_processing", "justification",
        "utility", "additional_information",
    },
    "administrative": {"evidence_sources", "status", "registry_authors", "tier"},
}  # fmt: skip
VALUES = {
    ("basic", "data_product_type"): {"Summary statistics", "Dataset"},
    ("basic", "data_product_sector"): {"Energy"},
    ("dp_variant", "variant_name"): {"Pure DP", "Approximate DP", "Custom"},
    ("deployment_model", "model_name"): {"Central"},
    ("deployment_model", "release_type"): {"Many releases"},
    ("deployment_model", "data_source_type"): {"Dynamic"},
    ("deployment_model", "access_type"): {"Non-interactive"},
    ("administrative", "status"): {"Draft"},
    ("administrative", "tier"): {3},
}


@pytest.fixture(scope="module")
def plans():
    return {name: make_plan(parse_zone(text)) for name, text in (("interval", INTERVAL), ("window", WINDOW))}


def read_entry(plan):
    return yaml.safe_load(format_registry_entry(plan))


@pytest.mark.parametrize("name", ["interval", "window"])
def test_the_entry_has_the_form_of_the_registry(plans, name):
    entry = read_entry(plans[name])
    assert set(entry) == {"url_slug", "deployment"}
    deployment = entry["deployment"]
    assert {part: set(fields) for part, fields in deployment.items()} == FIELDS
    for (part, field), values in VALUES.items():
        assert deployment[part][field] in values, field
    assert re.fullmatch(r"[a-z0-9-]+", entry["url_slug"])
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", deployment["basic"]["publication_date"])
    (curator,) = deployment["basic"]["data_curators"]
    assert set(curator) == {"data_curator_name", "data_curator_type"}
    assert curator["data_curator_type"] in {"Government", "Industry", "Nonprofit"}
    assert all(re.fullmatch(r"\w+", key) for key in deployment["administrative"]["evidence_sources"])
    authors = deployment["administrative"]["evidence_sources"]["paper"]["inproceedings"]["author"]
    assert [author.split()[-1] for author in authors.split(" and ")] == [
        "GhoddousiBoroujeni", "Fay", "Dimitrakakis", "Kamgarpour",
    ]  # fmt: skip


def test_the_numbers_are_those_of_the_plan(plans):
    interval, window = (read_entry(plans[name])["deployment"] for name in ("interval", "window"))
    assert interval["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.5}
    assert interval["dp_variant"]["variant_name"] == "Pure DP"
    assert window["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert window["dp_variant"]["variant_name"] == "Approximate DP"
    assert window["privacy_loss"]["privacy_unit"] == "Household, any 24 h"
    assert window["privacy_loss"]["number_of_privacy_units"] == 800  # the fish market is public always
    assert "fish market, at all times" in window["dp_variant"]["unprotected_quantities"]
    for plan, entry in ((plans["interval"], interval), (plans["window"], window)):
        (cost,) = plan.costs
        assert f"spends {cost.spent:.4g}" in entry["privacy_loss"]["privacy_parameters_details"]
        rms_kwh = np.sqrt(plan.noise_variance).max() / 1000
        assert f"scale {plan.scale_wh.max():,.2f} Wh, rms {rms_kwh:.2f} kWh." in entry["implementation"]["mechanisms"]
        assert plan.distribution.value in entry["implementation"]["mechanisms"].lower()


def test_the_longest_window_heads_the_entry_and_a_moment_stands_alone():
    promises = tuple(
        parse_promise(text, 96)
        for text in ("any moment: 1", "any 24 h: epsilon 1, delta 1e-6", "any 365 d: epsilon 32, delta 1e-6")
    )
    assert main_promise(promises) is promises[2]
    assert main_promise(promises[:1]) is promises[0]
    both = (promises[0], parse_promise("interval: 0.5", 96))
    assert main_promise(both) is both[1]


def test_a_window_without_delta_is_pure(plans):
    zone = replace(plans["window"].zone, promises=(parse_promise("any 6 h: epsilon 2", 96),))
    entry = read_entry(replace(plans["window"], zone=zone))["deployment"]
    assert entry["dp_variant"]["variant_name"] == "Pure DP"
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 2.0}
    assert entry["privacy_loss"]["privacy_unit"] == "Household, any 6 h"


def test_what_was_learned_from_households_is_stated(plans):
    learned = LearnedHabits(
        name="resident", bound="b", epsilon=Fraction(1, 2), households=120, confidence=0.99, proven=True
    )
    entry = read_entry(replace(plans["window"], zone=replace(plans["window"].zone, learned=(learned,))))
    text = entry["deployment"]["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "resident were learned from 120 households that agreed; each spent epsilon 1/2" in text


def test_a_promise_about_a_moment_is_no_standard_variant():
    entry = read_entry(make_plan(parse_zone(MOMENT)))["deployment"]
    assert entry["dp_variant"]["variant_name"] == "Custom"
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0}
    assert "e^epsilon" in entry["privacy_loss"]["privacy_unit_details"]
    assert "prices of 365 d is" in entry["privacy_loss"]["privacy_parameters_details"]


def test_a_file_that_was_filled_in_is_not_overwritten(plans, tmp_path):
    path = tmp_path / "harbour.yaml"
    write_registry_entry(plans["interval"], path)
    with pytest.raises(FileExistsError):
        write_registry_entry(plans["interval"], path)
    (tmp_path / "zone.toml").write_text(INTERVAL, encoding="utf-8")
    refused = run("zone.toml", "--registry", "harbour.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        "murmurate: harbour.yaml is there already: it may hold what you filled in; name another file\n"
    )
    assert not (tmp_path / "plan.json").exists()


def run(*arguments, cwd):
    return subprocess.run([COMMAND, "plan", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_command_of_the_page_writes_the_entry_of_the_plan_that_it_writes(tmp_path):
    assert "murmurate plan zone.toml --registry harbour.yaml\n" in PAGE.read_text(encoding="utf-8")
    (tmp_path / "zone.toml").write_text(INTERVAL, encoding="utf-8")
    done = run("zone.toml", "--registry", "harbour.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "harbour.yaml").read_text(encoding="utf-8")
    plan = load_plan((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert written == format_registry_entry(plan)
    count = written.count("# fill in: ")
    assert (
        f"Entry for the OpenDP deployments registry written to harbour.yaml. {count} lines say # fill in.\n"
        in done.stdout
    )
    digest = re.search(r'"digest": "([0-9a-f]{64})"', (tmp_path / "plan.json").read_text(encoding="utf-8"))[1]
    assert yaml.safe_load(written)["deployment"]["administrative"]["evidence_sources"]["plan"]["misc"]["note"] == (
        f"SHA-256 {digest}"
    )


@given(name=st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["a\nb", '"', "- a: {b}"]))
def test_a_name_of_any_characters_leaves_the_entry_whole(plans, name):
    """Texts of a zone file fill the template as they are; a character that is not printable becomes a space."""
    plan, shown = plans["interval"], "".join(c if c.isprintable() else " " for c in name)
    kinds = (replace(plan.zone.kinds[0], name=name), *plan.zone.kinds[1:])
    other = read_entry(replace(plan, zone=replace(plan.zone, kinds=kinds, currency=name, name=f"x{name}x")))
    entry = read_entry(plan)["deployment"]
    assert other["deployment"]["basic"]["name"] == f"Real-time electricity prices of x{shown}x"
    assert other["deployment"]["dp_variant"]["data_domain"] == entry["dp_variant"]["data_domain"].replace(
        "kind flat", f"kind {shown}"
    )
    assert other["deployment"]["implementation"]["utility"] == entry["implementation"]["utility"].replace("EUR", shown)
    assert {part: set(fields) for part, fields in other["deployment"].items()} == FIELDS


def test_a_value_to_fill_in_is_marked_and_texts_of_lines_stay_lines(plans):
    written = format_registry_entry(plans["interval"])
    assert 'data_curator_name: "" # fill in: who publishes the prices\n' in written
    assert "    actors: |\n      - Households, whose occupancy is protected.\n      - The curator," in written
    assert not re.search(r"[ {}]\n", written)


def test_the_entry_claims_nothing_that_a_plan_does_not_know(plans):
    """Nobody tells the program from which data a bound was chosen, and the noise hides no public household."""
    entry = read_entry(plans["window"])["deployment"]
    text = format_registry_entry(plans["window"])
    assert "without private data" not in text
    clipping = entry["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert clipping.startswith("- Readings are clipped to a bound which is public. # fill in: from which data")
    assert "while it is not public by the plan" in entry["privacy_loss"]["privacy_unit_details"]
    assert "Readings and occupancy of fish market, at all times." in entry["dp_variant"]["unprotected_quantities"]
    hidden = replace(plans["window"], zone=replace(plans["window"].zone, kinds=plans["window"].zone.private_kinds))
    assert "while it is not public" not in format_registry_entry(hidden)
