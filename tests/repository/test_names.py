"""Names that an engineer of the field would guess: counted, so that a private language cannot grow again."""

import ast
import re
from collections import Counter

from tests.repository.repository_files import FILES, read, syntax_of_package

TREES = syntax_of_package()
TEXTS = {
    file: read(file)
    for file in FILES
    if (file.startswith(("docs/", "src/murmurate/")) and file.endswith((".py", ".md")))
    or re.fullmatch(r"[^/]+\.md", file)
}
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
# Words that are right in another language's order of words: `next to`, `its own`, `continues`, `again` are plainer.
WORD_ORDER = re.compile(
    r"\b(so many|whatever|beside|goes on|for ever|anew|at hand|so long|held against|of (?:its|their) own(?=[.,;:)]))"
    r"(?!\w)",
    re.IGNORECASE,
)
MAX_WORD_ORDER_IN_SOURCE = 13  # goal 0
TEST_NAME = re.compile(r"`test_\w+`")  # a sentence, quoted as it stands
ALLOWED = {  # page: words that are meant as they stand there
    "docs/glossary.md": {"*"},  # names what a term was called before
    "docs/how-to/zone-file.md": {"door"},  # of a shop
    "docs/explanation/guarantee.md": {"door"},  # of a home
    "docs/explanation/limits.md": {"stranger"},  # a person
    "src/murmurate/planning/zone_file.py": {"door"},  # of a shop
    "src/murmurate/service/demo/demo_host.py": {"nobody"},  # an account
    "docs/how-to/watch.md": {"aside"},  # murmurate_mqtt_set_aside_total, a metric
    "docs/reference/http-and-mqtt-api.md": {"aside"},
    "src/murmurate/service/operator_api/routes.py": {"aside"},
    **dict.fromkeys(  # murmurate log repair --set-aside, an option
        (
            "src/murmurate/commands/repair.py",
            "src/murmurate/publisher/invalid_tail.py",
            "src/murmurate/service/storage/evidence.py",
            "docs/decisions/0019-a-tile-without-a-signature.md",
            "docs/decisions/README.md",
            "docs/explanation/architecture.md",
            "docs/how-to/restore.md",
            "docs/reference/json-output.md",
            "src/murmurate/publisher/protocol.md",
        ),
        frozenset({"aside"}),
    ),
}


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
    names = [
        node.name
        for tree in TREES.values()
        for node in tree.body
        if isinstance(node, FUNCTION) and not node.name.startswith("_")
    ]
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


def found_in(text, allowed=frozenset(), words=METAPHOR):
    if "*" in allowed:
        return []
    return [
        f"{number}: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in words.finditer(TEST_NAME.sub("", line).replace("_", " _ "))
        if match[0].lower() not in allowed
    ]


def test_no_metaphor_is_left_in_source_and_docs():
    found = {name: found_in(text, ALLOWED.get(name, frozenset())) for name, text in TEXTS.items()}
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


def test_pages_are_in_plain_word_order_and_the_source_gets_plainer(figure):
    """Output that a page shows is that of the source; evidence is output as a whole."""
    quoted = {"docs/how-to/publish.md": {"for ever"}}  # a message
    pages = {name: text for name, text in TEXTS.items() if name.endswith(".md") and not name.startswith("src/")}
    del pages["docs/evidence.md"]
    found = {
        name: found_in(re.sub(r"```.*?```", "", text, flags=re.DOTALL), quoted.get(name, frozenset()), WORD_ORDER)
        for name, text in pages.items()
    }
    assert {name: words for name, words in found.items() if words} == {}
    in_source = sum(len(found_in(text, words=WORD_ORDER)) for name, text in TEXTS.items() if name.startswith("src/"))
    figure(f"{in_source} places of the source with words in another order")
    assert in_source <= MAX_WORD_ORDER_IN_SOURCE


def test_the_words_of_another_order_are_found():
    assert found_in("Whatever goes on beside it, for ever", words=WORD_ORDER) == [
        "1: Whatever",
        "1: goes on",
        "1: beside",
        "1: for ever",
    ]
    assert found_in("besides, for every home, a key of its own zone, so longer", words=WORD_ORDER) == []
