"""Check that `murmurate audit` convicts broken noise and acquits correct noise.

    python -m benchmarks.audit_verdicts [--runs 200]

The zone has three households and the promise "interval: 0.5". Each mechanism breaks its noise in one way. Its row gives
the attack that convicts it, the measured lower bound on epsilon, and the bound of the plan. Then the correct mechanism
is audited with many seeds and fewer samples. Each run may convict it wrongly with probability 1e-5. The exit status is
1 if a broken mechanism is acquitted or the correct one is convicted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.goals import Goals
from murmurate.lab.audit.attack_result import AttackResult
from murmurate.lab.audit.run_attacks import audit_samples_needed, run_audit
from murmurate.lab.audit.simulated_zone import Mechanism, NoiseSource
from murmurate.planning.plan import Plan, make_plan
from murmurate.planning.zone_file import parse_zone
from murmurate.privacy.noise import SeededNoise
from murmurate.release import protect
from murmurate.types import Release
from murmurate.units import IntArray

SAMPLES = 1_000_000
FEWER_SAMPLES = 20_000
DAYS = 20
FORGOTTEN_SHARE = 1e-3  # of the draws

ZONE = """\
name = "quay"
currency = "EUR"
interval_minutes = 60
promise = ["interval: 0.5"]

[tariff]
alpha = "0.01"
beta = "0.08"
tick = "0.00001"

[occupancy.resident]
periods = {{ morning = "07:00", noon = "08:00", evening = "16:00", night = "23:00" }}
arrive = {{ morning = 0.6, noon = 0.3, evening = 0.9, night = 0.3 }}
leave = {{ morning = 0.4, noon = 0.9, evening = 0.3, night = 0.8 }}

[[households]]
name = "hut"
count = 1
bound_wh = 100
away = {{ uniform_to = {hut_away} }}
home = {{ uniform_to = 100 }}
occupancy = "resident"

[[households]]
name = "neighbour"
count = 2
bound_wh = 60
away = {{ uniform_to = {neighbour_away} }}
home = {{ uniform_to = 60 }}
occupancy = "resident"
"""


class RoundedNoise(SeededNoise):
    """Draws in steps of 10 Wh."""

    def draw(self, *arguments: Any) -> IntArray:
        return np.rint(super().draw(*arguments) / 10).astype(np.int64) * 10


class CutNoise(SeededNoise):
    """Draws again beyond four scales."""

    def draw(self, distribution: Any, scale_wh: Any, *core_wh: Any) -> IntArray:
        drawn = super().draw(distribution, scale_wh, *core_wh)
        while (beyond := np.abs(drawn) > 4 * scale_wh).any():
            drawn = np.where(beyond, super().draw(distribution, scale_wh, *core_wh), drawn)
        return drawn


class DailyNoise(SeededNoise):
    """Draws once a day."""

    def draw(self, *arguments: Any) -> IntArray:
        drawn = super().draw(*arguments)
        return np.broadcast_to(drawn[..., :1], drawn.shape).copy() if drawn.ndim == 2 else drawn


class RepeatedNoise(SeededNoise):
    """Repeats each draw once."""

    def draw(self, *arguments: Any) -> IntArray:
        drawn = super().draw(*arguments)
        if drawn.ndim == 2:
            drawn[:, 1::2] = drawn[:, 0::2][:, : drawn[:, 1::2].shape[1]]
        return drawn


class WeakNoise(SeededNoise):
    """Draws at nine tenths of the scale."""

    def draw(self, distribution: Any, scale_wh: Any, *core_wh: Any) -> IntArray:
        return super().draw(distribution, 0.9 * scale_wh, *core_wh)


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


def plan() -> Plan:
    return make_plan(parse_zone(ZONE.format(hut_away=20, neighbour_away=20)))


def tenth_of_the_scale() -> Plan:
    correct = plan()
    return replace(correct, noise=replace(correct.noise, scale_wh=correct.scale_wh / 10))


CASES = (
    Case("rounded to 10 Wh", plan, RoundedNoise),
    Case("cut at four scales", plan, CutNoise),
    Case("one draw a day", plan, DailyNoise),
    Case("every second draw repeated", plan, RepeatedNoise),
    Case("a tenth of the scale", tenth_of_the_scale),
    Case("nine tenths of the scale", plan, WeakNoise),
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    runs, goals = parser.parse_args().runs, Goals()
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
