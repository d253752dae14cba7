"""Systematic mutants: one small change to the syntax tree of a module, at every place where one is possible."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import murmurate

TILE_CHAIN = "public_log.tile_chain"
MERKLE = "public_log.merkle"
MAKE_TILE = "public_log.make_tile"
PROTOCOL = "publisher.protocol"
DESIRED_STATE = "publisher.desired_state"
TILE_WRITER = "publisher.tile_writer"
STORES = "publisher.steps"
TILE, ZONE_TABLE = "public_log.tile", "public_log.zone_table"  # get seeded bugs only
PREDICTED_ROWS, INVALID_TAIL = "public_log.predicted_rows", "publisher.invalid_tail"  # likewise
ZONE_PREDICTION, CORRECTIONS = "prediction.zone_prediction", "prediction.corrections"  # likewise
OBJECT_LOG = "service.storage.object_log"  # likewise
MODULES = (PROTOCOL, TILE_CHAIN, MERKLE, MAKE_TILE, DESIRED_STATE, TILE_WRITER, STORES)  # mutated systematically

_OPPOSITE = {
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
    """A module with one bug. The name contains the changed text, so it stays the same when other code changes."""

    name: str
    module: str
    source: str


Change = tuple[str, str, Callable[[], None], Callable[[], None]]  # operator, text, do, undo


def full_name(module: str) -> str:
    """The import name of a module."""
    return f"murmurate.{module}"


def source_of(module: str) -> str:
    """The source text of a module."""
    path = Path(murmurate.__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    return path.read_text(encoding="utf-8")


def unmutated() -> Mutant:
    """Return a module without a bug. A check that kills it is wrong."""
    return Mutant("as it is", MODULES[0], source_of(MODULES[0]))


def systematic_mutants() -> Iterator[Mutant]:
    """Yield every mutant of every module in MODULES."""
    for module in MODULES:
        tree = ast.parse(source_of(module))
        seen: Counter[str] = Counter()
        for function in _functions(tree):
            for operator, text, change, undo in _changes(function):
                if operator == "swapped" and module == TILE_CHAIN:
                    continue  # its unions are of arrays, which are the same in either order
                name = f"{module}.{function.name}: {operator}: {text}"
                seen[name] += 1
                change()
                source = ast.unparse(tree)
                undo()
                yield Mutant(name if seen[name] == 1 else f"{name} #{seen[name]}", module, source)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield functions and methods. Those of a Protocol are left out: they have no code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id == "Protocol" for b in node.bases):
            node.body = [ast.Pass()]
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _changes(function: ast.FunctionDef) -> Iterator[Change]:
    for node in (each for statement in function.body for each in _code(statement)):
        yield from _condition_changes(node)
        yield from _value_changes(node)
    for body in _bodies(function):
        for place, statement in enumerate(body):
            if isinstance(statement, ast.Raise | ast.AugAssign | ast.Expr) and not _is_text(statement):
                yield _put("dropped", body, place, ast.Pass(), statement)


def _condition_changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.If() | ast.IfExp() | ast.While():
            yield _set("negated", node, "test", ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension():
            for place, test in enumerate(node.ifs):
                yield _put("filter dropped", node.ifs, place, ast.Constant(value=True), test)
        case ast.Compare():
            for place, sign in enumerate(node.ops):
                yield _put(_OPPOSITE[type(sign)].__name__, node.ops, place, _OPPOSITE[type(sign)](), node)
        case ast.BoolOp():
            yield _set("and/or", node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _value_changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BinOp():
            yield from _operator_changes(node)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield _set("plus one", node, "value", number + 1)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield _set("returns None", node, "value", ast.Constant(value=None))
        case ast.Call(func=ast.Name(id="replace" | "TileHeader"), keywords=keywords):
            yield from (_without("member dropped", node, place) for place in range(len(keywords)))


def _operator_changes(node: ast.BinOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Add):
        yield _set("minus", node, "op", ast.Sub())
    elif isinstance(node.op, ast.Sub):
        yield _set("plus", node, "op", ast.Add())
    elif isinstance(node.op, ast.BitOr):
        left, right = node.left, node.right

        def swap() -> None:
            node.left, node.right = node.right, node.left

        yield "swapped", f"{ast.unparse(left)} | {ast.unparse(right)}", swap, swap
        yield _set("right side dropped", node, "right", left)
        yield _set("left side dropped", node, "left", right)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree without its type annotations."""
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
