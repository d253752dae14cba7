"""The area under the ROC curve of an attacker, and the largest one that a promise allows.

Samples come from two distributions: `away`, where a household is not occupied, and `home`, where it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from murmurate.audit.event_search import as_sample


def auc(away: Any, home: Any) -> float:
    """Return the area under the ROC curve: Pr[score of home > score of away] + Pr[equal]/2.

    1/2 is chance level, 1 is certainty. Unlike accuracy it does not depend on how often the household is home.

    >>> auc(away=[1, 2], home=[2, 3])
    0.875
    """
    low, high = np.sort(as_sample(away, "away")), as_sample(home, "home")
    beaten = np.searchsorted(low, high, side="left") + np.searchsorted(low, high, side="right")
    return float(beaten.mean() / (2 * len(low)))


def auc_bound(epsilon: float) -> float:
    """Return the largest AUC that any test can reach against pure epsilon: e^epsilon / (1 + e^epsilon).

    The ROC curve lies below y = e^eps x and below y = 1 - e^-eps (1 - x). They meet at x = 1/(1+e^eps), y = 1 - x = q;
    the area under both is (1-q) q/2 + q (q+1)/2 = q. Randomised response that is true with probability q reaches it.

    >>> auc_bound(0.0), round(auc_bound(0.5), 4)
    (0.5, 0.6225)
    """
    return float(special.expit(epsilon))


def refutes_auc_bound(measured_auc: float, max_auc: float, pairs: int, failure: float) -> bool:
    """Whether a measured AUC refutes that the true AUC is at most `max_auc`, with error probability at most `failure`.

    `pairs` is the number of disjoint pairs, min(n_0, n_1). The AUC is a mean over all ways to pair the samples off, so
    Pr[AUC >= a] <= exp(-pairs KL(a, max_auc)) for a > max_auc and any scores (Hoeffding 1963, section 5).

    >>> refutes_auc_bound(0.60, 0.55, pairs=1000, failure=1e-3), refutes_auc_bound(0.60, 0.55, pairs=2000, failure=1e-3)
    (False, True)
    """
    above = special.rel_entr(measured_auc, max_auc) + special.rel_entr(1 - measured_auc, 1 - max_auc)
    return bool(measured_auc > max_auc and pairs * above > -np.log(failure))
