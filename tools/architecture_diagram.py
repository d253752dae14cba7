# ruff: noqa: INP001  a script of its own
"""Draw docs/images/architecture.svg from the import graph and the layers in pyproject.toml.

    python -m tools.architecture_diagram

Each layer contract becomes a panel. A box is a package, an arrow is an import. Imports that follow from others are left
out. Colours come from the other contracts: what is pure, what the public API may not import. The layout places every
arrow downwards: rows are given by the contract, the rest is computed by `layered_layout`.
"""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import grimp
from tools.layered_layout import (
    PANEL_WIDTH_PX,
    Edge,
    Node,
    Panel,
    find_ports,
    order_rows,
    place_rows,
    route,
    short,
    width,
)

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
PACKAGE = "murmurate"

ROW_PX, BOX_HEIGHT_PX = 70, 34
PANEL_GAP_PX, MARGIN_PX, HEAD_PX, LEGEND_PX = 64, 28, 62, 104

CSS = """
svg { --ground: #ffffff; --ink: #1c2733; --soft: #5b6775; --band: #f3f5f8; --line: #8794a3; --rim: #ffffff;
  --pure: #d8efe6; --pure-rim: #2f8f6f; --open: #dbe8fb; --open-rim: #3b73c4; --secret: #fbe6cf; --secret-rim: #c27a1e;
  --plain: #e7eaee; --plain-rim: #76828f; }
@media (prefers-color-scheme: dark) {
  svg { --ground: #0f151c; --ink: #e6edf4; --soft: #9aa8b7; --band: #161e27; --line: #6d7c8c; --rim: #0f151c;
    --pure: #143a30; --pure-rim: #58c3a0; --open: #16304f; --open-rim: #74a8ee; --secret: #43301a;
    --secret-rim: #e3a455; --plain: #252f3a; --plain-rim: #8b98a6; } }
text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink); }
.ground { fill: var(--ground); } .band { fill: var(--band); }
.name { font-size: 14px; text-anchor: middle; font-weight: 550; }
.title { font-size: 17px; font-weight: 650; } .note { font-size: 13px; fill: var(--soft); }
.edge { fill: none; stroke: var(--line); stroke-width: 1.4; } .halo { fill: none; stroke: var(--rim); stroke-width: 4; }
.tip { fill: var(--line); }
.box { stroke-width: 1.4; } .pure { fill: var(--pure); stroke: var(--pure-rim); }
.open { fill: var(--open); stroke: var(--open-rim); } .secret { fill: var(--secret); stroke: var(--secret-rim); }
.plain { fill: var(--plain); stroke: var(--plain-rim); }
"""

LEGEND = (
    ("pure", "pure: no clock, network, file or plot"),
    ("open", "public side: may read the public log alone"),
    ("secret", "confidential side: never imported by the public side"),
    ("plain", "everything else"),
)
CAPTION = "An arrow points from a package to one that it imports. Imports that follow from other arrows are left out."


