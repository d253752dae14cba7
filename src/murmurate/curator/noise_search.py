"""The search for the least noise that keeps every promise of a zone. Nothing rests on it: `prove` looks again.

First the tails: pure promises (an interval, a moment, a window without delta) bound how fast the density of the noise
may fall, for each kind of household by itself. Laplace noise with those tails keeps them. If a window with a delta asks
for more, either all of it is made wider, or a Gaussian core is put under the same tails (Huber noise). Without pure
promises Gaussian noise needs least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from murmurate.curator.noise_schedule import NoiseSchedule
from murmurate.curator.spending import keeps, kind_leakage, losses, width
from murmurate.curator.uneven import uneven_shape
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.errors import PrivacyError
from murmurate.privacy.calibration import Calibration, calibrate, least_scale
from murmurate.privacy.leakage import epsilon_for_leakage
from murmurate.privacy.noise import LEAST_SCALE_WH, NoiseLaw
from murmurate.privacy.promise import IntervalPromise, MomentPromise, Promise, WindowPromise
from murmurate.quantities import FloatArray, double_at_most

_MAX_EPSILON = 20.0
_DIGITS = 5e-5  # relative precision of a search; always on the safe side
_SLACK = 1e-6  # relative room below each promise, so that rounding never breaks it
_MAX_FACTOR = 1e9

Progress = Callable[[str], None]


def candidates(zone: Zone, progress: Progress) -> Iterator[NoiseSchedule]:
    """The least noise of each law that the promises and the zone file allow. Raises PrivacyError if there is none."""
    with_delta = [p for p in zone.promises if isinstance(p, WindowPromise) and p.delta]
    pure = [p for p in zone.promises if p not in with_delta]
    allowed = [NoiseLaw.LAPLACE]
    if with_delta and zone.calibration in {Calibration.RANGE, Calibration.SHIFT}:
        allowed.append(NoiseLaw.HUBER if pure else NoiseLaw.GAUSSIAN)
    if with_delta and not pure and zone.calibration is Calibration.EXACT:
        allowed.append(NoiseLaw.GAUSSIAN)
    laws = [law for law in allowed if zone.law in {None, law}]
    if not laws:
        which = " or ".join(law.value for law in allowed)
        raise PrivacyError("noise", zone.law.value if zone.law else None, f"cannot keep these promises; take {which}")
    if laws == [NoiseLaw.GAUSSIAN]:
        yield _gaussian(zone, with_delta, progress)
        return
    tails = _tails(zone, pure, progress)
    for law in laws:
        progress(f"{law.value} noise")
        if law is NoiseLaw.GAUSSIAN:
            yield _gaussian(zone, with_delta, progress)
        elif law is NoiseLaw.HUBER:
            yield _with_core(zone, tails, with_delta)
        else:
            yield _wider(zone, tails, with_delta)


def _keeps(zone: Zone, noise: NoiseSchedule, windows: list[WindowPromise]) -> bool:
    return all(keeps(zone, noise, promise, _SLACK) for promise in windows)


def _tails(zone: Zone, pure: list[Promise], progress: Progress) -> NoiseSchedule:
    """Laplace noise that keeps the pure promises."""
    progress("tails")
    needed = np.full(zone.intervals_per_day, LEAST_SCALE_WH)
    for kind in zone.kinds:
        scale_wh = np.full(zone.intervals_per_day, _interval_scale(zone, kind, pure))
        for promise in pure:
            if isinstance(promise, MomentPromise) and not kind.always_public:
                scale_wh = np.maximum(scale_wh, _moment_scale(zone, kind, float(promise.leakage) * (1 - _SLACK)))
        needed = np.maximum(needed, np.where(zone.is_protected(kind), scale_wh, 0.0))
    found = NoiseSchedule.of(NoiseLaw.LAPLACE, needed)
    windows = [promise for promise in pure if isinstance(promise, WindowPromise)]
    return _wider(zone, found, windows)


def _wider(zone: Zone, noise: NoiseSchedule, windows: list[WindowPromise]) -> NoiseSchedule:
    """The same noise, made wider until it keeps every window."""
    if not windows:
        return noise
    begin = max(_pure_epsilon(zone, noise, promise) / float(promise.epsilon) for promise in windows)
    return noise.times(_least(lambda factor: _keeps(zone, noise.times(factor), windows), 1.01 * begin))


def _pure_epsilon(zone: Zone, noise: NoiseSchedule, promise: WindowPromise) -> float:
    """What a window would cost at most if losses just added up."""
    return promise.intervals * max(float(np.max(losses(zone, noise, kind))) for kind in zone.kinds)


def _interval_scale(zone: Zone, kind: HouseholdKind, pure: list[Promise]) -> float:
    """The scale at which one interval costs no more than any promise about an interval or a moment allows [Wh]."""
    alone = [promise for promise in pure if not isinstance(promise, WindowPromise)]
    single = [promise.epsilon if isinstance(promise, IntervalPromise) else promise.leakage for promise in alone]
    epsilon = min([_MAX_EPSILON, *map(float, single)]) * (1 - _SLACK)
    return calibrate(kind.secret, Fraction(double_at_most(Fraction(epsilon))), zone.calibration, zone.eta)


def _moment_scale(zone: Zone, kind: HouseholdKind, target: float) -> FloatArray:
    """The scale [Wh, interval of the day] at which no moment of this kind leaks more than `target`, told the habits.

    `range` and `shift` lose u/b whatever the output, so epsilon is searched on the chain alone; then all of it is made
    wider until the changes of the clocks are covered. `exact` and `robust` lose less on one side than on the other.
    """
    day = zone.intervals_per_day
    epsilon = min(float(epsilon_for_leakage(model, target)[0]) for model in kind.models)
    if zone.calibration in {Calibration.RANGE, Calibration.SHIFT}:
        shape = uneven_shape(zone, kind, target, epsilon) if zone.uneven else np.ones(day)
        begin = shape * width(zone.calibration, kind.secret) / epsilon
    else:
        begin = np.full(day, calibrate(kind.secret, Fraction(epsilon), zone.calibration, zone.eta) / 2)

    def keeps(factor: float) -> bool:
        noise = NoiseSchedule.of(NoiseLaw.LAPLACE, np.maximum(begin * factor, LEAST_SCALE_WH))
        return kind_leakage(zone, kind, losses(zone, noise, kind)) <= target

    return np.maximum(begin * _least(keeps, 1.0), LEAST_SCALE_WH)


def _gaussian(zone: Zone, windows: list[WindowPromise], progress: Progress) -> NoiseSchedule:
    """The least multiple of each interval's width that keeps every window."""
    progress("gaussian noise")
    widths = [max(width(zone.calibration, kind.secret) for kind in kinds) for kinds in zone.protected]
    begin = NoiseSchedule.of(NoiseLaw.GAUSSIAN, np.maximum(np.array(widths, np.float64) / 1000, LEAST_SCALE_WH))
    enough = max(_enough_deviation(promise) * max(widths) / float(begin.scale_wh.min()) for promise in windows)
    return begin.times(_least(lambda factor: _keeps(zone, begin.times(factor), windows), enough))


