"""What a life makes public, exactly: the loss of an interval, of a window and of a moment, by brute force."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np

from murmurate.curator.plan import Plan
from murmurate.curator.zone import HouseholdKind
from murmurate.household.occupancy import Chains
from murmurate.privacy import leakage
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
from murmurate.time_zones import offset_min
from tests.whole_path.life import HIGH, LOW, Asked, Life, Step
from tests.whole_path.worlds import File, World

FAR = 10**7  # [Wh] an output beyond everything
ROUNDING = 1e-6


class Broken(NamedTuple):
    """A promise that does not hold."""

    promise: str
    claimed: float
    true: float


def broken(world: World, life: Life) -> Iterator[Broken]:
    """Every promise that this life breaks."""
    for step in life.steps:
        if len(step.kinds) > 1:
            yield Broken("what a meter shows never decides the kind of a record", 0.0, np.inf)
            return
        if step.asked is not None and log_pmf(step.asked, np.array([0]))[0] > np.log(0.9):
            yield Broken("no exact demand", 0.0, np.inf)
    if world.files[0].kinds[world.target].public == "always":
        return
    for kinds in _as_described(world, life):
        secret = [not is_public(world.files[s.plan], kinds[s.plan], s.interval) for s in life.steps]
        pairs = [
            _pair(life, s, kinds[s.plan]) if s.asked is not None and hidden else None
            for s, hidden in zip(life.steps, secret, strict=True)
        ]
        yield from _intervals(life, pairs)
        yield from _windows(life, pairs)
        yield from _moments(world, life, kinds, pairs)


def _as_described(world: World, life: Life) -> Iterator[tuple[HouseholdKind, ...]]:
    """What the target is under each plan: under the second, whatever its bound allows, unless it is described alike."""
    first = life.plans[0].zone.kinds[world.target]
    if len(life.plans) == 1:
        yield (first,)
        return
    later = life.plans[1].zone.kinds
    described = [_content(file) for file in world.files]
    same = [later[n] for n, content in enumerate(described[1]) if content == described[0][world.target]]
    bound = sum(meter.bound_wh for meter in world.meters if meter.kind == world.target)
    for kind in same or [kind for kind in later if not all(kind.public) and kind.bound_wh >= bound]:
        yield (first, kind)


def _content(file: File) -> list[tuple[object, ...]]:
    return [(k.bound_wh, k.laws, k.habits, k.public) for k in file.kinds]


def is_public(file: File, kind: HouseholdKind, interval: int) -> bool:
    """Whether the hours on the door say so in every minute of the interval, on the clocks of the zone."""
    words = next(each.public for each in file.kinds if each.name == kind.name)
    if words in {"", "always"}:
        return words == "always"
    begin, end = (int(part[:2]) * 60 + int(part[3:]) for part in words.split("-"))
    step = 86_400 // file.day
    for at in range(interval * step, (interval + 1) * step, 900):
        minute = (at // 60 + offset_min(file.time_zone, at)) % 1440
        if not ((minute - begin) % 1440 < (end - begin) % 1440):
            return False
    return True


class Pair(NamedTuple):
    """The laws of one published demand when the target is away and when it is home, in logarithms."""

    away: np.ndarray  # [output]
    home: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        return self.home - self.away


def log_pmf(asked: Asked, noise_wh: np.ndarray) -> np.ndarray:
    """log Pr[K = k], by its definition; the sum that normalises it is taken over all that matters."""
    size = int(40 * asked.scale_wh + asked.core_wh + 100)
    return -rho(asked, noise_wh) - np.logaddexp.reduce(-rho(asked, np.arange(-size, size + 1)))


def rho(asked: Asked, noise_wh: np.ndarray) -> np.ndarray:
    k = np.abs(noise_wh.astype(np.float64))
    b, c = asked.scale_wh, asked.core_wh
    if asked.law is NoiseLaw.GAUSSIAN:
        return k**2 / (2 * b * b)
    if asked.law is NoiseLaw.HUBER and c:
        return np.where(k <= c, k**2 / (2 * b * c), k / b - c / (2 * b))
    return k / b


def _pair(life: Life, step: Step, kind: HouseholdKind) -> Pair:
    """The most telling pair of laws that the calibration covers, on every output that matters and two far beyond."""
    asked, demand = step.asked, dict(zip(life.shown_wh, step.demand_wh, strict=True))
    low, high = demand[LOW], demand[HIGH]
    size = int(asked.core_wh + 3 * asked.scale_wh + 5) if asked.law is not NoiseLaw.LAPLACE else 2
    y = np.concatenate([[low - FAR], np.arange(min(low, high) - size, max(low, high) + size + 1), [high + FAR]])
    calibration, most = life.plans[step.plan].zone.calibration, life.shown_wh[-2]
    if calibration is Calibration.RANGE:
        return Pair(log_pmf(asked, y - low), log_pmf(asked, y - high))
    if calibration is Calibration.SHIFT:
        below = [np.cumsum(law) for law in (kind.secret.away, kind.secret.home)]
        ranks = np.arange(0.005, 1, 0.01)
        gaps = [[int(np.searchsorted(b, q)) for b in below] for q in ranks]
        x0, x1 = max(gaps, key=lambda gap: abs(gap[1] - gap[0]))
        return Pair(*(log_pmf(asked, y - demand[min(x, most)]) for x in (x0, x1)))
    laws = []
    for law in (kind.secret.away, kind.secret.home):
        likely = [(x, np.log(p)) for x, p in enumerate(law) if p > 0]
        laws.append(np.logaddexp.reduce([log_p + log_pmf(asked, y - demand[min(x, most)]) for x, log_p in likely]))
    return Pair(*laws)


def _intervals(life: Life, pairs: list[Pair | None]) -> Iterator[Broken]:
    for step, pair in zip(life.steps, pairs, strict=True):
        for cost in life.plans[step.plan].costs:
            if isinstance(cost.promise, IntervalPromise) and pair is not None:
                yield from _exceeds(str(cost.promise), cost.spent, float(np.abs(pair.ratio).max()))


def _exceeds(promise: str, claimed: float, true: float) -> Iterator[Broken]:
    if true > claimed * (1 + ROUNDING) + 1e-9:
        yield Broken(promise, claimed, true)


def _windows(life: Life, pairs: list[Pair | None]) -> Iterator[Broken]:
    promises = {
        (c.promise.intervals, c.promise.delta)
        for plan in life.plans
        for c in plan.costs
        if isinstance(c.promise, WindowPromise)
    }
    for length, delta in sorted(promises):
        for start in range(len(pairs) - length + 1):
            seen = [
                (s, p) for s, p in zip(life.steps[start : start + length], pairs[start : start + length], strict=True)
            ]
            claimed = _window_claim(life, [s for s, _ in seen if s.asked is not None], length, delta)
            if claimed is None:
                continue
            told = [pair for _, pair in seen if pair is not None]
            if not delta:
                yield from _exceeds(f"window {length}", claimed, sum(float(np.abs(p.ratio).max()) for p in told))
            else:
                true = max((_delta(told, signs, claimed) for signs in product((1, -1), repeat=len(told))), default=0.0)
                if true > float(delta) * (1 + ROUNDING):
                    yield Broken(f"window {length} at epsilon {claimed:.4f}", float(delta), true)


def _window_claim(life: Life, steps: list[Step], length: int, delta: object) -> float | None:
    """What a plan says that a window costs; across a change, the weaker promise of those that made one."""
    plans = {step.plan for step in steps}
    costs = [
        c
        for n in plans
        for c in life.plans[n].costs
        if isinstance(c.promise, WindowPromise) and (c.promise.intervals, c.promise.delta) == (length, delta)
    ]
    if not costs:
        return None
    return costs[0].spent if len(plans) == 1 else max(cost.promised for cost in costs)


def _delta(pairs: list[Pair], signs: tuple[int, ...], epsilon: float) -> float:
    """The exact delta at epsilon of all pairs together, each in one of its directions."""
    turned = [pair if sign > 0 else Pair(pair.home, pair.away) for pair, sign in zip(pairs, signs, strict=True)]
    one, other = (reduce(np.add.outer, [getattr(pair, name) for pair in turned], np.zeros(())) for name in Pair._fields)
    return float(np.maximum(np.exp(other) - np.exp(epsilon + one), 0).sum())


def _moments(world: World, life: Life, kinds: tuple[HouseholdKind, ...], pairs: list[Pair | None]) -> Iterator[Broken]:
    ends = np.array([[0.0, 0.0] if p is None else [p.ratio.min(), p.ratio.max()] for p in pairs])
    for number, kind in enumerate(kinds):
        mine = [n for n, step in enumerate(life.steps) if step.plan == number]
        for cost in life.plans[number].costs:
            if isinstance(cost.promise, MomentPromise) and mine and not all(kind.public):
                claimed = cost.spent if len({step.plan for step in life.steps}) == 1 else cost.promised
                for model in kind.models:
                    leaked = leakage_of(world, life.plans[number], model, life.steps, ends)
                    yield from _exceeds(str(cost.promise), claimed, float(leaked[mine].max()))


def leakage_of(world: World, plan: Plan, model: Chains, steps: tuple[Step, ...], ends: np.ndarray) -> np.ndarray:
    """[moment] the most that any outputs tell about it, over all trajectories and all corners."""
    file = world.files[0]
    day, step_s = file.day, 86_400 // file.day
    standard = plan.zone.clock.offsets_min[0] * day // 1440
    slots = [
        (s.interval + offset_min(file.time_zone, s.interval * step_s) * day // 1440 - standard) % day for s in steps
    ]
    prior = leakage.prior_at(model, slots[0])[:, 0]
    count = len(steps)
    paths = np.array(list(product((0, 1), repeat=count)))
    weight = np.log(prior[paths[:, 0]])
    with np.errstate(divide="ignore"):
        for t in range(1, count):
            weight = weight + np.log(model.transition[model.period[slots[t]]][paths[:, t - 1], paths[:, t], 0])
    corners = np.array([[ends[t, side] for t, side in enumerate(sides)] for sides in product((0, 1), repeat=count)])
    told = corners @ paths.T  # [corner, path]
    found = np.zeros(count)
    for t in range(count):
        laws = [np.where(paths[:, t] == x, weight, -np.inf) for x in (0, 1)]
        if all(np.isfinite(law).any() for law in laws):
            one, other = (np.logaddexp.reduce(told + law - np.logaddexp.reduce(law), axis=1) for law in laws)
            found[t] = np.abs(other - one).max()
    return found
