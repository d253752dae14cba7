"""Leakage of a stream that ends, and the prior of a stream that begins at any interval of the day."""

import numpy as np

from murmurate.privacy.leakage import leakage_from_start, loss_ends, periodic_distributions


def moment_leakage(chains, loss, horizon):
    """[interval, kind] if exactly `horizon` intervals are released, the first with `initial`."""
    ends = loss_ends(chains, loss)
    return leakage_from_start(chains, ends[np.arange(horizon) % len(ends)], np.zeros(()))[0]


def periodic_prior(chains, slot):
    """P(S = x) [state, kind] in an interval of the day for an attacker who knows only the habits."""
    return np.exp(periodic_distributions(chains, len(chains.period))[0].belief[slot])
