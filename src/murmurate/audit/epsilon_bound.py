"""Lower bounds on epsilon from samples, and upper bounds that a promise implies.

Samples come from two distributions: `away`, where a household is not occupied, and `home`, where it is. A mechanism
that promises epsilon has Pr[E | away] <= e^epsilon Pr[E | home] + delta for every event E, and the reverse. So a single
event that breaks this refutes the promise. A lower bound can refute a promise, and can never confirm one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from murmurate.audit.event_search import (
    as_sample,
    bound_epsilon_below,
    clopper_pearson_lower,
    clopper_pearson_upper,
    count_values,
)
from murmurate.errors import PrivacyError


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


class ConfidenceInterval(NamedTuple):
    """A confidence interval of a probability."""

    low: float
    high: float


def clopper_pearson(successes: int, trials: int, confidence: float) -> ConfidenceInterval:
    """Return the exact interval of a binomial probability. Each side fails with probability at most (1 - confidence)/2.

    low and high are the (1-c)/2 quantile of Beta(k, n-k+1) and the (1+c)/2 quantile of Beta(k+1, n-k).

    >>> tuple(round(edge, 4) for edge in clopper_pearson(0, 10, 0.95))
    (0.0, 0.3085)
    """
    if not 0 <= successes <= trials or trials < 1:
        raise PrivacyError("successes", f"{successes} of {trials}", "must be between 0 and at least 1 trial")
    failure = _failure_probability(confidence) / 2
    k = np.array([successes])
    return ConfidenceInterval(
        float(clopper_pearson_lower(k, trials, failure)[0]), float(clopper_pearson_upper(k, trials, failure)[0])
    )


def epsilon_lower_bound(away: Any, home: Any, confidence: float = 0.999, delta: float = 0.0) -> float:
    """Return a lower bound on epsilon that holds with probability `confidence`, from independent outputs.

    epsilon >= log((Pr[E | away] - delta) / Pr[E | home]) for every event E, and the reverse. Half of the samples choose
    E and the direction, the other half measures it (`audit.event_search`). A value that occurs in only one of the
    samples is treated like any other.

    Outputs may be integers, floats or infinite; of several releases pass one score, such as the log-likelihood ratio.

    >>> truth = np.random.default_rng(1).random((2, 40_000)) < 0.75  # randomised response, epsilon = log 3 = 1.0986
    >>> round(epsilon_lower_bound(away=~truth[0], home=truth[1]), 2)
    1.03
    """
    return bound_epsilon_below([count_values(away, home)], _failure_probability(confidence), delta).epsilon


def _failure_probability(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise PrivacyError("confidence", confidence, "must lie between 0 and 1")
    return 1 - confidence
