"""Ways to read the paper's experiment, by name."""

from __future__ import annotations

from research.paper.simulated_zones import PAPER_INTERPRETATIONS, PaperInterpretation


def paper_interpretation(name: str) -> PaperInterpretation:
    return next(reading for reading in PAPER_INTERPRETATIONS if reading.name == name)
