"""Search the least noise that keeps every promise of a zone. No proof relies on it: `prove_plan` checks its result.

The search begins with the tails. Pure promises (an interval, a moment, a window without delta) bound how fast the
density of the noise may fall, for each kind of household separately. Laplace noise with those tails keeps them. If a
window with a delta needs more noise, either the scale grows, or the noise gets a Gaussian core (Huber noise). If there
are no pure promises, Gaussian noise needs the smallest variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.privacy_cost import NoiseSchedule, keeps_window, kind_leakage, kind_losses
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.privacy.calibration import bisect_range, laplace_scale, min_scale
from murmurate.privacy.divergence import normal_cdf
from murmurate.privacy.leakage import epsilon_for_leakage
from murmurate.privacy.noise import MIN_SCALE_WH, NoiseDistribution
from murmurate.privacy.promise import MomentPromise, Promise, WindowPromise, promise_epsilon
from murmurate.units import round_down_to_double

_MAX_EPSILON = 20.0
_SEARCH_TOLERANCE = 5e-5  # relative precision of a search; always on the safe side
_PROMISE_MARGIN = 1e-6  # relative room below each promise, so that rounding never breaks it
_MAX_FACTOR = 1e9
_LONG_WINDOW = 96  # intervals from which a Gaussian core needs less noise than wider Laplace tails, for any epsilon

PlanProgress = Callable[[str], None]


def noise_candidates(zone: Zone, progress: PlanProgress) -> Iterator[NoiseSchedule]:
    """Yield the least noise of each distribution that the promises and the zone file allow.

    Raises PrivacyError if no distribution is allowed.
    """
    with_delta = [p for p in zone.promises if isinstance(p, WindowPromise) and p.delta]
    pure = [p for p in zone.promises if p not in with_delta]
    allowed = [NoiseDistribution.LAPLACE]
    if with_delta:
        allowed.append(NoiseDistribution.HUBER if pure else NoiseDistribution.GAUSSIAN)
    candidates = [name for name in allowed if zone.distribution in {None, name}]
    if not candidates:
        choices = " or ".join(name.value for name in allowed)
        raise PrivacyError(
            "noise",
            zone.distribution.value if zone.distribution else None,
            f"cannot keep these promises; take {choices}",
        )
    if max((promise.intervals for promise in with_delta), default=0) >= _LONG_WINDOW and len(candidates) > 1:
        candidates.remove(NoiseDistribution.LAPLACE)
    if candidates == [NoiseDistribution.GAUSSIAN]:
        yield _gaussian_schedule(zone, with_delta, progress)
        return
    tails = _laplace_tails(zone, pure, progress)
    if zone.distribution is None and _keeps_all_windows(zone, tails, with_delta):
        yield tails
        return
    for distribution in candidates:
        progress(f"{distribution.value} noise")
        if distribution is NoiseDistribution.GAUSSIAN:
            yield _gaussian_schedule(zone, with_delta, progress)
        elif distribution is NoiseDistribution.HUBER:
            yield _huber_schedule(zone, tails, with_delta)
        else:
            yield _widen_noise(zone, tails, with_delta)


def _keeps_all_windows(zone: Zone, noise: NoiseSchedule, windows: list[WindowPromise]) -> bool:
    return all(keeps_window(zone, noise, promise, _PROMISE_MARGIN) for promise in windows)


def _laplace_tails(zone: Zone, pure: list[Promise], progress: PlanProgress) -> NoiseSchedule:
    """Return Laplace noise that keeps the pure promises."""
    progress("tails")
    needed = np.full(zone.intervals_per_day, MIN_SCALE_WH)
    short = [promise for promise in pure if not isinstance(promise, WindowPromise)]
    limits = [_MAX_EPSILON, *(float(promise_epsilon(promise)) for promise in short)]
    for kind in zone.kinds:
        epsilon = Fraction(min(limits) * (1 - _PROMISE_MARGIN))  # of one interval, for an interval or a moment
        scale_wh = max(laplace_scale(kind.range_wh, Fraction(round_down_to_double(epsilon))), MIN_SCALE_WH)
        for promise in pure:
            if isinstance(promise, MomentPromise) and not kind.always_public:
                scale_wh = max(scale_wh, _moment_scale(zone, kind, float(promise.leakage) * (1 - _PROMISE_MARGIN)))
        needed = np.maximum(needed, np.where(zone.protected_intervals(kind), scale_wh, 0.0))
    noise = NoiseSchedule.from_scales(NoiseDistribution.LAPLACE, needed)
    windows = [promise for promise in pure if isinstance(promise, WindowPromise)]
    return _widen_noise(zone, noise, windows)


def _widen_noise(zone: Zone, noise: NoiseSchedule, windows: list[WindowPromise]) -> NoiseSchedule:
    """Scale the noise up until it keeps every window."""
    if not windows:
        return noise
    loss = max(float(np.max(kind_losses(zone, noise, kind))) for kind in zone.kinds)
    begin = max(promise.intervals * loss / float(promise.epsilon) for promise in windows)  # basic composition
    return noise.scaled_by(
        _min_factor(lambda factor: _keeps_all_windows(zone, noise.scaled_by(factor), windows), 1.01 * begin)
    )


def _moment_scale(zone: Zone, kind: HouseholdKind, target: float) -> float:
    """Return the scale at which no moment of this kind leaks more than `target` [Wh].

    The attacker knows the habits. The loss is at most u/b for every output, so epsilon is searched on the chain alone.
    Then the scale grows until the bound also holds across clock changes.
    """
    begin_wh = kind.range_wh / min(epsilon_for_leakage(model, target) for model in kind.models)

    def keeps(factor: float) -> bool:
        scales_wh = np.full(zone.intervals_per_day, max(begin_wh * factor, MIN_SCALE_WH))
        noise = NoiseSchedule.from_scales(NoiseDistribution.LAPLACE, scales_wh)
        return kind_leakage(zone, kind, kind_losses(zone, noise, kind)) <= target

    return max(begin_wh * _min_factor(keeps, 1.0), MIN_SCALE_WH)


def _gaussian_schedule(zone: Zone, windows: list[WindowPromise], progress: PlanProgress) -> NoiseSchedule:
    """Return Gaussian noise with the least multiple of each interval's sensitivity that keeps every window."""
    progress("gaussian noise")
    sensitivities = [max(kind.range_wh for kind in kinds) for kinds in zone.protected_kinds]
    begin = NoiseSchedule.from_scales(
        NoiseDistribution.GAUSSIAN, np.maximum(np.array(sensitivities, np.float64) / 1000, MIN_SCALE_WH)
    )
    expected = max(gaussian_deviation(promise) for promise in windows)
    first = (1 - _SEARCH_TOLERANCE) * 1000 * expected  # just too little: the search goes up from there
    return begin.scaled_by(
        _min_factor(lambda factor: _keeps_all_windows(zone, begin.scaled_by(factor), windows), first)
    )


