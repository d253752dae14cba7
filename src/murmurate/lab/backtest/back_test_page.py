"""The page of a back-test: one HTML file with its figure, tables, and what they do not show."""

from __future__ import annotations

from html import escape
from pathlib import Path

from murmurate.lab.backtest.back_test_figures import BILLS_FIGURE
from murmurate.lab.backtest.back_test_report import (
    NOT_SHOWN,
    RATE_EXPLANATIONS,
    change_cells,
    change_columns,
    month_cells,
    noise_sentences,
    rules_sentences,
    source_sentence,
)
from murmurate.lab.backtest.bills import Rate
from murmurate.lab.backtest.zone_back_test import ZoneBackTest
from murmurate.lab.html_page import html_document, html_figure, html_list, html_paragraph, html_table


def make_back_test_page(test: ZoneBackTest, file: str, command: str, out: Path) -> str:
    """Return `index.html`. The figure is read from the folder `out`; `file` is the name of the readings."""
    explained = [f"{rate.value}: {text}." for rate, text in RATE_EXPLANATIONS.items()]
    months, rows = month_cells(test)
    parts = [
        html_paragraph(source_sentence(test, file)),
        html_list(rules_sentences(test)),
        html_figure(
            out / f"{BILLS_FIGURE}.svg", "Change of bills over homes, and noise over longer and longer periods"
        ),
        "<h2>Bills beside a flat rate</h2>",
        html_table(change_columns(test), [(_row_class(cells[0]), cells) for cells in change_cells(test)]),
        html_list(explained),
        html_paragraph(
            "times: what the prices of the rate are multiplied by. Lowest and highest 5 %: one home in twenty is below "
            "or above.",
            "muted",
        ),
        "<h2>What the noise alone does to a bill</h2>",
        html_list(noise_sentences(test)),
        "<h2>By month</h2>",
        html_paragraph("The bill of the mean home. Noise: standard deviation of a month's bill, median home.", "muted"),
        html_table(months, [("", cells) for cells in rows]),
        "<h2>What this does not show</h2>",
        html_list(NOT_SHOWN),
        html_paragraph(
            "This page comes from readings without any protection. Do not publish it without thought.", "muted"
        ),
        f'<p class="muted">Made by <code>{escape(command)}</code>. All numbers are in <code>results.json</code>.</p>',
    ]
    return html_document(f"What homes of {test.plan.terms.zone} would have paid", parts)


def _row_class(rate: str) -> str:
    return "private" if rate == Rate.PRIVATE.value else ""
