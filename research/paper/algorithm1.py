"""Algorithm 1 of the paper as printed: the joint filter over 2^N states in log space.

It is a test oracle for the Boolean schedule (`policy.py`) and for an attacker who knows the whole model. The service
does not run it. Names are the paper's. The published value is the noisy demand in Wh. The rate is a function of it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from typing import NamedTuple

import numpy as np

from murmurate.errors import ModelError
from murmurate.household.consumption import ConsumptionModel
from murmurate.household.occupancy import LogJointChain, ModelClass, log_joint_chain
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.calibration import laplace_scale
from murmurate.privacy.noise import laplace_log_pmf
from murmurate.units import FloatArray, IntArray, wh_to_kwh


class ModelStep(NamedTuple):
    """The values of Algorithm 1 in one interval under one model theta."""

    prior: FloatArray  # [state] log P^{t|t-1, theta}
    mu: frozenset[int]  # states of non-zero prior
    nu: frozenset[tuple[int, int]]  # pairs of them that differ in one entry
    kappa: frozenset[int]  # the entries in which such pairs differ
    lambda_: Fraction  # alpha max u_h over kappa [money/kWh]; 0 if kappa is empty
    posterior: FloatArray  # [state] log P^{t|t, theta}


class Algorithm1Step(NamedTuple):
    """One interval of Algorithm 1: the step of every model, and their union or maximum."""

    models: tuple[ModelStep, ...]
    kappa: frozenset[int]  # union over models
    lambda_: Fraction  # maximum over models [money/kWh]
    scale_wh: float  # scale of the noise on the demand, lambda/(alpha epsilon) [Wh]


def run_algorithm_1(
    model_class: ModelClass,
    consumption: ConsumptionModel,
    curve: RateCurve,
    epsilon: Fraction,
    published_wh: IntArray,
    floor_wh: int = 0,
) -> list[Algorithm1Step]:
    """Run Algorithm 1 against published values [Wh, interval], one step per value.

    `floor_wh` 0 is the printed algorithm, which publishes the exact demand where kappa is empty. Needs an affine curve
    and a small N; cost 4^N per model and interval.
    """
    joints = [log_joint_chain(model) for model in model_class.models]
    priors = [joint.initial for joint in joints]
    steps = []
    for interval, published in enumerate(published_wh):
        neighbourhoods = [_neighbourhood(prior) for prior in priors]
        union = frozenset().union(*(kappa for _, _, kappa in neighbourhoods))
        sensitivity_wh = max(_max_bound(union, consumption.bound_wh), floor_wh)
        scale_wh = laplace_scale(sensitivity_wh, epsilon)
        past_ticks = curve.price_ticks(published_wh[:interval])
        likelihood = log_likelihood(consumption, int(published), scale_wh, interval, past_ticks)
        posteriors = [_condition(prior, likelihood) for prior in priors]
        models = tuple(
            ModelStep(prior, mu, nu, kappa, curve.alpha * wh_to_kwh(_max_bound(kappa, consumption.bound_wh)), posterior)
            for prior, (mu, nu, kappa), posterior in zip(priors, neighbourhoods, posteriors, strict=True)
        )
        steps.append(Algorithm1Step(models, union, curve.alpha * wh_to_kwh(sensitivity_wh), scale_wh))
        priors = [_predict(post, joint, interval + 1) for post, joint in zip(posteriors, joints, strict=True)]
    return steps


def log_likelihood(
    consumption: ConsumptionModel, published_wh: int, scale_wh: float, interval: int, past_ticks: IntArray
) -> FloatArray:
    """Return log Pr[published | M] for all 2^N states M: the distribution of demand convolved with the noise."""
    households = range(len(consumption.bound_wh))
    pmfs = [[consumption.pmf(i, bool(s), interval, past_ticks) for s in (0, 1)] for i in households]
    likelihoods = []
    for state in range(2 ** len(households)):
        demand = reduce(np.convolve, (pmfs[i][state >> i & 1] for i in households))
        with np.errstate(divide="ignore"):
            terms = np.log(demand) + laplace_log_pmf(published_wh - np.arange(len(demand)), scale_wh)
        likelihoods.append(np.logaddexp.reduce(terms))
    return np.array(likelihoods)


def _predict(posterior: FloatArray, joint: LogJointChain, interval: int) -> FloatArray:
    """Prior of the next interval: P A^t (Eq. 2)."""
    step = joint.transition[interval % len(joint.transition)]
    prior: FloatArray = np.logaddexp.reduce(posterior[:, None] + step, axis=0)
    return prior


def _condition(prior: FloatArray, likelihood: FloatArray) -> FloatArray:
    """Posterior by Bayes (Eq. 3)."""
    joint = prior + likelihood
    evidence = np.logaddexp.reduce(joint)
    if evidence == -np.inf:
        raise ModelError("published_wh", "impossible", "must be a value that this model gives positive probability")
    posterior: FloatArray = joint - evidence
    return posterior


def _neighbourhood(prior: FloatArray) -> tuple[frozenset[int], frozenset[tuple[int, int]], frozenset[int]]:
    """mu, nu and kappa (Algorithm 1, lines 5-7)."""
    mu = frozenset(int(state) for state in np.flatnonzero(prior > -np.inf))
    nu = frozenset((a, b) for a in mu for b in mu if (a ^ b).bit_count() == 1)
    return mu, nu, frozenset((a ^ b).bit_length() - 1 for a, b in nu)


def _max_bound(kappa: frozenset[int], bound_wh: IntArray) -> int:
    return max((int(bound_wh[house]) for house in kappa), default=0)
