"""Lower bounds on epsilon from independent outputs of a mechanism."""

from murmurate.audit.event_search import bound_epsilon_below, count_values


def epsilon_lower_bound(away, home, confidence=0.999, delta=0.0):
    """A bound that holds with probability `confidence`. Of several releases pass one score for each run."""
    return bound_epsilon_below([count_values(away, home)], 1 - confidence, delta).epsilon
