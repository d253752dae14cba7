"""The output of the paper's experiment: a table and `results.json`."""

from __future__ import annotations

import json
from math import isfinite, isinf
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from murmurate import __version__
from murmurate.lab.audit.attack import Estimate
from research.paper.experiment import (
    PAPER_BLOWFISH_RMSRE,
    PAPER_NAIVE_RMSRE,
    ExperimentSettings,
    ExperimentSummary,
)
from research.paper.simulated_zones import HABIT_STD, PaperInterpretation

PAPER_GAIN = 1 - PAPER_BLOWFISH_RMSRE / PAPER_NAIVE_RMSRE

ExperimentSummaries = dict[PaperInterpretation, ExperimentSummary]


def results_table(summaries: ExperimentSummaries, settings: ExperimentSettings) -> Table:
    """Return a table of the paper's values and ours, within 80 columns."""
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=_table_title(settings),
        title_justify="left",
        title_style="bold",
    )
    table.add_column("reading", no_wrap=True)
    for column in ("naive", "Blowfish", "gain", "right order"):
        table.add_column(column, justify="right", no_wrap=True)
    paper = (f"{1e3 * PAPER_NAIVE_RMSRE:.3f}", f"{1e3 * PAPER_BLOWFISH_RMSRE:.3f}", f"{100 * PAPER_GAIN:.1f} %")
    table.add_row("the paper, one run", *paper, "", end_section=True)
    for reading, summary in summaries.items():
        table.add_row(
            reading.label,
            _format_estimate(summary.naive, 1e3, 3),
            _format_estimate(summary.blowfish, 1e3, 3),
            f"{_format_estimate(summary.gain, 100, 2)} %",
            "the same law" if summary.correct_order is None else f"{_format_estimate(summary.correct_order, 100, 0)} %",
        )
    return table


def _table_title(settings: ExperimentSettings) -> str:
    seeds = "one seed" if settings.seeds == 1 else f"{settings.seeds:,} seeds"
    shape = f"N={settings.households:,}, T={settings.intervals}, epsilon={settings.epsilon}"
    return f"RMSRE as the paper normalises it [10⁻³], mean ± 95 % of {seeds}; {shape}"


def _format_estimate(value: Estimate, factor: float, digits: int) -> str:
    mean = f"{factor * value.mean:.{digits}f}"
    return mean if isinf(value.half_width) else f"{mean} ± {factor * value.half_width:.{digits}f}"


def conclusion_text(summaries: ExperimentSummaries, settings: ExperimentSettings) -> str:
    """Return the result of this run in a few sentences."""
    gains = [100 * summary.gain.mean for reading, summary in summaries.items() if reading.private]
    low, high = next(iter(summaries.values())).single_run
    held = [f"{1e3 * value:.3f}" for value in (PAPER_BLOWFISH_RMSRE, PAPER_NAIVE_RMSRE) if low <= value <= high]
    edges = f"[{1e3 * low:.2f}, {1e3 * high:.2f}]"
    forecast, group = ([1e3 * getattr(f, rule).mean for f in summaries.values()] for rule in ("forecast", "group"))
    sentences = [
        "Right order: how often a single run finds Blowfish ahead.",
        "* Not private: the noise itself tells who is home.",
        "",
        f"In its private readings the Blowfish rule gains {min(gains):.1f} to {max(gains):.1f} % over the naive rule.",
        f"The paper's single run says {100 * PAPER_GAIN:.1f} % (in its words, naive is 5.5 % more).",
        f"95 % of single naive runs fall in {edges}; published values in there: {' and '.join(held) or 'none'}.",
        f"A forecast that reads no meter and costs nothing is off by {min(forecast):.2f} to {max(forecast):.2f}.",
        "Both rules cost epsilon in every interval, epsilon T in all. Spending one epsilon on the whole",
        f"horizon (group privacy) is off by {min(group):.0f} to {max(group):.0f}. The operator sees every reading.",
    ]
    if settings != ExperimentSettings(seeds=settings.seeds):
        sentences.append("The paper's numbers belong to N=1,000, T=96, epsilon=1/2.")
    return "\n".join([*sentences, "", "The readings:", *(f"  {r.name:<15} {r.text}" for r in summaries)])


def results_json(summaries: ExperimentSummaries, settings: ExperimentSettings) -> str:
    """Return `results.json`: all that the table shows, and the usual RMS of relative errors."""
    root_t = settings.intervals**0.5

    def both(error: Estimate) -> dict[str, Any]:
        usual = Estimate(*(root_t * value for value in error))
        return {"paper_rmsre": _estimate_members(error), "rms_relative_error": _estimate_members(usual)}

    readings = {
        reading.name: {
            "text": reading.text,
            "private": reading.private,
            **{rule: both(getattr(summary, rule)) for rule in ("naive", "blowfish", "group", "forecast")},
            "gain": _estimate_members(summary.gain),
            "one_run_orders_rightly": None
            if summary.correct_order is None
            else _estimate_members(summary.correct_order),
            "single_naive_run_95": summary.single_run,
        }
        for reading, summary in summaries.items()
    }
    document = {
        "murmurate": __version__,
        "test_only": True,
        "seeds": settings.seeds,
        "households": settings.households,
        "intervals": settings.intervals,
        "epsilon": str(settings.epsilon),
        "spread": HABIT_STD,
        "paper": {"naive": PAPER_NAIVE_RMSRE, "blowfish": PAPER_BLOWFISH_RMSRE, "gain": PAPER_GAIN},
        "readings": readings,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _estimate_members(value: Estimate) -> dict[str, float | None]:
    """Return an estimate for JSON, with None for an infinite number: a single seed has no interval."""
    return {name: number if isfinite(number) else None for name, number in value._asdict().items()}
