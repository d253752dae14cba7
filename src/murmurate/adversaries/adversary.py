"""Attackers and the inference that each can compute (pure functions of numbers; natural logarithms throughout).

============  ==========================================  ===========================================================
adversary     knows                                       computes
============  ==========================================  ===========================================================
strong        everything but one household                its posterior, by forward-backward on its two-state chain
public        the public model and the prices             the likelihood ratio, the rest of the zone by two moments
joint         the public model; few households            every household's posterior from the one over 2^N states
differencing  two releases that differ by one household   their difference
============  ==========================================  ===========================================================

The promise holds against the strong attacker. Log odds are log Pr[S = 1 | ..] / Pr[S = 0 | ..]. Arrays may have
leading axes (days, samples) before the named axes. `auc` measures an attacker, and `auc_bound` is the largest AUC that
a promise allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from murmurate.adversaries.event_search import as_sample
from murmurate.errors import ModelError
from murmurate.units import BoolArray, FloatArray, IntArray, as_int64_array

LogPmf = Callable[[IntArray], FloatArray]  # noise [Wh] -> log Pr[K = noise]

_MAX_BLOCK_ELEMENTS = 2**20  # array elements per block


def emission_log_likelihood(
    published_wh: IntArray, rest_wh: Any, away_pmf: FloatArray, home_pmf: FloatArray, noise_log_pmf: LogPmf
) -> FloatArray:
    """Return log Pr[published | S = s] [.., interval, occupied].

    It is log sum over x of f_s(x) Pr[K = published - rest - x].

    `rest_wh` is the demand of all other households, which the strong attacker knows. f_s(x) is for x = 0, 1, .. [Wh].

    >>> exact = lambda noise_wh: np.where(noise_wh == 0, 0.0, -np.inf)
    >>> away, home = np.array([0.75, 0.25]), np.array([0.0, 0.5, 0.5])
    >>> np.exp(emission_log_likelihood(np.array([7, 9]), 7, away, home, exact)).tolist()
    [[0.75, 0.0], [0.0, 0.5]]
    """
    distance, position = np.unique(published_wh - as_int64_array(rest_wh, "rest_wh", ModelError), return_inverse=True)
    log_pmfs = [_log(pmf) for pmf in (away_pmf, home_pmf)]
    mixtures = [_log_mixture(distance, log_pmf, lambda noise_wh, _: noise_log_pmf(noise_wh)) for log_pmf in log_pmfs]
    log_likelihood: FloatArray = np.stack(mixtures, axis=-1)[position.reshape(np.shape(published_wh))]
    return log_likelihood


def smoothed_log_odds(initial: Any, transition: Any, log_emission: Any) -> FloatArray:
    """Return the log odds of S^t given all releases, past and future [.., interval].

    Pr[S^t = s | r^1..r^T] is proportional to a_t(s) b_t(s), where a_1 = initial e_1 and a_t = (a_{t-1} A^t) e_t run
    forwards, b_T = 1 and b_{t-1} = A^t (e_t b_t) backwards.

    `initial` [occupied] is the prior of the first interval, `transition` [interval, from, to] enters each interval (its
    first row is not used), `log_emission` [.., interval, occupied]. Raises ModelError where no state is possible.

    >>> stays = np.broadcast_to(np.eye(2), (2, 2, 2))
    >>> smoothed_log_odds([0.5, 0.5], stays, np.log([[[0.2, 0.8], [0.5, 0.5]]])).round(4).tolist()
    [[1.3863, 1.3863]]
    """
    start, steps, emission = _as_log_chain(initial, transition, log_emission)
    belief = _forward(start, steps, emission)
    later = np.zeros_like(belief)
    for t in range(belief.shape[-2] - 1, 0, -1):
        ahead = emission[..., t, :] + later[..., t, :]
        later[..., t - 1, :] = np.logaddexp.reduce(steps[t] + ahead[..., None, :], axis=-1)
    return _log_odds(belief + later)


def filtered_log_odds(initial: Any, transition: Any, log_emission: Any) -> FloatArray:
    """Return the log odds of S^t given the releases up to t: the belief of the strong attacker at t [.., interval].

    >>> stays = np.broadcast_to(np.eye(2), (2, 2, 2))
    >>> filtered_log_odds([0.5, 0.5], stays, np.log([[0.5, 0.5], [0.2, 0.8]])).round(4).tolist()
    [0.0, 1.3863]
    """
    return _log_odds(_forward(*_as_log_chain(initial, transition, log_emission)))


def public_log_ratio(
    published_wh: Any,
    rest_mean_wh: Any,
    rest_variance: Any,
    away_pmf: FloatArray,
    home_pmf: FloatArray,
    scale_wh: float,
) -> FloatArray:
    """Return log Pr[published | S = 1] / Pr[published | S = 0] of each interval for an attacker with the public model.

    published = X + R + K: X has the pmf f_s on 0, 1, .. [Wh]; R, all other households, is normal with the given mean
    [Wh] and variance [Wh^2]; K is Laplace noise of scale b = `scale_wh`, 0 for none. The density of R + K at m + d is
    phi(d/σ)/σ for b = 0, else e^(-d²/2σ²)/(4b) (erfcx((σ/b - d/σ)/√2) + erfcx((σ/b + d/σ)/√2)).

    For a stream, pass (0, score) to `smoothed_log_odds` as the log emission. R is then independent between intervals.

    >>> home, away = np.full(5, 1 / 5), np.full(3, 1 / 3)
    >>> public_log_ratio([11, 12, 14], 10, 0.5, away, home, scale_wh=0.0).round(2).tolist()
    [-0.5, -0.27, 3.81]
    """
    published, mean, variance = np.broadcast_arrays(
        *(np.asarray(v, np.float64) for v in (published_wh, rest_mean_wh, rest_variance))
    )
    if not (variance > 0).all():
        raise ModelError(
            "rest_variance",
            float(variance.min()),
            "must be above 0 Wh^2; without other households use the strong attacker",
        )
    surplus, sigma = (published - mean).ravel(), np.sqrt(variance).ravel()

    def log_density(deviation_wh: FloatArray, rows: slice) -> FloatArray:
        standard = deviation_wh / sigma[rows, None]
        if scale_wh == 0:
            normal: FloatArray = -(standard**2) / 2 - np.log(sigma[rows, None]) - np.log(2 * np.pi) / 2
            return normal
        up, down = ((sigma[rows, None] / scale_wh - side) / np.sqrt(2) for side in (standard, -standard))
        both: FloatArray = np.logaddexp(_log_erfcx(up), _log_erfcx(down)) - standard**2 / 2 - np.log(4 * scale_wh)
        return both

    away, home = (_log_mixture(surplus, _log(pmf), log_density) for pmf in (away_pmf, home_pmf))
    return (home - away).reshape(published.shape)


def joint_log_odds(log_posterior: Any) -> FloatArray:
    """Return the log odds of each household from a log posterior over 2^N joint states [.., state] -> [.., household].

    Pr[S_i = 1 | r] is the sum over the states whose bit i is set (`household.occupancy`; paper, Eq. 3).

    >>> joint_log_odds(np.log([0.1, 0.2, 0.3, 0.4])).round(4).tolist()
    [0.4055, 0.8473]
    """
    posterior = np.asarray(log_posterior, np.float64)
    states = posterior.shape[-1]
    households = states.bit_length() - 1
    if states != 2**households:
        raise ModelError("log_posterior", f"of {states} states", "must have 2**N of them")
    home: BoolArray = (np.arange(states)[None, :] >> np.arange(households)[:, None] & 1).astype(bool)
    by_state = (np.where(states_of, posterior[..., None, :], -np.inf) for states_of in (~home, home))
    return _log_odds(np.stack([np.logaddexp.reduce(weights, axis=-1) for weights in by_state], axis=-1))


def differencing_score(release_with: Any, release_without: Any) -> FloatArray:
    """Return the score of one household: a release with it minus a release without it, in Wh [.., interval].

    The score is the reading if both releases are exact, and X + K - K' if both have noise.

    >>> differencing_score([5400, 5000], [5000, 5100]).tolist()
    [400.0, -100.0]
    """
    return np.asarray(release_with, np.float64) - np.asarray(release_without, np.float64)


def max_log_odds_shift(posterior_log_odds: Any, prior_log_odds: Any) -> float:
    """Return max |log posterior odds - log prior odds|: the largest change due to the releases.

    The change is 0 if prior and posterior are equally certain. It is the absolute log-likelihood ratio, so pure
    epsilon bounds it by epsilon for a household that is independent from one interval to the next.

    >>> max_log_odds_shift([0.5, np.inf], [0.2, np.inf])
    0.3
    """
    posterior, prior = np.broadcast_arrays(
        np.asarray(posterior_log_odds, np.float64), np.asarray(prior_log_odds, np.float64)
    )
    change = np.zeros(posterior.shape)
    np.subtract(posterior, prior, out=change, where=posterior != prior)
    return float(np.abs(change).max(initial=0.0))


def _as_log_chain(initial: Any, transition: Any, log_emission: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the arrays of a two-state chain in logarithms. Raises ModelError if their shapes do not fit."""
    emission = np.asarray(log_emission, np.float64)
    start, steps = _log(initial), _log(transition)
    step_shape = (emission.shape[-2], 2, 2) if emission.ndim > 1 else None
    if start.shape != (2,) or steps.shape != step_shape or emission.shape[-1] != 2:
        shapes = (start.shape, steps.shape, emission.shape)
        raise ModelError("chain", f"shaped {shapes}", "must be [2], [interval, 2, 2] and [.., interval, 2]")
    return start, steps, emission