def gaussian_deviation(promise: WindowPromise) -> float:
    """Return the standard deviation of Gaussian noise on the line that keeps a window with a delta, for sensitivity 1.

    T releases of deviation s are one with mu = sqrt(T)/s, whose curve is delta = Phi(mu/2 - epsilon/mu) - e^epsilon
    Phi(-mu/2 - epsilon/mu) (Balle and Wang 2018). It proves nothing: noise on the lattice is composed by itself.
    """
    epsilon, delta = float(promise.epsilon), float(promise.delta)

    def keeps(inverse_mu: float) -> bool:
        mu = 1 / inverse_mu
        above, below = normal_cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return bool(above - math.exp(epsilon) * below <= delta)

    zero_concentrated = math.sqrt(math.log(1 / delta))  # sufficient, by zCDP
    sufficient = (zero_concentrated + math.sqrt(zero_concentrated**2 + epsilon)) / (math.sqrt(2) * epsilon)
    _, inverse_mu = bisect_range(keeps, 0.0, sufficient, 1e-9)
    return math.sqrt(promise.intervals) * inverse_mu


def _huber_schedule(zone: Zone, tails: NoiseSchedule, windows: list[WindowPromise]) -> NoiseSchedule:
    """Return Huber noise with the least Gaussian core, as a multiple of the scale, that keeps every window.

    The search begins with a core whose Gaussian noise would just not keep them.
    """
    deviation_wh = np.array(
        [
            max(gaussian_deviation(promise) for promise in windows) * max(kind.range_wh for kind in kinds)
            for kinds in zone.protected_kinds
        ]
    )
    first = 1000 * (1 - _SEARCH_TOLERANCE) * float(((deviation_wh / tails.scale_wh) ** 2).max())

    def huber(thousandths: float) -> NoiseSchedule:
        core_wh = np.ceil(thousandths / 1000 * tails.scale_wh).astype(np.int64)
        return NoiseSchedule.from_scales(NoiseDistribution.HUBER, tails.scale_wh, core_wh)

    return huber(_min_factor(lambda thousandths: _keeps_all_windows(zone, huber(thousandths), windows), first))


def _min_factor(keeps: Callable[[float], bool], begin: float) -> float:
    """Return the least factor, 1 or more, at which `keeps` is true. The result is rounded up by the search tolerance.

    `keeps` must be monotone: more noise never breaks a promise. The search goes down from `begin`. If `begin` is too
    small, it grows first, initially in small steps, since a small increase is often sufficient.
    """
    low, high, step = 1.0, max(begin, 1.0), 1e-4
    while not keeps(high):
        low, high, step = high, high * (1 + step), min(10 * step, 3.0)
        if high > _MAX_FACTOR:
            raise PrivacyError("promise", "too strict", "cannot be kept by any reasonable noise")
    return low * min_scale(lambda factor: keeps(low * factor), high / low, _SEARCH_TOLERANCE)
