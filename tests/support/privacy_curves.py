"""The curve of anything that is epsilon-private, at worst."""

from __future__ import annotations

import numpy as np
from research.consumption_laws import PairCurve


def randomised_response(epsilon: float) -> PairCurve:
    """The worst curve of anything that is epsilon-private (Kairouz, Oh, Viswanath 2015)."""
    truth = 1 / (1 + np.exp(-epsilon))
    return PairCurve(np.array([truth, 1 - truth]), np.array([1 - truth, truth]))
