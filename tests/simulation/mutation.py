"""Systematic mutants: one small change to the syntax tree of a module, for every place where one is possible."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import murmurate

MODULES = ("publisher", "chain", "wish", "desk", "stores")  # of the publication; each is mutated systematically
_ELSEWHERE = {"terms": "curator"}  # bugs are seeded there as well

_OTHER = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one bug. The name says where it is, by its text, and survives changes elsewhere."""

    name: str
    module: str
    source: str


Change = tuple[str, str, Callable[[], None], Callable[[], None]]  # operator, text, do, undo


def full_name(module: str) -> str:
    """How a module is imported."""
    return f"murmurate.{_ELSEWHERE.get(module, 'publication')}.{module}"


def source_of(module: str) -> str:
    """The text of a module."""
    path = Path(murmurate.__file__).parent / _ELSEWHERE.get(module, "publication") / f"{module}.py"
    return path.read_text(encoding="utf-8")


def original() -> Mutant:
    """No bug at all: whoever kills this one cries wolf."""
    return Mutant("as it is", MODULES[0], source_of(MODULES[0]))


def systematic() -> Iterator[Mutant]:
    """Every mutant of every module of the publisher."""
    for module in MODULES:
        tree = ast.parse(source_of(module))
        seen: Counter[str] = Counter()
        for function in _functions(tree):
            for operator, text, change, back in _changes(function):
                name = f"{module}.{function.name}: {operator}: {text}"
                seen[name] += 1
                change()
                source = ast.unparse(tree)
                back()
                yield Mutant(name if seen[name] == 1 else f"{name} #{seen[name]}", module, source)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions and methods, but for those of a Protocol, which do nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id == "Protocol" for b in node.bases):
            node.body = [ast.Pass()]
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _changes(function: ast.FunctionDef) -> Iterator[Change]:
    for node in (found for statement in function.body for found in _code(statement)):
        yield from _in_a_condition(node)
        yield from _in_a_value(node)
    for body in _bodies(function):
        for place, statement in enumerate(body):
            if isinstance(statement, ast.Raise | ast.AugAssign | ast.Expr) and not _is_text(statement):
                yield _put("dropped", body, place, ast.Pass(), statement)


def _in_a_condition(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.If() | ast.IfExp() | ast.While():
            yield _set("negated", node, "test", ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension():
            for place, test in enumerate(node.ifs):
                yield _put("filter dropped", node.ifs, place, ast.Constant(value=True), test)
        case ast.Compare():
            for place, sign in enumerate(node.ops):
                yield _put(_OTHER[type(sign)].__name__, node.ops, place, _OTHER[type(sign)](), node)
        case ast.BoolOp():
            yield _set("and/or", node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _in_a_value(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BinOp():
            yield from _arithmetic(node)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield _set("one more", node, "value", number + 1)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield _set("returns None", node, "value", ast.Constant(value=None))
        case ast.Call(func=ast.Name(id="_require"), keywords=keywords):
            yield from (_without("rule dropped", node, place) for place in range(len(keywords)))


def _arithmetic(node: ast.BinOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Add):
        yield _set("minus", node, "op", ast.Sub())
    elif isinstance(node.op, ast.Sub):
        yield _set("plus", node, "op", ast.Add())
    elif isinstance(node.op, ast.BitOr):
        left, right = node.left, node.right

        def swap() -> None:
            node.left, node.right = node.right, node.left

        yield "turned round", f"{ast.unparse(left)} | {ast.unparse(right)}", swap, swap
        yield _set("right side dropped", node, "right", left)
        yield _set("left side dropped", node, "left", right)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """A tree without its type annotations, which do nothing."""
    yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in {"annotation", "returns"}:
                yield from _code(child)


def _without(operator: str, call: ast.Call, place: int) -> Change:
    before = call.keywords
    after = before[:place] + before[place + 1 :]
    return operator, ast.unparse(before[place]), *_switch(call, "keywords", before, after)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _bodies(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for part in ("body", "orelse", "finalbody"):
            body = getattr(node, part, None)
            if isinstance(body, list):
                yield body


def _switch(node: ast.AST, field: str, before: object, after: object) -> tuple[Callable[[], None], Callable[[], None]]:
    return lambda: setattr(node, field, after), lambda: setattr(node, field, before)


def _set(operator: str, node: ast.AST, field: str, value: object) -> Change:
    return operator, ast.unparse(node).splitlines()[0], *_switch(node, field, getattr(node, field), value)


def _put(operator: str, nodes: list, place: int, value: object, shown: ast.AST) -> Change:
    before = nodes[place]
    text = ast.unparse(shown).splitlines()[0]
    return operator, text, lambda: nodes.__setitem__(place, value), lambda: nodes.__setitem__(place, before)
