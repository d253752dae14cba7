# ruff: noqa: INP001  a part of tools/architecture_diagram.py
"""Place the boxes of a layered graph so that arrows point down and cross little (Sugiyama et al. 1981).

Rows are given. A long arrow has a passing point in each row that it crosses. The order within a row and the places are
computed, always with the same result for the same input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

PANEL_WIDTH_PX, CHAR_PX, PADDING_PX, LINE_GAP_PX, BOX_GAP_PX = 500, 8.3, 14, 18, 26
_SWEEPS = 200

Edge = tuple[str, str]
Node = tuple[str, ...]  # (package,), or (importer, imported, row) where a line passes a row


@dataclass
class Panel:
    """One layer contract: rows of packages from the top, and the imports to draw between them."""

    title: str
    rows: list[list[Node]]
    edges: set[Edge]
    place: dict[Node, float] = field(default_factory=dict)  # centre of each node [px]

    def level(self) -> dict[Node, int]:
        return {node: number for number, row in enumerate(self.rows) for node in row}


def route(panel: Panel, edge: Edge) -> list[Node]:
    """Return the nodes of an arrow from its importer to what it imports."""
    level = panel.level()
    start, end = (edge[0],), (edge[1],)
    return [start, *((*edge, str(number)) for number in range(level[start] + 1, level[end])), end]


def links(panel: Panel) -> dict[Node, tuple[list[Node], list[Node]]]:
    """Return the neighbours of each node in the row above and in the row below."""
    found: dict[Node, tuple[list[Node], list[Node]]] = {node: ([], []) for row in panel.rows for node in row}
    for edge in sorted(panel.edges):
        for upper, lower in pairwise(route(panel, edge)):
            found[upper][1].append(lower)
            found[lower][0].append(upper)
    return found


def width(node: Node) -> float:
    """Return the width of a box, or the room that a passing line needs [px]."""
    return len(short(node[0])) * CHAR_PX + 2 * PADDING_PX if not is_passing(node) else LINE_GAP_PX


def short(package: str) -> str:
    return package.rpartition(".")[2]


def count_crossings(panel: Panel, near: dict[Node, tuple[list[Node], list[Node]]]) -> int:
    total = 0
    for row, following in pairwise(panel.rows):
        rank = {node: number for number, node in enumerate(following)}
        ends = [rank[lower] for node in row for lower in sorted(near[node][1], key=rank.__getitem__)]
        total += sum(later < earlier for number, earlier in enumerate(ends) for later in ends[number + 1 :])
    return total


def order_rows(panel: Panel) -> None:
    """Sort each row by the mean rank of its neighbours, in sweeps down and up; keep the order with fewest crossings."""
    near = links(panel)
    best = (count_crossings(panel, near), [list(row) for row in panel.rows])
    for sweep in range(_SWEEPS):
        side = sweep % 2  # 0: downwards, looking at the row above
        numbers = range(1, len(panel.rows)) if side == 0 else range(len(panel.rows) - 2, -1, -1)
        for number in numbers:
            row = panel.rows[number]
            other = panel.rows[number - 1 if side == 0 else number + 1]
            rank = {node: (at + 0.5) / len(other) for at, node in enumerate(other)}
            own = {node: (at + 0.5) / len(row) for at, node in enumerate(row)}
            row.sort(key=lambda node: mean([rank[n] for n in near[node][side]], own[node]))
        best = min(best, (count_crossings(panel, near), [list(row) for row in panel.rows]), key=lambda found: found[0])
    panel.rows = best[1]


def mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def place_rows(panel: Panel) -> None:
    """Move each node to the mean of its neighbours, as far as its row has room."""
    near = links(panel)
    for row in panel.rows:
        panel.place |= fit_row(row, dict.fromkeys(row, PANEL_WIDTH_PX / 2), {})
    for sweep in range(_SWEEPS):
        rows = panel.rows if sweep % 2 == 0 else panel.rows[::-1]
        for row in rows:
            around = {node: [*near[node][0], *near[node][1]] for node in row}
            wanted = {node: pull(panel, node, around[node]) for node in row}
            weight = {node: 8.0 if is_passing(node) else 1.0 + len(around[node]) / 4 for node in row}
            panel.place |= fit_row(row, wanted, weight)


def is_passing(node: Node) -> bool:
    return len(node) > 1


def pull(panel: Panel, node: Node, around: list[Node]) -> float:
    """Return the mean place of the neighbours; those of the same long arrow count more, so that it becomes straight."""
    if not around:
        return panel.place[node]
    weights = [12.0 if is_passing(node) and is_passing(other) else 1.0 for other in around]
    return sum(w * panel.place[other] for w, other in zip(weights, around, strict=True)) / sum(weights)


def fit_row(row: list[Node], wanted: dict[Node, float], weight: dict[Node, float]) -> dict[Node, float]:
    """Return the places nearest to the wanted ones, in order and without overlap (isotonic regression)."""
    offset, offsets = width(row[0]) / 2, []
    for number, node in enumerate(row):
        if number:
            gap = BOX_GAP_PX if not (is_passing(node) or is_passing(row[number - 1])) else LINE_GAP_PX / 2
            offset += (width(row[number - 1]) + width(node)) / 2 + gap
        offsets.append(offset)
    pools: list[list[float]] = []  # [mean, weight, size]
    for node, shift in zip(row, offsets, strict=True):
        pools.append([wanted[node] - shift, weight.get(node, 1.0), 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, wa, na), (b, wb, nb) = pools[-2], pools.pop()
            pools[-1] = [(a * wa + b * wb) / (wa + wb), wa + wb, na + nb]
    room = PANEL_WIDTH_PX - offsets[-1] - width(row[-1]) / 2
    values = [min(max(value, 0.0), max(room, 0.0)) for value, _, size in pools for _ in range(int(size))]
    return {node: value + shift for node, value, shift in zip(row, values, offsets, strict=True)}


def find_ports(panel: Panel) -> tuple[dict[tuple[Node, Node], float], dict[tuple[Node, Node], float]]:
    """Return where each piece (upper, lower) of an arrow leaves its upper and enters its lower node [px].

    Arrows are spread along the edge of a box, in the order of their other ends.
    """
    leaving: dict[tuple[Node, Node], float] = {}
    entering: dict[tuple[Node, Node], float] = {}
    for node, (above, below) in links(panel).items():
        leaving |= {(node, other): at for other, at in spread(panel, node, below)}
        entering |= {(other, node): at for other, at in spread(panel, node, above)}
    return leaving, entering


def spread(panel: Panel, node: Node, others: list[Node]) -> list[tuple[Node, float]]:
    others = sorted(others, key=panel.place.__getitem__)
    room = 0.0 if is_passing(node) else min(width(node) - 24, 22 * (len(others) - 1))
    middle = (len(others) - 1) / 2
    return [(other, panel.place[node] + room * (n - middle) / (2 * middle or 1)) for n, other in enumerate(others)]
