"""What an audit must know of a plan's noise. All that depends on the law of the noise is here, and in `release`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from murmurate.audit import adversary
from murmurate.audit.adversary import LogPmf
from murmurate.curator.plan import Plan
from murmurate.privacy.divergence import Secret
from murmurate.privacy.huber import huber_log_pmf
from murmurate.privacy.noise import NoiseLaw, laplace_log_pmf
from murmurate.quantities import BoolArray, FloatArray, IntArray

_KNOTS = 4097  # at which a log likelihood ratio is computed before it is interpolated
_FAR = 10  # deviations of Gaussian noise beyond which a ratio is taken as constant


def without_noise(plan: Plan) -> Plan:
    """The same plan with a scale of 0 throughout: only an audit may look at it."""
    none = replace(
        plan.noise,
        law=NoiseLaw.LAPLACE,
        scale_wh=np.zeros_like(plan.scale_wh),
        core_wh=np.zeros_like(plan.core_wh),
    )
    return replace(plan, noise=none)


def intervals_alike(plan: Plan) -> Iterator[tuple[int, BoolArray]]:
    """One interval of each kind of noise, and all the intervals that have it."""
    slots = plan.noise.slots()
    for slot in dict.fromkeys(slots):
        same = np.array([each == slot for each in slots])
        yield int(same.argmax()), same


def log_pmf(plan: Plan, t: int) -> LogPmf:
    """log Pr[K = k] of the noise of interval t, up to a constant; all the mass at 0 where the scale is 0."""
    scale, core = plan.noise.slots()[t]
    if plan.law is NoiseLaw.GAUSSIAN:
        return lambda noise_wh: -((np.asarray(noise_wh, np.float64) / scale) ** 2) / 2
    if plan.law is NoiseLaw.HUBER:
        return lambda noise_wh: huber_log_pmf(noise_wh, scale, core)
    return lambda noise_wh: laplace_log_pmf(noise_wh, scale)


def normal_and_laplace(plan: Plan, t: int) -> tuple[float, float]:
    """The noise of interval t as the sum of a normal part, its variance [Wh^2], and a Laplace part, its scale [Wh].

    Noise with a core counts as normal: an attack that approximates is weaker, not wrong.
    """
    scale, core = plan.noise.slots()[t]
    is_normal = core > 0 or plan.law is NoiseLaw.GAUSSIAN
    return (float(plan.noise_variance[t]), 0.0) if is_normal else (0.0, scale)


def evidence(plan: Plan, secret: Secret, t: int) -> Callable[[IntArray], FloatArray]:
    """The log likelihood ratio of home against away at a noised reading; constant far from 0 and the bound."""
    scale, core = plan.noise.slots()[t]
    reach = _FAR * scale if plan.law is NoiseLaw.GAUSSIAN else core
    knots = np.unique(np.rint(np.linspace(-reach, secret.bound_wh + reach, _KNOTS)).astype(np.int64))
    away, home = adversary.log_emission(knots, 0, secret.away, secret.home, log_pmf(plan, t)).T
    return lambda reading_wh: np.asarray(np.interp(reading_wh, knots, home - away))
