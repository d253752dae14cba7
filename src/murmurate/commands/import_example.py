"""`murmurate readings import --example`: a made file to try an import with."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from murmurate.lab.sample_homes import SAMPLE_HOMES, SAMPLE_ZONE, write_sample


def write_example(folder: Path) -> None:
    """Write the made file, and print the command that imports it."""
    path = write_sample(folder)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"{path}: half hours of {SAMPLE_HOMES} simulated homes, on the clocks of {SAMPLE_ZONE}. Next:")
    console.print(f"murmurate readings import {path} --timezone {SAMPLE_ZONE} --out imported")
