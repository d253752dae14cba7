"""Repeat the paper's experiment: `python -m research.paper --seeds 1000 --out FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.lab.report import make_console, make_progress_bar
from murmurate.units import parse_fraction
from research.command_line import run_program
from research.paper.experiment import ExperimentSettings, run_experiment, run_seed, summarize_seeds
from research.paper.figures import write_paper_figures
from research.paper.report import conclusion_text, results_json, results_table
from research.paper.simulated_zones import PAPER_INTERPRETATIONS

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog="Example: python -m research.paper --seeds 1000 --out out/")
def reproduce_paper(
    seeds: Annotated[int, typer.Option(help="Independent repetitions of the experiment.", min=1)] = 1000,
    households: Annotated[int, typer.Option("--households", "-N", help="Households in the zone.", min=1)] = 1000,
    intervals: Annotated[int, typer.Option("--intervals", "-T", help="Quarter hours, from midnight.", min=1)] = 96,
    epsilon: Annotated[str, typer.Option(help="Privacy parameter of one interval.")] = "0.5",
    out: Annotated[Path, typer.Option(help="Folder for figures and results.json.", file_okay=False)] = Path("out"),
    jobs: Annotated[int, typer.Option(help="Processes; 0 uses every core. The result is the same.", min=0)] = 0,
) -> None:
    """Repeat the paper's experiment over many seeds and in each reading of its text."""
    settings = ExperimentSettings(
        seeds=seeds, households=households, intervals=intervals, epsilon=parse_fraction(epsilon, "epsilon")
    )
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.json"
    results.write_text("{}\n", encoding="utf-8")  # better to fail now than after the run
    with make_progress_bar() as bar:
        task = bar.add_task("simulating days", total=seeds * len(PAPER_INTERPRETATIONS))
        rows = run_experiment(settings, jobs, lambda done: bar.advance(task, done))
    findings = {reading: summarize_seeds(reading, found) for reading, found in rows.items()}
    results.write_text(results_json(findings, settings), encoding="utf-8")
    shown = PAPER_INTERPRETATIONS[0]
    write_paper_figures(shown, run_seed(shown, settings, seed=0), rows, out)
    console = make_console()
    console.print(results_table(findings, settings))
    console.print(conclusion_text(findings, settings))
    console.print(f"Figures (PNG and SVG) and results.json are in {out}/")


if __name__ == "__main__":
    run_program(app, "research.paper")
