"""Check that `murmurate audit` convicts broken noise and acquits correct noise.

    python -m benchmarks.audit_verdicts [--runs 200]

The zone has three households and the promise "interval: 0.5". Each mechanism breaks its noise in one way. Its row gives
the attack that convicts it, the measured lower bound on epsilon, and the bound of the plan. Then the correct mechanism
is audited with many seeds and fewer samples. Each run may convict it wrongly with probability 1e-5. The exit status is
1 if a broken mechanism is acquitted or the correct one is convicted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from tests.support.audited_zone import plan, weaker

from benchmarks.goals import Goals, read_options
from murmurate.lab.audit.attack import AttackResult, Mechanism, NoiseSource
from murmurate.lab.audit.run_attacks import audit_samples_needed, run_audit
from murmurate.planning.plan import Plan
from murmurate.privacy.noise import SeededNoise
from murmurate.release import protect
from murmurate.types import Release
from murmurate.units import IntArray

SAMPLES = 1_000_000
FEWER_SAMPLES = 20_000
DAYS = 20
FORGOTTEN_SHARE = 1e-3  # of the draws

Draw = Callable[..., IntArray]


def break_noise(change: Callable[..., IntArray]) -> NoiseSource:
    """Return noise whose draws are changed: `change` gets the right draw as a function, and its arguments."""

    class BrokenNoise(SeededNoise):
        def draw(self, *arguments: Any) -> IntArray:
            return change(super().draw, *arguments)

    return BrokenNoise


def round_draws(draw: Draw, *arguments: Any) -> IntArray:
    return np.rint(draw(*arguments) / 10).astype(np.int64) * 10


def cut_draws(draw: Draw, distribution: Any, scale_wh: Any, *core_wh: Any) -> IntArray:
    drawn = draw(distribution, scale_wh, *core_wh)
    while (beyond := np.abs(drawn) > 4 * scale_wh).any():
        drawn = np.where(beyond, draw(distribution, scale_wh, *core_wh), drawn)
    return drawn


def draw_once_a_day(draw: Draw, *arguments: Any) -> IntArray:
    drawn = draw(*arguments)
    return np.broadcast_to(drawn[..., :1], drawn.shape).copy() if drawn.ndim == 2 else drawn


def repeat_draws(draw: Draw, *arguments: Any) -> IntArray:
    drawn = draw(*arguments)
    if drawn.ndim == 2:
        drawn[:, 1::2] = drawn[:, 0::2][:, : drawn[:, 1::2].shape[1]]
    return drawn


def weaken_draws(draw: Draw, distribution: Any, scale_wh: Any, *core_wh: Any) -> IntArray:
    return draw(distribution, 0.9 * scale_wh, *core_wh)


class SkippedNoise(SeededNoise):
    """Adds no noise to some of the releases."""

    def draw(self, *arguments: Any) -> IntArray:
        drawn = super().draw(*arguments)
        return np.where(self._rng.random(drawn.shape) < FORGOTTEN_SHARE, 0, drawn)


def price_of_exact_demand(demand_wh: Any, **arguments: Any) -> Release:
    """Return a release with noise whose price was computed without it."""
    release = protect(demand_wh, **arguments)
    return replace(release, price_ticks=arguments["curve"].price_ticks(demand_wh))


class Case(NamedTuple):
    """A mechanism, broken in one way."""

    name: str
    plan: Callable[[], Plan]
    source: NoiseSource = SeededNoise
    mechanism: Mechanism = protect


CASES = (
    Case("rounded to 10 Wh", plan, break_noise(round_draws)),
    Case("cut at four scales", plan, break_noise(cut_draws)),
    Case("one draw a day", plan, break_noise(draw_once_a_day)),
    Case("every second draw repeated", plan, break_noise(repeat_draws)),
    Case("a tenth of the scale", lambda: weaker(plan(), 10)),
    Case("nine tenths of the scale", plan, break_noise(weaken_draws)),
    Case("price made from exact demand", plan, mechanism=price_of_exact_demand),
    Case("skipped once in 1,000", plan, SkippedNoise),
)


def convictions(case: Case, samples: int, seed: int = 1) -> list[AttackResult]:
    """Return the attacks that convict, the one that exceeds its bound most first."""
    results = run_audit(
        case.plan(), DAYS, seed, lambda _: None, noise_source=case.source, samples=samples, mechanism=case.mechanism
    )
    return sorted((each for each in results if not each.ok), key=lambda each: -each.severity[1])


def main() -> int:
    """Print the verdicts. Return 1 where one is wrong."""
    runs, goals = read_options(__doc__, runs=200).runs, Goals()
    print(f"{SAMPLES:,} samples in each of two cases")
    for case in CASES:
        attacks = convictions(case, SAMPLES)
        verdict = "acquitted"
        if attacks:
            by, measured, allowed = attacks[0], attacks[0].measured or 0.0, attacks[0].bound or 0.0
            verdict = f"convicted by {by.name} ({by.target}): {measured:.2f}, allowed {allowed:.2f}"
        goals.check(case.name, verdict, held=bool(attacks))
    for probability in (1e-3, 1e-4):
        needed = audit_samples_needed(plan(), probability)
        found = "not found" if needed is None else f"found from about {needed:,} samples on"
        goals.check(f"skipped once in {round(1 / probability):,} draws", found, held=needed is not None)
    correct = Case("correct", plan)
    wrong = sum(bool(convictions(correct, FEWER_SAMPLES, seed)) for seed in range(runs))
    what = f"right mechanism, {FEWER_SAMPLES:,} samples: convicted in {runs} runs"
    goals.print_figure(what, wrong, at_most=0)
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
