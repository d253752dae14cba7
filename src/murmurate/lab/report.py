"""What `murmurate paper` says: a table for people, `results.json` for programs."""

from __future__ import annotations

import json
from math import isfinite, isinf
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from murmurate import __version__
from murmurate.lab.metrics import Estimate
from murmurate.lab.paper import PAPER_BLOWFISH, PAPER_NAIVE, Finding, Settings
from murmurate.lab.worlds import SPREAD, PaperReading

PAPER_GAIN = 1 - PAPER_BLOWFISH / PAPER_NAIVE

Findings = dict[PaperReading, Finding]


def table(findings: Findings, settings: Settings) -> Table:
    """The paper's values beside ours, narrow enough for a terminal of 80 columns."""
    found = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=_title(settings),
        title_justify="left",
        title_style="bold",
    )
    found.add_column("reading", no_wrap=True)
    for column in ("naive", "Blowfish", "gain", "right order"):
        found.add_column(column, justify="right", no_wrap=True)
    paper = (f"{1e3 * PAPER_NAIVE:.3f}", f"{1e3 * PAPER_BLOWFISH:.3f}", f"{100 * PAPER_GAIN:.1f} %")
    found.add_row("the paper, one run", *paper, "", end_section=True)
    for reading, seen in findings.items():
        found.add_row(
            reading.label,
            _number(seen.naive, 1e3, 3),
            _number(seen.blowfish, 1e3, 3),
            f"{_number(seen.gain, 100, 2)} %",
            "the same law" if seen.rightly is None else f"{_number(seen.rightly, 100, 0)} %",
        )
    return found


def _title(settings: Settings) -> str:
    seeds = "one seed" if settings.seeds == 1 else f"{settings.seeds:,} seeds"
    shape = f"N={settings.households:,}, T={settings.intervals}, epsilon={settings.epsilon}"
    return f"RMSRE as the paper normalises it [10⁻³], mean ± 95 % of {seeds}; {shape}"


def _number(value: Estimate, times: float, digits: int) -> str:
    mean = f"{times * value.mean:.{digits}f}"
    return mean if isinf(value.half_width) else f"{mean} ± {times * value.half_width:.{digits}f}"


def conclusion(findings: Findings, settings: Settings) -> str:
    """The result in a few sentences, with the numbers of this run."""
    gains = [100 * seen.gain.mean for reading, seen in findings.items() if reading.private]
    low, high = next(iter(findings.values())).single_run
    held = [f"{1e3 * value:.3f}" for value in (PAPER_BLOWFISH, PAPER_NAIVE) if low <= value <= high]
    edges = f"[{1e3 * low:.2f}, {1e3 * high:.2f}]"
    forecast, group = ([1e3 * getattr(f, rule).mean for f in findings.values()] for rule in ("forecast", "group"))
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
    if settings != Settings(seeds=settings.seeds):
        sentences.append("The paper's numbers belong to N=1,000, T=96, epsilon=1/2.")
    return "\n".join([*sentences, "", "The readings:", *(f"  {r.name:<15} {r.text}" for r in findings)])


def results(findings: Findings, settings: Settings) -> str:
    """`results.json`: everything the table shows, and the usual RMS of relative errors beside the paper's."""
    root_t = settings.intervals**0.5

    def both(error: Estimate) -> dict[str, Any]:
        usual = Estimate(*(root_t * value for value in error))
        return {"paper_rmsre": _finite(error), "rms_relative_error": _finite(usual)}

    readings = {
        reading.name: {
            "text": reading.text,
            "private": reading.private,
            **{rule: both(getattr(seen, rule)) for rule in ("naive", "blowfish", "group", "forecast")},
            "gain": _finite(seen.gain),
            "one_run_orders_rightly": None if seen.rightly is None else _finite(seen.rightly),
            "single_naive_run_95": seen.single_run,
        }
        for reading, seen in findings.items()
    }
    document = {
        "murmurate": __version__,
        "rehearsal": True,
        "seeds": settings.seeds,
        "households": settings.households,
        "intervals": settings.intervals,
        "epsilon": str(settings.epsilon),
        "spread": SPREAD,
        "paper": {"naive": PAPER_NAIVE, "blowfish": PAPER_BLOWFISH, "gain": PAPER_GAIN},
        "readings": readings,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _finite(value: Estimate) -> dict[str, float | None]:
    """An estimate for JSON, which knows no infinity: a single seed has no interval."""
    return {name: number if isfinite(number) else None for name, number in value._asdict().items()}
