"""The public interface: `import murmurate as mm` offers few names, loads them on first use, and documents each one."""

import ast
import doctest
import enum
import inspect
import re
from functools import cached_property
from types import ModuleType

import pytest

import murmurate as mm
from tests.repository.repository_files import PACKAGE, PAGES, read, table_rows

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Example")
PUBLIC_IMPORT = "import murmurate as mm"
UNITS = {"_wh": "Wh", "_ticks": "ticks", "_us": "µs"}  # by the end of a parameter's name


def sections(docstring):
    """The Google-style sections of a docstring, by name."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.cleandoc(docstring or ""), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented_names(docstring):
    """The parameters and attributes that a docstring names in its sections, with what it says about them."""
    found = sections(docstring)
    lines = "\n".join(found.get(name, "") for name in ("Args", "Attributes"))
    parts = re.split(r"^ {4}(\w+): ", lines, flags=re.MULTILINE)
    return {name: text for name, text in zip(parts[1::2], parts[2::2], strict=True) if text.strip()}


def parameters_of(thing):
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        return list(thing.__members__)
    if getattr(thing, "_is_protocol", False):
        return []  # nothing makes one
    names = inspect.signature(thing).parameters
    return [name for name in names if name not in {"self", "cls"} and not name.startswith("_")]


def problems(name, thing, *, is_property=False):
    """What the docstring of one public function, class, method or property lacks."""
    text = thing.__doc__ or ""
    parts = sections(text)
    if not text.strip():
        return [f"{name} has no docstring"]
    if is_property:
        return []
    wanted = parameters_of(thing)
    described = documented_names(text)
    missing = [f"{name}: parameter {one}" for one in wanted if one not in described]
    for one, words in described.items():
        ends = [unit for ending, unit in UNITS.items() if one.endswith(ending)]
        missing += [f"{name}: unit of {one}" for unit in ends if f"[{unit}" not in words]
    if not wanted and not isinstance(thing, type):
        return missing  # its first sentence says what it returns
    if not doctest.DocTestFinder().find(thing, name, globs={}) or ">>>" not in parts.get("Example", ""):
        missing.append(f"{name}: example")
    if not isinstance(thing, type) and "Returns" not in parts:
        missing.append(f"{name}: returns")
    if raises(thing) and "Raises" not in parts:
        missing.append(f"{name}: raises")
    return missing


def raises(thing):
    """Whether the body of a function, or of the checks that a class makes, raises an error of this package."""
    body = getattr(thing, "__post_init__", None) if isinstance(thing, type) else thing
    if body is None:
        return False
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(body)))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree)) or "raise_where" in called


def public_members(cls):
    """The methods and properties that a class defines itself."""
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property | cached_property):
            yield name, member, True
        elif isinstance(member, classmethod | staticmethod):
            yield name, getattr(cls, name), False
        elif inspect.isfunction(member):
            yield name, member, False


def documented_things():
    """(name, object, whether it is a property) of the whole public interface."""
    values = {name: getattr(mm, name) for name in mm.__all__}
    values |= {f"errors.{name}": each for name, each in vars(mm.errors).items() if inspect.isclass(each)}
    for name, value in values.items():
        if isinstance(value, str | ModuleType):
            continue
        inherits = isinstance(value, type) and issubclass(value, mm.errors.MurmurateError)
        if inherits and "__init__" not in vars(value):
            yield name, value, True  # takes the parameters of its base class
            continue
        yield name, value, False
        if isinstance(value, type):
            for member, each, is_property in public_members(value):
                yield f"{name}.{member}", each, is_property


def test_the_public_interface_has_20_to_40_names_and_each_can_be_imported(figure):
    figure(f"public interface: {len(mm.__all__)} names")
    assert 20 <= len(mm.__all__) <= 40
    assert list(mm.__all__) == sorted(mm.__all__, key=lambda name: (not name.isupper(), name.lower() == name, name))
    for name in mm.__all__:
        assert getattr(mm, name) is not None
    assert {name for name in dir(mm) if not name.startswith("__")} == set(mm.__all__)


def test_the_three_lists_of_names_agree():
    assert set(mm._MODULE_OF_NAME) | {"errors"} == set(mm.__all__)
    tree = ast.parse(read("src/murmurate/__init__.py"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body for alias in node.names}
    assert typed == {**mm._MODULE_OF_NAME, "errors": "murmurate"}


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'curator'"):
        mm.curator  # noqa: B018


def test_every_public_docstring_names_its_parameters_results_errors_and_has_an_example(figure):
    things = list(documented_things())
    found = {name: problems(name, thing, is_property=is_property) for name, thing, is_property in things}
    complete = sum(not missing for missing in found.values())
    figure(f"public docstrings: {complete} of {len(things)} complete ({complete / len(things):.0%})")
    assert len(things) > 60
    assert [problem for missing in found.values() for problem in missing] == []


def test_an_undocumented_parameter_result_error_and_example_are_noticed():
    def scale_demand(demand_wh, factor):
        """Return a multiple.

        Args:
            demand_wh: Demand.
        """
        if factor < 0:
            raise ValueError(factor)
        return demand_wh * factor

    assert problems("scale_demand", scale_demand) == [
        "scale_demand: parameter factor",
        "scale_demand: unit of demand_wh",
        "scale_demand: example",
        "scale_demand: returns",
        "scale_demand: raises",
    ]


def test_the_reference_page_lists_every_public_name_and_its_module():
    rows = [(row[0].strip("`"), row[-1].strip("`")) for row in table_rows("docs/reference/api.md") if row[0][0] == "`"]
    assert dict(rows) == {**mm._MODULE_OF_NAME, "errors": "murmurate.errors"}
    assert len(rows) == len(mm.__all__)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*/__init__.py")), ids=lambda path: path.parent.name)
def test_every_package_says_that_it_is_private(path):
    assert "Private" in ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def private_imports(text):
    """What a program imports of the package, other than the public interface as a whole."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = [ast.unparse(node) for node in nodes]
    return [line for line in lines if re.search(r"\b(murmurate|tests|import_module)\b", line) and line != PUBLIC_IMPORT]


def test_extension_points_are_used_with_public_names_alone():
    text = read("tests/unit/test_extension_points.py")
    assert PUBLIC_IMPORT in text
    assert private_imports(text) == []
    assert not re.search(r"\bmm\.(?!errors\b)(?![A-Z])\w+\.|mm\._|__import__", text)


@pytest.mark.parametrize(
    "line",
    [
        "from murmurate.planning import plan",
        "import murmurate.release",
        "from murmurate import cli",
        "import murmurate",
    ],
)
def test_a_private_import_is_noticed(line):
    assert private_imports(f"import numpy as np\n{PUBLIC_IMPORT}\nif np:\n    {line}\n") == [line]


def test_examples_of_the_readme_and_the_tutorials_import_the_public_interface_alone():
    pages = [page for page in PAGES if re.match(r"README.md|docs/tutorial/|docs/how-to/extend.md", page)]
    lines = [example.source for page in pages for example in doctest.DocTestParser().get_examples(read(page))]
    assert "import murmurate as mm\n" in lines
    assert [line for line in lines if re.match(r"(from|import) murmurate\b(?! as mm\n)", line)] == []
