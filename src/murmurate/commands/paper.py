"""`murmurate paper`, from options to files."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from murmurate.lab.paper import figures, leakage_figure, report
from murmurate.lab.paper.experiment import ExperimentSettings, run_experiment, run_seed, summarize_seeds
from murmurate.lab.paper.simulated_zones import PAPER_INTERPRETATIONS
from murmurate.units import parse_fraction


def reproduce_paper(*, seeds: int, households: int, intervals: int, epsilon: str, out: Path, jobs: int | None) -> None:
    """Run the experiment with a progress bar, write figures and results, print the table."""
    settings = ExperimentSettings(
        seeds=seeds, households=households, intervals=intervals, epsilon=parse_fraction(epsilon, "epsilon")
    )
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.json"
    results.write_text("{}\n", encoding="utf-8")  # better to fail now than after the run
    console = Console(width=None if Console().is_terminal else 100)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("days lived", total=seeds * len(PAPER_INTERPRETATIONS))
        rows = run_experiment(settings, jobs, lambda done: bar.advance(task, done))
    findings = {reading: summarize_seeds(reading, found) for reading, found in rows.items()}
    results.write_text(report.results_json(findings, settings), encoding="utf-8")
    shown = PAPER_INTERPRETATIONS[0]
    figures.write_paper_figures(shown, run_seed(shown, settings, seed=0), rows, out)
    for kind in ("png", "svg"):
        leakage_figure.write_leakage_figure(out / f"leakage.{kind}")
    console.print(report.results_table(findings, settings))
    console.print(report.conclusion_text(findings, settings), highlight=False)
    console.print(f"Figures (PNG and SVG) and results.json are in {out}/", highlight=False)
