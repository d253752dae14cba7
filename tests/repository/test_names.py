"""Names that an engineer of the field would guess: counted, so that a private language cannot grow again."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "murmurate"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(PACKAGE.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

# What the field calls each of these is in docs/glossary.md.
METAPHORS = (
    r"roads?",
    r"doors?",
    r"boards?",
    r"desks?",
    r"wish(es)?",
    r"offices?",
    r"slips?",
    r"rosters?",
    r"aside",
    r"astray",
    r"strangers?",
    r"gather(s|ed|ing)?",
    r"forget(s|ting)?|forgotten",
    r"mend(s|ing)?",
    r"hand_?overs?|hand(s|ed)? over",
    r"shel(f|ves)",
    r"rehearsals?",
    r"whoever|somebody|nobody",
    r"hang(s)? up|hung up",
    r"nurser(y|ies)",
    r"theatres?",
    r"straddl(e|es|ing)",
    r"waist",
)
METAPHOR = re.compile(rf"(?<![\w-])({'|'.join(METAPHORS)})(?![\w-])", re.IGNORECASE)
TEST_NAME = re.compile(r"`test_\w+`")  # a sentence, quoted as it stands
ALLOWED = {  # page: words that are meant as they stand there
    "docs/glossary.md": {"*"},  # names what a term was called before
    "docs/how-to/zone-file.md": {"door"},  # of a shop
    "docs/explanation/guarantee.md": {"door"},  # of a home
    "docs/explanation/limits.md": {"stranger"},  # a person
    "src/murmurate/planning/zone_file.py": {"door"},  # of a shop
    "src/murmurate/service/demo/embedded_postgres.py": {"nobody"},  # an account
    "docs/how-to/watch.md": {"aside"},  # murmurate_mqtt_set_aside_total, a metric
    "docs/reference/http-and-mqtt-api.md": {"aside"},
    "src/murmurate/service/operator_api/metrics.py": {"aside"},
    **dict.fromkeys(  # murmurate log repair --set-aside, an option
        (
            "src/murmurate/cli/operate.py",
            "src/murmurate/commands/repair.py",
            "src/murmurate/commands/set_aside.py",
            "src/murmurate/publisher/invalid_tail.py",
            "src/murmurate/service/storage/evidence.py",
            "docs/decisions/0019-a-tile-without-a-signature.md",
            "docs/decisions/README.md",
            "docs/explanation/architecture.md",
            "docs/how-to/restore.md",
            "src/murmurate/publisher/protocol.md",
        ),
        frozenset({"aside"}),
    ),
}


def public_functions():
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, FUNCTION) and not node.name.startswith("_"):
                yield path, node


def test_no_class_has_the_name_of_another():
    names = Counter(node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert len(names) > 200
    assert [name for name, count in names.items() if count > 1] == []


def test_no_public_constant_has_the_name_of_another():
    names = Counter(
        target.id
        for tree in TREES.values()
        for node in tree.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name) and not target.id.startswith("_") and target.id != "logger"
    )
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_bounds_are_called_max_and_min():
    wrong = re.compile(r"_?(MOST|LEAST|LONGEST|SHORTEST|LARGEST|SMALLEST)_")
    names = {node.id for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert sorted(name for name in names if wrong.match(name)) == []


def test_public_functions_are_named_by_verb_and_object(figure):
    names = [node.name for _, node in public_functions()]
    short = sorted(name for name in names if "_" not in name)
    figure(
        f"{len(names)} public functions, {len(short)} of one word ({len(short) / len(names):.1%}): {', '.join(short)}"
    )
    assert len(short) <= 0.25 * len(names)


def test_public_methods_have_an_object_where_one_word_says_too_little(figure):
    methods = [
        method.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for method in node.body
        if isinstance(method, FUNCTION)
        and not method.name.startswith("_")
        and not any("property" in ast.unparse(decorator) for decorator in method.decorator_list)
    ]
    short = [name for name in methods if "_" not in name]
    figure(f"{len(methods)} public methods, {len(short)} of one word ({len(short) / len(methods):.1%})")
    assert len(short) <= 0.4 * len(methods)


def found_in(text, allowed=frozenset()):
    if "*" in allowed:
        return []
    return [
        f"{number}: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in METAPHOR.finditer(TEST_NAME.sub("", line).replace("_", " _ "))
        if match[0].lower() not in allowed
    ]


def test_no_metaphor_is_left_in_source_and_docs():
    found = {
        name: found_in(path.read_text(encoding="utf-8"), ALLOWED.get(name, frozenset()))
        for path in [*TREES, *PAGES]
        for name in [str(path.relative_to(ROOT))]
    }
    assert len(found) > 300
    assert {name: words for name, words in found.items() if words} == {}


def test_the_list_finds_what_it_is_for():
    assert found_in("Whoever gathers at the door is set aside_later") == [
        "1: Whoever",
        "1: gathers",
        "1: door",
        "1: aside",
    ]
    assert found_in("a dashboard, a slipstream, next-door, unforgettable") == []
