"""How well two worlds can be told apart: what samples prove, and the most that a promise allows.

Away is the world in which a household is not occupied, home the one in which it is. A mechanism that promises epsilon
has Pr[E | one] <= e^epsilon Pr[E | other] + delta for every event E, so a single event that is seen to break this
refutes the promise. What is measured here is a lower bound: it convicts, and never acquits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from murmurate.audit.events import as_sample, count_values, lower, prove_epsilon, upper
from murmurate.errors import PrivacyError


def auc(away: Any, home: Any) -> float:
    """Area under the ROC curve: Pr[score of home > score of away] + Pr[equal]/2.

    1/2 is guessing, 1 is certainty. Unlike accuracy it does not depend on how often the household is home.

    >>> auc(away=[1, 2], home=[2, 3])
    0.875
    """
    low, high = np.sort(as_sample(away, "away")), as_sample(home, "home")
    beaten = np.searchsorted(low, high, side="left") + np.searchsorted(low, high, side="right")
    return float(beaten.mean() / (2 * len(low)))


def auc_bound(epsilon: float) -> float:
    """The largest AUC that any test can reach against pure epsilon: e^epsilon / (1 + e^epsilon).

    The ROC curve lies below y = e^eps x and below y = 1 - e^-eps (1 - x). They meet at x = 1/(1+e^eps), y = 1 - x = q;
    the area under both is (1-q) q/2 + q (q+1)/2 = q. Randomised response that tells the truth with chance q reaches it.

    >>> auc_bound(0.0), round(auc_bound(0.5), 4)
    (0.5, 0.6225)
    """
    return float(special.expit(epsilon))


def auc_refuted(found: float, most: float, pairs: int, failure: float) -> bool:
    """Whether an AUC of `found` shows that the true one is above `most`; wrongly so with chance `failure` at most.

    `pairs` is the number of disjoint pairs, min(n_0, n_1). The AUC is a mean over all ways to pair the samples off, so
    Pr[AUC >= a] <= exp(-pairs KL(a, most)) for a > most, whatever the law of the scores (Hoeffding 1963, section 5).

    >>> auc_refuted(0.60, 0.55, pairs=1000, failure=1e-3), auc_refuted(0.60, 0.55, pairs=2000, failure=1e-3)
    (False, True)
    """
    above = special.rel_entr(found, most) + special.rel_entr(1 - found, 1 - most)
    return bool(found > most and pairs * above > -np.log(failure))


class Interval(NamedTuple):
    """A confidence interval of a probability."""

    low: float
    high: float


def clopper_pearson(successes: int, trials: int, confidence: float) -> Interval:
    """The exact interval of a binomial probability: each side fails with chance at most (1 - confidence)/2.

    low and high are the (1-c)/2 quantile of Beta(k, n-k+1) and the (1+c)/2 quantile of Beta(k+1, n-k).

    >>> tuple(round(edge, 4) for edge in clopper_pearson(0, 10, 0.95))
    (0.0, 0.3085)
    """
    if not 0 <= successes <= trials or trials < 1:
        raise PrivacyError("successes", f"{successes} of {trials}", "must be between 0 and at least 1 trial")
    failure = _failure(confidence) / 2
    k = np.array([successes])
    return Interval(float(lower(k, trials, failure)[0]), float(upper(k, trials, failure)[0]))


def epsilon_lower_bound(away: Any, home: Any, confidence: float = 0.999, delta: float = 0.0) -> float:
    """A lower bound on epsilon that is true with chance `confidence` or more, from independent outputs of both worlds.

    epsilon >= log((Pr[E | one] - delta) / Pr[E | other]) for every event E and both ways round. Half of the samples
    choose E and the way round, the other half measures it (`audit.events`). A value that is never seen in one of the
    worlds counts as any other.

    Outputs may be integers, floats or infinite; of several releases pass one score, such as the log-likelihood ratio.

    >>> truth = np.random.default_rng(1).random((2, 40_000)) < 0.75  # randomised response, epsilon = log 3 = 1.0986
    >>> round(epsilon_lower_bound(away=~truth[0], home=truth[1]), 2)
    1.03
    """
    return prove_epsilon([count_values(away, home)], _failure(confidence), delta).epsilon


def _failure(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise PrivacyError("confidence", confidence, "must lie between 0 and 1")
    return 1 - confidence
