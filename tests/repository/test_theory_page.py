"""What cites docs/explanation/theory.md names a section that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
THEORY_PAGE = ROOT / "docs" / "explanation" / "theory.md"
FOLDERS = ("src", "tests", "benchmarks", "research", "tools", "docs")
CITATION = re.compile(r"theory\.md[`,]*\s+\(?sections? (\d+(?:\.\d+)?)(?: and (\d+(?:\.\d+)?))?")
ABSENT = re.compile(r"\b(?:THEOR" + r"Y|DESIG" + r"N|STYL" + r"E|UTILIT" + r"Y|KEEPER" + r"S)\b(?!_)")  # not in here


def texts():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in {".py", ".md"}]
    return [*files, ROOT / "pyproject.toml", ROOT / "CONTRIBUTING.md", ROOT / "README.md"]


def sections():
    return set(re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", THEORY_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))


def cited():
    return [
        (path, number)
        for path in texts()
        for match in CITATION.finditer(path.read_text(encoding="utf-8"))
        for number in match.groups()
        if number
    ]


def test_each_citation_names_a_section_that_exists():
    assert {"1.5", "2.2", "3.1", "4.3", "7"} <= sections()
    assert len(cited()) > 20
    assert not [(str(path), number) for path, number in cited() if number not in sections()]


def test_no_document_is_cited_that_is_not_in_the_repository():
    found = {str(path.relative_to(ROOT)): ABSENT.findall(path.read_text(encoding="utf-8")) for path in texts()}
    assert len(found) > 500
    assert {name: cited for name, cited in found.items() if cited} == {}