def _enough_deviation(promise: WindowPromise) -> float:
    """About the deviation, for a width of 1, that a textbook would take for a window."""
    epsilon = float(promise.epsilon)
    zero_concentrated = math.sqrt(math.log(1 / float(promise.delta)))
    return math.sqrt(promise.intervals / 2) * (zero_concentrated + math.sqrt(zero_concentrated**2 + epsilon)) / epsilon


def _with_core(zone: Zone, tails: NoiseSchedule, windows: list[WindowPromise]) -> NoiseSchedule:
    """The least Gaussian core, as a multiple of the tails' scale, that keeps every window."""

    def huber(thousandths: float) -> NoiseSchedule:
        core_wh = np.ceil(thousandths / 1000 * tails.scale_wh).astype(np.int64)
        return NoiseSchedule.of(NoiseLaw.HUBER, tails.scale_wh, core_wh)

    return huber(_least(lambda thousandths: _keeps(zone, huber(thousandths), windows), 1000.0))


def _least(keeps: Callable[[float], bool], begin: float) -> float:
    """The least factor, 1 or more, that keeps a promise which more noise only helps: to some digits, from above.

    It is sought downwards from `begin`, or from above that if need be: at first in small steps, because often a little
    more is enough.
    """
    low, high, step = 1.0, max(begin, 1.0), 1e-4
    while not keeps(high):
        low, high, step = high, high * (1 + step), min(10 * step, 3.0)
        if high > _MAX_FACTOR:
            raise PrivacyError("promise", "too strict", "cannot be kept by any reasonable noise")
    return low * least_scale(lambda factor: keeps(low * factor), high / low, _DIGITS)
