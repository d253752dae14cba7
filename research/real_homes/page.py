"""The page on real homes: one HTML file that needs nothing else, and its numbers as JSON."""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from murmurate.lab.audit.attack_result import Estimate
from research.real_homes.figures import draw_attack_figure_of_homes, draw_day_figure, draw_error_figure
from research.real_homes.homes_report import HomesReport, report_numbers
from research.real_homes.occupancy_attack import OccupancyAttack, ZoneAttack
from research.real_homes.page_text import (
    attack_sentences,
    day_sentences,
    error_sentences,
    format_auc,
    format_signed,
    limit_sentences,
    promise_sentences,
)
from research.real_homes.zone_errors import HomesWay, ZoneErrors

PAGE_NAME, NUMBERS_NAME = "homes.html", "homes.json"
_ATTACK_COLUMNS = (
    "homes in the zone",
    "targets",
    "clock alone",
    "exact demand, above clock",
    "noisy releases, above clock",
    "same hour, exact demand",
    "same hour, noisy releases",
)
_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #22303c; background: #fff; max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
p.lead { color: #55636f; margin-top: 0; } img { width: 100%; min-width: 44rem; height: auto; }
li { margin-bottom: .4rem; }
div.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; width: 100%; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #e3e8ec; vertical-align: top; }
th { font-weight: 600; } td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
tr.private td { color: #0072b2; } small { color: #55636f; }
"""


def write_homes_page(report: HomesReport, out: Path) -> None:
    """Write `homes.html` and `homes.json`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / PAGE_NAME).write_text(render_page(report), encoding="utf-8")
    (out / NUMBERS_NAME).write_text(report_numbers(report), encoding="utf-8")


def render_page(report: HomesReport) -> str:
    """Return the page as text."""
    homes = sum(len(zone.data.households) for zone in report.zones)
    measured = sum(len(zone.data.households) for zone in report.zones if zone.data.measured)
    licences = ", ".join(dict.fromkeys(zone.data.licence for zone in report.zones))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Private prices on real homes</title>',
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>',
        "<h1>Private prices on real homes</h1>",
        f'<p class="lead">{measured} measured and {homes - measured} modelled homes. Data: {escape(licences)}.</p>',
        *_paragraphs(promise_sentences(report)),
        "<h2>How wrong is the demand that a price is made for?</h2>",
        *_list(error_sentences(report.zones)),
        _image(draw_error_figure(report.zones), "Error of each way to price each zone"),
        _error_table(report.zones),
        "<h2>Can prices tell who is home?</h2>",
    ]
    if report.attack is None:
        parts.append("<p>The data do not say who was home often enough to attack, so this was not measured.</p>")
    else:
        parts += _paragraphs(attack_sentences(report.attack))
        parts.append(_image(draw_attack_figure_of_homes(report.attack), "Success of the attack by size of the zone"))
        parts.append(_attack_table(report.attack))
    parts += [
        "<h2>What the noise hides</h2>",
        *_paragraphs(day_sentences(report)),
        _image(draw_day_figure(report.day), "One day of a household, its zone and its releases"),
        "<h2>What this does not show</h2>",
        *_list(limit_sentences(report)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _error_table(zones: tuple[ZoneErrors, ...]) -> str:
    head = "".join(f"<th>{escape(zone.data.name)}<br>{len(zone.data.households)} homes</th>" for zone in zones)
    rows = []
    for way in HomesWay:
        cells = "".join(_error_cell(zone.ways[way].error) for zone in zones)
        kind = ' class="private"' if way is HomesWay.PRIVATE else ""
        rows.append(f"<tr{kind}><td>{escape(way.value)}</td>{cells}</tr>")
    note = "<p><small>Root mean square error, % of the mean demand, with its 95 % interval over weeks.</small></p>"
    return f'<div class="wide"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>{note}'


def _error_cell(error: Estimate) -> str:
    return f"<td>{100 * error.mean:.1f} %<br><small>{100 * error.low:.1f} to {100 * error.high:.1f}</small></td>"


def _attack_table(attack: OccupancyAttack) -> str:
    rows = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in _attack_cells(zone))}</tr>" for zone in attack.zones]
    head = "".join(f"<th>{name}</th>" for name in _ATTACK_COLUMNS)
    note = "<p><small>Area under the ROC curve, mean over households with its 95 % interval.</small></p>"
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>{note}'


def _attack_cells(zone: ZoneAttack) -> tuple[str, ...]:
    return (
        f"{zone.homes}",
        f"{zone.targets}",
        format_auc(zone.clock.auc),
        format_signed(zone.exact.above_clock),
        format_signed(zone.noisy.above_clock),
        format_auc(zone.exact.same_time_auc),
        format_auc(zone.noisy.same_time_auc),
    )


def _paragraphs(sentences: list[str]) -> list[str]:
    return [f"<p>{escape(sentence)}</p>" for sentence in sentences]


def _list(sentences: list[str]) -> list[str]:
    return ["<ul>", *(f"<li>{escape(sentence)}</li>" for sentence in sentences), "</ul>"]


def _image(figure: Figure, words: str) -> str:
    """Return a figure inside the page, as SVG, the same bytes in every run."""
    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "murmurate", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    data = base64.b64encode(file.getvalue()).decode()
    return f'<div class="wide"><img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}"></div>'
