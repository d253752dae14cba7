"""The noise of a plan as an audit needs it. Only this file and `release` depend on its distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from murmurate.audit import adversary
from murmurate.audit.adversary import LogPmf
from murmurate.planning.plan import Plan
from murmurate.privacy.divergence import SecretPair, huber_log_pmf
from murmurate.privacy.noise import NoiseDistribution, laplace_log_pmf
from murmurate.units import BoolArray, FloatArray, IntArray

_RATIO_KNOTS = 4097  # at which a log likelihood ratio is computed before it is interpolated
_TAIL_SIGMAS = 10  # deviations of Gaussian noise beyond which a ratio is taken as constant


def remove_noise(plan: Plan) -> Plan:
    """Return the plan with scale 0 in every interval, for comparison in an audit."""
    none = replace(
        plan.noise,
        distribution=NoiseDistribution.LAPLACE,
        scale_wh=np.zeros_like(plan.scale_wh),
        core_wh=np.zeros_like(plan.core_wh),
    )
    return replace(plan, noise=none)


def group_intervals_by_noise(plan: Plan) -> Iterator[tuple[int, BoolArray]]:
    """Yield one interval of each noise scale and core, and all intervals that share them."""
    slots = plan.noise.scales_and_cores()
    for slot in dict.fromkeys(slots):
        same = np.array([candidate == slot for candidate in slots])
        yield int(same.argmax()), same


def noise_log_pmf(plan: Plan, t: int) -> LogPmf:
    """Return log Pr[K = k] of the noise of interval t, up to a constant; all the mass at 0 where the scale is 0."""
    scale, core = plan.noise.scales_and_cores()[t]
    if plan.distribution is NoiseDistribution.GAUSSIAN:
        return lambda noise_wh: -((np.asarray(noise_wh, np.float64) / scale) ** 2) / 2
    if plan.distribution is NoiseDistribution.HUBER:
        return lambda noise_wh: huber_log_pmf(noise_wh, scale, core)
    return lambda noise_wh: laplace_log_pmf(noise_wh, scale)


def normal_and_laplace(plan: Plan, t: int) -> tuple[float, float]:
    """Return the noise of interval t as the variance of a normal part [Wh^2] and the scale of a Laplace part [Wh].

    Noise with a core is approximated as normal. This weakens the attack, and the verdict stays valid.
    """
    scale, core = plan.noise.scales_and_cores()[t]
    is_normal = core > 0 or plan.distribution is NoiseDistribution.GAUSSIAN
    return (float(plan.noise_variance[t]), 0.0) if is_normal else (0.0, scale)


def log_likelihood_ratio(plan: Plan, secret_pair: SecretPair, t: int) -> Callable[[IntArray], FloatArray]:
    """Return the log likelihood ratio of home against away at a noisy reading, constant far from 0 and the bound."""
    scale, core = plan.noise.scales_and_cores()[t]
    reach = _TAIL_SIGMAS * scale if plan.distribution is NoiseDistribution.GAUSSIAN else core
    knots = np.unique(np.rint(np.linspace(-reach, secret_pair.bound_wh + reach, _RATIO_KNOTS)).astype(np.int64))
    away, home = adversary.emission_log_likelihood(
        knots, 0, secret_pair.away, secret_pair.home, noise_log_pmf(plan, t)
    ).T
    return lambda reading_wh: np.asarray(np.interp(reading_wh, knots, home - away))
