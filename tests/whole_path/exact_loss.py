"""The exact privacy loss of a simulated history, by brute force: of an interval, of a window and of a moment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from murmurate.household.occupancy import OccupancyChains
from murmurate.planning.plan import Plan
from murmurate.planning.zone import HouseholdKind
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
from murmurate.time_zones import utc_offset_min
from tests.support import finite_leakage
from tests.whole_path.random_zones import SampleFile, SampleZone
from tests.whole_path.simulated_history import HIGH, LOW, NoiseRequest, SimulatedHistory, SimulatedInterval

FAR_OUTPUT_WH = 10**7  # an output far from every demand
ROUNDING = 1e-6


class BrokenPromise(NamedTuple):
    """A promise that does not hold."""

    promise: str
    claimed: float
    true: float


def broken_promises(sample: SampleZone, history: SimulatedHistory) -> Iterator[BrokenPromise]:
    """Yield every promise that this history breaks."""
    for released in history.intervals:
        if len(released.kinds) > 1:
            yield BrokenPromise("no meter value changes the kind of a record", 0.0, np.inf)
            return
        if released.noise_request is not None and log_pmf(released.noise_request, np.array([0]))[0] > np.log(0.9):
            yield BrokenPromise("no exact demand", 0.0, np.inf)
    if sample.files[0].kinds[sample.target].public == "always":
        return
    for kinds in _target_kinds(sample, history):
        secret = [not is_public(sample.files[s.plan], kinds[s.plan], s.interval) for s in history.intervals]
        pairs = [
            _output_pair(history, s) if s.noise_request is not None and hidden else None
            for s, hidden in zip(history.intervals, secret, strict=True)
        ]
        yield from _broken_intervals(history, pairs)
        yield from _broken_windows(history, pairs)
        yield from _broken_moments(sample, history, kinds, pairs)


def _target_kinds(sample: SampleZone, history: SimulatedHistory) -> Iterator[dict[int, HouseholdKind]]:
    """Yield the kind of the target under each plan that was in force.

    Under the next plan it is the kind with the same description or, without one, any kind with a sufficient range.
    """
    target = [m for m in sample.meters if (m.kind, m.household) == (sample.target, 0)]
    range_wh = sum(m.bound_wh + m.export_bound_wh for m in target)
    in_force = sorted({released.plan for released in history.intervals})
    paths = [(sample.target,)]
    for before, after in pairwise(in_force):
        old, new = _content(sample.files[before]), _content(sample.files[after])
        later = history.plans[after].zone.kinds
        large = [
            n
            for n, kind in enumerate(later)
            if not all(kind.public) and kind.bound_wh + kind.export_bound_wh >= range_wh
        ]
        same = [[n for n, content in enumerate(new) if content == old[path[-1]]] for path in paths]
        paths = [(*path, n) for path, kept in zip(paths, same, strict=True) for n in kept or large]
    for path in paths:
        yield {plan: history.plans[plan].zone.kinds[n] for plan, n in zip(in_force, path, strict=True)}


def _content(file: SampleFile) -> list[tuple[object, ...]]:
    return [(k.bound_wh, k.export_bound_wh, k.consumption, k.habits, k.public) for k in file.kinds]


def is_public(file: SampleFile, kind: HouseholdKind, interval: int) -> bool:
    """Return whether every minute of the interval lies in the public hours, in the local time of the zone."""
    hours = next(each.public for each in file.kinds if each.name == kind.name)
    if hours in {"", "always"}:
        return hours == "always"
    begin, end = (int(part[:2]) * 60 + int(part[3:]) for part in hours.split("-"))
    interval_s = 86_400 // file.intervals_per_day
    for at in range(interval * interval_s, (interval + 1) * interval_s, 900):
        minute = (at // 60 + utc_offset_min(file.time_zone, at)) % 1440
        if not ((minute - begin) % 1440 < (end - begin) % 1440):
            return False
    return True


class OutputPair(NamedTuple):
    """The log distributions of one published demand when the target is away and when it is at home."""

    away: np.ndarray  # [output]
    home: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        return self.home - self.away


def log_pmf(noise_request: NoiseRequest, noise_wh: np.ndarray) -> np.ndarray:
    """Return log Pr[K = k] by its definition. The normalising sum leaves out a negligible tail."""
    size = int(40 * noise_request.scale_wh + noise_request.core_wh + 100)
    return -negative_log_density(noise_request, noise_wh) - np.logaddexp.reduce(
        -negative_log_density(noise_request, np.arange(-size, size + 1))
    )


def negative_log_density(noise_request: NoiseRequest, noise_wh: np.ndarray) -> np.ndarray:
    """Return -log of the density of the noise, up to a constant."""
    k = np.abs(noise_wh.astype(np.float64))
    b, c = noise_request.scale_wh, noise_request.core_wh
    if noise_request.distribution is NoiseDistribution.GAUSSIAN:
        return k**2 / (2 * b * b)
    if noise_request.distribution is NoiseDistribution.HUBER and c:
        return np.where(k <= c, k**2 / (2 * b * c), k / b - c / (2 * b))
    return k / b


def _output_pair(history: SimulatedHistory, released: SimulatedInterval) -> OutputPair:
    """Return the distributions for the lowest and the highest reading, on all likely outputs and two far ones."""
    noise_request, demand = released.noise_request, dict(zip(history.shown_wh, released.demand_wh, strict=True))
    low, high = demand[LOW], demand[HIGH]
    size = (
        int(noise_request.core_wh + 3 * noise_request.scale_wh + 5)
        if noise_request.distribution is not NoiseDistribution.LAPLACE
        else 2
    )
    y = np.concatenate(
        [[low - FAR_OUTPUT_WH], np.arange(min(low, high) - size, max(low, high) + size + 1), [high + FAR_OUTPUT_WH]]
    )
    return OutputPair(log_pmf(noise_request, y - low), log_pmf(noise_request, y - high))


def _broken_intervals(history: SimulatedHistory, pairs: list[OutputPair | None]) -> Iterator[BrokenPromise]:
    for released, pair in zip(history.intervals, pairs, strict=True):
        for cost in history.plans[released.plan].costs:
            if isinstance(cost.promise, IntervalPromise) and pair is not None:
                yield from _broken_if_above(str(cost.promise), cost.spent, float(np.abs(pair.ratio).max()))


def _broken_if_above(promise: str, claimed: float, true: float) -> Iterator[BrokenPromise]:
    if true > claimed * (1 + ROUNDING) + 1e-9:
        yield BrokenPromise(promise, claimed, true)


def _broken_windows(history: SimulatedHistory, pairs: list[OutputPair | None]) -> Iterator[BrokenPromise]:
    promises = {
        (c.promise.intervals, c.promise.delta)
        for plan in history.plans
        for c in plan.costs
        if isinstance(c.promise, WindowPromise)
    }
    for length, delta in sorted(promises):
        for start in range(len(pairs) - length + 1):
            seen = [
                (s, p)
                for s, p in zip(history.intervals[start : start + length], pairs[start : start + length], strict=True)
            ]
            claimed = _window_claim(history, [s for s, _ in seen if s.noise_request is not None], length, delta)
            if claimed is None:
                continue
            known_pairs = [pair for _, pair in seen if pair is not None]
            if not delta:
                yield from _broken_if_above(
                    f"window {length}", claimed, sum(float(np.abs(p.ratio).max()) for p in known_pairs)
                )
            else:
                true = max(
                    (_delta(known_pairs, signs, claimed) for signs in product((1, -1), repeat=len(known_pairs))),
                    default=0.0,
                )
                if true > float(delta) * (1 + ROUNDING):
                    yield BrokenPromise(f"window {length} at epsilon {claimed:.4f}", float(delta), true)


def _window_claim(
    history: SimulatedHistory, window: list[SimulatedInterval], length: int, delta: object
) -> float | None:
    """Return the cost that the plan states for a window; across a change, the weaker of the two promises."""
    plans = {released.plan for released in window}
    costs = [
        c
        for n in plans
        for c in history.plans[n].costs
        if isinstance(c.promise, WindowPromise) and (c.promise.intervals, c.promise.delta) == (length, delta)
    ]
    if not costs:
        return None
    return costs[0].spent if len(plans) == 1 else max(cost.promised for cost in costs)


def _delta(pairs: list[OutputPair], signs: tuple[int, ...], epsilon: float) -> float:
    """Return the exact delta at epsilon of all pairs together, each in the direction of its sign."""
    directed = [pair if sign > 0 else OutputPair(pair.home, pair.away) for pair, sign in zip(pairs, signs, strict=True)]
    away, home = (
        reduce(np.add.outer, [getattr(pair, name) for pair in directed], np.zeros(())) for name in OutputPair._fields
    )
    return float(np.maximum(np.exp(home) - np.exp(epsilon + away), 0).sum())


def _broken_moments(
    sample: SampleZone, history: SimulatedHistory, kinds: dict[int, HouseholdKind], pairs: list[OutputPair | None]
) -> Iterator[BrokenPromise]:
    ends = np.array([[0.0, 0.0] if p is None else [p.ratio.min(), p.ratio.max()] for p in pairs])
    for number, kind in kinds.items():
        under_plan = [n for n, released in enumerate(history.intervals) if released.plan == number]
        for cost in history.plans[number].costs:
            if isinstance(cost.promise, MomentPromise) and under_plan and not all(kind.public):
                claimed = cost.spent if len({released.plan for released in history.intervals}) == 1 else cost.promised
                for model in kind.models:
                    leaked = moment_leakage(sample, history.plans[number], model, history.intervals, ends)
                    yield from _broken_if_above(str(cost.promise), claimed, float(leaked[under_plan].max()))


def moment_leakage(
    sample: SampleZone, plan: Plan, model: OccupancyChains, intervals: tuple[SimulatedInterval, ...], ends: np.ndarray
) -> np.ndarray:
    """Return the worst leakage of each moment [moment], over all trajectories and all corners of the outputs."""
    file = sample.files[0]
    day, step_s = file.intervals_per_day, 86_400 // file.intervals_per_day
    standard = plan.zone.clock.offsets_min[0] * day // 1440
    slots = [
        (s.interval + utc_offset_min(file.time_zone, s.interval * step_s) * day // 1440 - standard) % day
        for s in intervals
    ]
    prior = finite_leakage.periodic_prior(model, slots[0])[:, 0]
    count = len(intervals)
    paths = np.array(list(product((0, 1), repeat=count)))
    weight = np.log(prior[paths[:, 0]])
    with np.errstate(divide="ignore"):
        for t in range(1, count):
            weight = weight + np.log(model.transition[model.period[slots[t]]][paths[:, t - 1], paths[:, t], 0])
    corners = np.array([[ends[t, side] for t, side in enumerate(sides)] for sides in product((0, 1), repeat=count)])
    evidence = corners @ paths.T  # [corner, path]
    worst = np.zeros(count)
    for t in range(count):
        weights = [np.where(paths[:, t] == x, weight, -np.inf) for x in (0, 1)]
        if all(np.isfinite(each).any() for each in weights):
            away, home = (np.logaddexp.reduce(evidence + each - np.logaddexp.reduce(each), axis=1) for each in weights)
            worst[t] = np.abs(home - away).max()
    return worst
