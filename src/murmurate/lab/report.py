"""What `murmurate paper` says: a table for people, `results.json` for programs."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table

from murmurate import __version__
from murmurate.lab.metrics import Estimate
from murmurate.lab.paper import PAPER_BLOWFISH, PAPER_NAIVE, Finding, Settings
from murmurate.lab.worlds import SPREAD, PaperReading

PAPER_GAIN = 1 - PAPER_BLOWFISH / PAPER_NAIVE

Findings = dict[PaperReading, Finding]


def table(findings: Findings, settings: Settings) -> Table:
    """The paper's values beside ours."""
    shape = f"N={settings.households:,}, T={settings.intervals}, epsilon={settings.epsilon}"
    found = Table(
        title=f"RMSRE as the paper normalises it [10⁻³]; mean ± 95 % over {settings.seeds:,} seeds; {shape}",
        title_justify="left",
        title_style="bold",
    )
    found.add_column("reading of the text", no_wrap=True)
    for column in ("naive", "Blowfish", "gain", "one run orders\nthem rightly", "forecast,\nno data", "group\nprivacy"):
        found.add_column(column, justify="right", no_wrap=True)
    paper = (f"{1e3 * PAPER_NAIVE:.3f}", f"{1e3 * PAPER_BLOWFISH:.3f}", f"{100 * PAPER_GAIN:.1f} %")
    found.add_row("the paper, one run", *paper, "", "", "", end_section=True)
    for reading, seen in findings.items():
        found.add_row(
            reading.label,
            _thousandths(seen.naive),
            _thousandths(seen.blowfish),
            f"{100 * seen.gain.mean:.2f} ± {100 * seen.gain.half_width:.2f} %",
            "no order"
            if seen.rightly is None
            else f"{100 * seen.rightly.mean:.0f} ± {100 * seen.rightly.half_width:.0f} %",
            f"{1e3 * seen.forecast.mean:.2f}",
            f"{1e3 * seen.group.mean:.0f}",
        )
    return found


def _thousandths(error: Estimate) -> str:
    return f"{1e3 * error.mean:.3f} ± {1e3 * error.half_width:.3f}"


def conclusion(findings: Findings, settings: Settings) -> str:
    """The result in a few sentences, with the numbers of this run."""
    gains = [100 * seen.gain.mean for reading, seen in findings.items() if reading.private]
    low, high = next(iter(findings.values())).single_run
    held = [f"{1e3 * value:.3f}" for value in (PAPER_BLOWFISH, PAPER_NAIVE) if low <= value <= high]
    edges = f"[{1e3 * low:.2f}, {1e3 * high:.2f}]"
    sentences = [
        f"Over the naive rule, the Blowfish rule gains {min(gains):.1f} to {max(gains):.1f} % in its private readings.",
        f"The paper's single run says {100 * PAPER_GAIN:.1f} % (in its words, naive is 5.5 % more).",
        f"95 % of single naive runs fall in {edges}; published values in there: {' and '.join(held) or 'none'}.",
        "Both rules cost epsilon in every interval, epsilon T in all. Group privacy spends one epsilon on the horizon.",
        "The forecast reads no meter and costs nothing: a rule that does not beat it is not worth its leak.",
    ]
    if settings != Settings(seeds=settings.seeds):
        sentences.append("The paper's numbers belong to N=1,000, T=96, epsilon=1/2.")
    return "\n".join([*sentences, "The readings:", *(f"  {reading.name:<8} {reading.text}" for reading in findings)])


def results(findings: Findings, settings: Settings) -> str:
    """`results.json`: everything the table shows, and the usual RMS of relative errors beside the paper's."""
    root_t = settings.intervals**0.5

    def both(error: Estimate) -> dict[str, Any]:
        usual = Estimate(*(root_t * value for value in error))
        return {"paper_rmsre": error._asdict(), "rms_relative_error": usual._asdict()}

    readings = {
        reading.name: {
            "text": reading.text,
            "private": reading.private,
            **{rule: both(getattr(seen, rule)) for rule in ("naive", "blowfish", "group", "forecast")},
            "gain": seen.gain._asdict(),
            "one_run_orders_rightly": None if seen.rightly is None else seen.rightly._asdict(),
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
    return json.dumps(document, indent=2) + "\n"