def _forward(start: FloatArray, steps: FloatArray, emission: FloatArray) -> FloatArray:
    """log a_t(s) [.., interval, occupied], up to a constant of each interval."""
    belief = np.zeros_like(emission)
    prior = start
    for t in range(emission.shape[-2]):
        if t:
            prior = np.logaddexp.reduce(belief[..., t - 1, :, None] + steps[t], axis=-2)
        belief[..., t, :] = prior + emission[..., t, :]
    return belief


def _log_odds(log_weight: FloatArray) -> FloatArray:
    """log w_1 - log w_0 along the last axis."""
    if not (log_weight > -np.inf).any(axis=-1).all():
        raise ModelError("log_emission", "impossible", "must give one of the states a positive probability")
    odds: FloatArray = log_weight[..., 1] - log_weight[..., 0]
    return odds


def _log(probability: Any) -> FloatArray:
    with np.errstate(divide="ignore"):
        log_probability: FloatArray = np.log(np.asarray(probability, np.float64))
    return log_probability


def _log_mixture(surplus_wh: Any, log_pmf: FloatArray, log_noise: Callable[[Any, slice], FloatArray]) -> FloatArray:
    """log sum over x of f(x) p(surplus - x) [surplus]; `log_noise` also gets the slice of rows."""
    (support,) = np.nonzero(log_pmf > -np.inf)
    mixture = np.zeros(len(surplus_wh))
    height = max(1, _MAX_BLOCK_ELEMENTS // max(1, len(support)))
    for first in range(0, len(mixture), height):
        rows = slice(first, first + height)
        terms = log_pmf[support] + log_noise(surplus_wh[rows, None] - support, rows)
        highest = terms.max(axis=1, keepdims=True)
        highest = np.where(np.isfinite(highest), highest, 0.0)
        mixture[rows] = _log(np.exp(terms - highest).sum(axis=1)) + highest[:, 0]
    return mixture


def _log_erfcx(z: FloatArray) -> FloatArray:
    """log(e^(z²) erfc(z)), which overflows on neither side."""
    negative = np.minimum(z, 0)
    below = negative**2 + np.log(2) + special.log_ndtr(-np.sqrt(2) * negative)
    log_erfcx: FloatArray = np.where(z > 0, np.log(special.erfcx(np.maximum(z, 0))), below)
    return log_erfcx


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