def load_contracts() -> list[dict[str, Any]]:
    """Return the contracts of import-linter."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


def find_imports(graph: grimp.ImportGraph, packages: list[str]) -> set[Edge]:
    """Return (importer, imported) for each two of the packages."""
    inside = {package: {package} | graph.find_descendants(package) for package in packages}
    targets = {
        package: {found for module in modules for found in graph.find_modules_directly_imported_by(module)}
        for package, modules in inside.items()
    }
    return {(a, b) for a, b in product(packages, packages) if a != b and targets[a] & inside[b]}


def reduce_transitively(edges: set[Edge]) -> set[Edge]:
    """Return the edges without those that follow from a longer path."""
    reach: dict[str, set[str]] = {}

    def below(package: str) -> set[str]:
        if package not in reach:
            direct = {b for a, b in edges if a == package}
            reach[package] = direct.union(*(below(b) for b in direct))
        return reach[package]

    return {(a, b) for a, b in edges if not any(b in below(via) for x, via in edges if x == a)}


def make_panel(graph: grimp.ImportGraph, contract: dict[str, Any], title: str) -> Panel:
    """Return the rows of a layer contract, with a passing point in each row that a long arrow crosses."""
    rows: list[list[Node]] = [[(name.strip(),) for name in layer.split("|")] for layer in contract["layers"]]
    packages = [node[0] for row in rows for node in row]
    panel = Panel(title, rows, reduce_transitively(find_imports(graph, packages)))
    level = panel.level()
    for a, b in sorted(panel.edges):
        for number in range(level[(a,)] + 1, level[(b,)]):
            rows[number].append((a, b, str(number)))
    return panel


def draw_panel(panel: Panel, left: float, height: float, colour: dict[str, str]) -> list[str]:
    """Return the SVG elements of a panel whose left edge is at `left` and whose rows fill `height` [px]."""
    row_px = height / len(panel.rows)
    middle = [HEAD_PX + row_px * (number + 0.5) for number in range(len(panel.rows))]
    lines = [f'<text class="title" x="{left:.0f}" y="{HEAD_PX - 22}">{panel.title}</text>']
    lines += [
        f'<rect class="band" x="{left - 12:.0f}" y="{y - row_px / 2 + 5:.1f}" width="{PANEL_WIDTH_PX + 24}" '
        f'height="{row_px - 10:.1f}" rx="9"/>'
        for y in middle
    ]
    lines += draw_edges(panel, left, middle)
    for node, number in panel.level().items():
        if len(node) == 1:
            x, y, wide = left + panel.place[node], middle[number], width(node)
            lines.append(
                f'<rect class="box {colour.get(node[0], "plain")}" x="{x - wide / 2:.1f}" '
                f'y="{y - BOX_HEIGHT_PX / 2:.1f}" width="{wide:.1f}" height="{BOX_HEIGHT_PX}" rx="7"/>'
                f'<text class="name" x="{x:.1f}" y="{y + 5:.1f}">{short(node[0])}</text>'
            )
    return lines


def draw_edges(panel: Panel, left: float, middle: list[float]) -> list[str]:
    (leaving, entering), level = find_ports(panel), panel.level()
    halos, curves, tips = [], [], []
    for edge in sorted(panel.edges):
        nodes = route(panel, edge)
        start, end = leaving[nodes[0], nodes[1]], entering[nodes[-2], nodes[-1]]
        x, y = left + start, middle[level[nodes[0]]] + BOX_HEIGHT_PX / 2
        path = f"M{x:.1f},{y:.1f}"
        for node in nodes[1:]:
            last = node is nodes[-1]
            top = middle[level[node]] - BOX_HEIGHT_PX / 2 - (7 if last else 0)
            to = left + (end if last else panel.place[node])
            bend = (top - y) * 0.55
            path += f" C{x:.1f},{y + bend:.1f} {to:.1f},{top - bend:.1f} {to:.1f},{top:.1f}"
            x, y = to, top
            if not last:
                y = top + BOX_HEIGHT_PX
                path += f" L{x:.1f},{y:.1f}"
        halos.append(f'<path class="halo" d="{path}"/>')
        curves.append(f'<path class="edge" d="{path}"/>')
        tips.append(f'<path class="tip" d="M{x:.1f},{y + 7:.1f} l-4.2,-8.5 h8.4 z"/>')
    return [element for group in zip(halos, curves, tips, strict=True) for element in group]


def colours_of(contracts: list[dict[str, Any]]) -> dict[str, str]:
    """Return the class of each package that a contract names, by what the contract says."""
    pure = next(c for c in contracts if c["name"].startswith("the pure half"))
    public = next(c for c in contracts if c["name"].startswith("the public API"))
    found = dict.fromkeys(pure["source_modules"], "pure")
    found |= dict.fromkeys(public["forbidden_modules"], "secret")
    return found | dict.fromkeys(public["source_modules"], "open")


def draw_legend(width_px: float, top: float) -> list[str]:
    lines, column = [], (width_px - 2 * MARGIN_PX) / 2
    for number, (name, text) in enumerate(LEGEND):
        x, y = MARGIN_PX + column * (number % 2), top + 26 * (number // 2)
        lines.append(f'<rect class="box {name}" x="{x:.0f}" y="{y:.0f}" width="26" height="16" rx="4"/>')
        lines.append(f'<text class="note" x="{x + 36:.0f}" y="{y + 13:.0f}">{text}</text>')
    return [*lines, f'<text class="note" x="{MARGIN_PX}" y="{top + 69:.0f}">{CAPTION}</text>']


def draw_architecture() -> str:
    """Return the picture as SVG text."""
    graph, contracts = grimp.build_graph(PACKAGE, cache_dir=None), load_contracts()
    titles = ("packages of murmurate", "inside murmurate.service")
    layered = [contract for contract in contracts if contract["type"] == "layers"]
    panels = [make_panel(graph, contract, title) for contract, title in zip(layered, titles, strict=True)]
    for panel in panels:
        order_rows(panel)
        place_rows(panel)
    wide = 2 * MARGIN_PX + 2 * PANEL_WIDTH_PX + PANEL_GAP_PX
    height = ROW_PX * max(len(panel.rows) for panel in panels)
    high = HEAD_PX + height + LEGEND_PX
    right = MARGIN_PX + PANEL_WIDTH_PX + PANEL_GAP_PX
    colour = colours_of(contracts)
    body = [
        *draw_panel(panels[0], MARGIN_PX, height, colour),
        *draw_panel(panels[1], right, height, colour),
        *draw_legend(wide, high - LEGEND_PX + 16),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">',
            f"<title>Architecture of murmurate: packages, layers and imports</title><desc>{CAPTION}</desc>",
            f"<style>{CSS}</style>",
            f'<rect class="ground" width="{wide}" height="{high}" rx="14"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw_architecture(), encoding="utf-8")


if __name__ == "__main__":
    main()
