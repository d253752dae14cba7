"""What describes and makes a release: citation, changelog, forms for issues, the workflow that publishes."""

import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

import murmurate
from tests.repository.repository_files import FILES, ROOT, read

GITHUB = ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")

# Citation File Format 1.2.0.
CITATION_KEYS = {
    "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords",
    "license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact",
    "repository-code", "title", "type", "url", "version",
}  # fmt: skip
REQUIRED_CITATION_KEYS = {"authors", "cff-version", "message", "title"}
REQUIRED_REFERENCE_KEYS = {"authors", "title", "type"}

# GitHub's forms for issues.
INPUTS = {"checkboxes", "dropdown", "input", "textarea"}


def read_yaml(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def citation():
    return read_yaml(ROOT / "CITATION.cff")


def test_the_citation_has_the_keys_of_its_format(citation):
    assert set(citation) >= REQUIRED_CITATION_KEYS
    assert set(citation) <= CITATION_KEYS
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    for author in citation["authors"]:
        assert set(author) == {"name"} or {"family-names", "given-names"} <= set(author)
    for reference in citation["references"]:
        assert set(reference) >= REQUIRED_REFERENCE_KEYS
        assert re.fullmatch("[A-Z]{2}", reference["conference"]["country"])
        assert {each["type"] for each in reference["identifiers"]} <= {"doi", "other", "swh", "url"}


def test_the_citation_is_of_this_version_and_says_what_the_package_says(citation):
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert citation["version"] == murmurate.__version__
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]


def test_the_citation_has_the_date_of_the_changelog_once_it_is_released(citation):
    heading = rf"^## {re.escape(murmurate.__version__)}, (\d{{4}}-\d\d-\d\d)$"
    released = re.findall(heading, read("CHANGELOG.md"), flags=re.MULTILINE)
    assert [str(day) for day in [citation.get("date-released")] if day] == released


def test_the_paper_is_cited_with_its_authors(citation):
    (paper,) = citation["references"]
    entry = read_yaml(ROOT / "src" / "murmurate" / "operations" / "registry_entry.yaml.template")
    listed = entry["deployment"]["administrative"]["evidence_sources"]["paper"]["inproceedings"]
    authors = " and ".join(f"{author['given-names']} {author['family-names']}" for author in paper["authors"])
    assert authors == "Mahrokh GhoddousiBoroujeni and Dominik Fay and Christos Dimitrakakis and Maryam Kamgarpour"
    assert (authors, paper["title"]) == (listed["author"], listed["title"])
    assert (paper["year"], f"{paper['start']}-{paper['end']}") == (listed["year"], listed["pages"])


