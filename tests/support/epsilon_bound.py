"""Lower bounds on epsilon from independent outputs of a mechanism."""

from __future__ import annotations

from murmurate.adversaries.event_search import bound_epsilon_below, count_values
from murmurate.units import IntArray


def epsilon_lower_bound(away: IntArray, home: IntArray, confidence: float = 0.999, delta: float = 0.0) -> float:
    """A bound that holds with probability `confidence`. Of several releases pass one score for each run."""
    return bound_epsilon_below([count_values(away, home)], 1 - confidence, delta).epsilon