def draft_section(folder):
    """The section that towncrier makes of the fragments in a folder, or its error."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9", "--date", "2026-12-01"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_fragment_of_the_changelog_has_a_text_and_is_in_the_next_section():
    done = draft_section(ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## 9, 2026-12-01\n")
    for path in (ROOT / "changelog.d").glob("+*"):
        text = path.read_text(encoding="utf-8").strip()
        assert text, path.name
        assert text.splitlines()[0] in done.stdout
    for words in ("<!-- towncrier release notes start -->", "\n# Changes\n"):  # one place for new sections
        assert ("\n" + read("CHANGELOG.md")).count(words) == 1


def test_a_fragment_of_an_unknown_category_is_an_error(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "+prices.improved.md").write_text("Better.\n", encoding="utf-8")
    done = draft_section(tmp_path)
    assert done.returncode == 1
    assert "+prices.improved.md" in done.stderr


def test_there_is_a_form_for_a_bug_a_privacy_concern_and_a_question():
    assert [path.stem for path in FORMS] == ["bug", "privacy", "question"]
    assert read_yaml(GITHUB / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": False}


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_the_shape_that_github_reads(path):
    form = read_yaml(path)
    assert set(form) == {"name", "description", "labels", "body"}
    assert all(isinstance(label, str) for label in form["labels"])
    inputs = [part for part in form["body"] if part["type"] != "markdown"]
    for part in inputs:
        assert part["type"] in INPUTS
        assert set(part) <= {"type", "id", "attributes", "validations"}
        assert part["attributes"]["label"]
        if part["type"] in {"checkboxes", "dropdown"}:
            assert part["attributes"]["options"]
    assert all(part["attributes"]["value"] for part in form["body"] if part["type"] == "markdown")
    assert len({part["id"] for part in inputs}) == len(inputs)
    assert any(part.get("validations", {}).get("required") for part in inputs)


@pytest.mark.parametrize("name", ["bug", "privacy"])
def test_a_broken_promise_is_sent_to_the_security_page_before_anything_is_asked(name):
    first = read_yaml(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")["body"][0]
    assert first["type"] == "markdown"
    assert "`SECURITY.md`" in first["attributes"]["value"]
    assert "privately" in first["attributes"]["value"]
    assert "**Report** it privately" in read("SECURITY.md")


@pytest.fixture(scope="module")
def workflow():
    return read_yaml(GITHUB / "workflows" / "release.yml")


def test_only_a_tag_of_a_version_publishes(workflow):
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true


def test_no_job_has_more_rights_than_it_needs(workflow):
    assert workflow["permissions"] == {}
    assert {name: job["permissions"] for name, job in workflow["jobs"].items()} == {
        "build": {"contents": "read"},
        "extras": {"contents": "read"},
        "image": {"contents": "read", "packages": "write", "id-token": "write"},
        "publish": {"id-token": "write"},
        "announce": {"contents": "write"},
    }


def test_the_job_that_may_publish_runs_nothing_of_the_repository(workflow):
    publish = workflow["jobs"]["publish"]
    assert publish["environment"] == "pypi"
    assert publish["needs"] == ["build", "extras"]
    assert all("run" not in step for step in publish["steps"])
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]


def test_the_build_is_checked_before_it_is_published_and_holds_no_secret(workflow):
    commands = "\n".join(step.get("run", "") for step in workflow["jobs"]["build"]["steps"])
    order = [
        "CHANGELOG.md > notes.md",
        "-m build",
        "sha256sum --check --strict",
        "check-wheel-contents dist/*.whl",
        "twine check --strict dist/*",
        'murmurate" --help',
        "cyclonedx-py environment --output-reproducible",
        "murmurate.cdx.json > licences.tsv",
    ]
    places = [commands.index(words) for words in order]
    assert places == sorted(places)
    assert "secrets." not in read(".github/workflows/release.yml")
    assert {f"{name.replace('.', '/')}.py" for name in re.findall(r"python -m (tools\.\w+)", commands)} <= set(FILES)


UNPINNED_ACTION = re.compile(r"^(?!.*uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+(?:$|,)).*\buses:.*$", re.MULTILINE)


@pytest.mark.parametrize("path", sorted((GITHUB / "workflows").iterdir()), ids=lambda path: path.name)
def test_each_action_is_pinned_by_the_digest_of_its_commit_and_names_its_version(path):
    """A tag can be moved to another commit, a digest cannot."""
    text = path.read_text(encoding="utf-8")
    assert UNPINNED_ACTION.findall(text) == []
    (pinned, *_) = re.findall(r"uses: \S+@[0-9a-f]{40}", text)
    for planted in ("uses: actions/checkout@v4", pinned, f"{pinned[:-1]}  # v1.2.3", f"{pinned}  # main"):
        assert len(UNPINNED_ACTION.findall(f"{text}      - {planted}\n")) == 1


def test_every_extra_is_tried_on_every_python_that_is_named(workflow):
    project = tomllib.loads(read("pyproject.toml"))["project"]
    matrix = workflow["jobs"]["extras"]["strategy"]["matrix"]
    assert set(matrix["extra"]) == {each["extra"] for each in matrix["include"]}
    assert set(matrix["extra"]) == set(project["optional-dependencies"]) - {"test", "docs", "dev"}
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert matrix["python"] == named
