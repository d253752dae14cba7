"""Does `murmurate audit` convict noise that is broken, and does it acquit noise that is right?

    python -m benchmarks.audit [--runs 200]

A zone of three households, promise "interval: 0.5". Each mechanism breaks its noise in one way; the row says which
attack convicts it, what that attack measured (a lower bound on epsilon) and what the plan allows. Then the right
mechanism is audited over and over with other seeds and fewer samples. Each run may convict it wrongly with a chance of
1e-5. Ends with status 1 if a broken mechanism is acquitted or the right one is convicted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from murmurate.curator.interval import protect
from murmurate.curator.plan import Plan, make_plan
from murmurate.curator.zonefile import parse_zone
from murmurate.lab.audit_attack import Attack
from murmurate.lab.audit_run import run_audit, samples_to_find
from murmurate.lab.audit_scene import Mechanism, Source
from murmurate.privacy.noise import RehearsalNoise
from murmurate.quantities import IntArray, Release

SAMPLES = 1_000_000
FEWER_SAMPLES = 20_000
DAYS = 20
RARELY = 1e-3  # how often the noise is forgotten

ZONE = """\
name = "quay"
currency = "EUR"
interval_minutes = 60
promise = ["interval: 0.5"]
calibration = "{calibration}"

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


class RoundedNoise(RehearsalNoise):
    """Draws in steps of 10 Wh."""

    def draw(self, *asked: Any) -> IntArray:
        return np.rint(super().draw(*asked) / 10).astype(np.int64) * 10


class CutNoise(RehearsalNoise):
    """Draws again beyond four scales."""

    def draw(self, law: Any, scale_wh: Any, *more: Any) -> IntArray:
        drawn = super().draw(law, scale_wh, *more)
        while (beyond := np.abs(drawn) > 4 * scale_wh).any():
            drawn = np.where(beyond, super().draw(law, scale_wh, *more), drawn)
        return drawn


class DailyNoise(RehearsalNoise):
    """Draws once a day."""

    def draw(self, *asked: Any) -> IntArray:
        drawn = super().draw(*asked)
        return np.broadcast_to(drawn[..., :1], drawn.shape).copy() if drawn.ndim == 2 else drawn


class RepeatedNoise(RehearsalNoise):
    """Repeats each draw once."""

    def draw(self, *asked: Any) -> IntArray:
        drawn = super().draw(*asked)
        if drawn.ndim == 2:
            drawn[:, 1::2] = drawn[:, 0::2][:, : drawn[:, 1::2].shape[1]]
        return drawn


class WeakNoise(RehearsalNoise):
    """Draws at nine tenths of the scale."""

    def draw(self, law: Any, scale_wh: Any, *more: Any) -> IntArray:
        return super().draw(law, 0.9 * scale_wh, *more)


class ForgottenNoise(RehearsalNoise):
    """Adds nothing now and then."""

    def draw(self, *asked: Any) -> IntArray:
        drawn = super().draw(*asked)
        return np.where(self._rng.random(drawn.shape) < RARELY, 0, drawn)


def price_of_exact_demand(demand_wh: Any, **asked: Any) -> Release:
    """A release with noise whose price was made without it."""
    made = protect(demand_wh, **asked)
    return replace(made, price_ticks=asked["curve"].price_ticks(demand_wh))


class Case(NamedTuple):
    """A mechanism, broken in one way."""

    name: str
    plan: Callable[[], Plan]
    source: Source = RehearsalNoise
    mechanism: Mechanism = protect


def plan() -> Plan:
    return make_plan(parse_zone(ZONE.format(calibration="range", hut_away=20, neighbour_away=20)))


def tenth_of_the_scale() -> Plan:
    """The hut has the larger bound; the neighbour's laws are the easier to tell apart (its true loss is 7.1)."""
    made = make_plan(parse_zone(ZONE.format(calibration="exact", hut_away=97, neighbour_away=0), tested=True))
    return replace(made, noise=replace(made.noise, scale_wh=made.scale_wh / 10))


CASES = (
    Case("rounded to 10 Wh", plan, RoundedNoise),
    Case("cut at four scales", plan, CutNoise),
    Case("one draw a day", plan, DailyNoise),
    Case("every second draw repeated", plan, RepeatedNoise),
    Case("a tenth of the scale (exact)", tenth_of_the_scale),
    Case("nine tenths of the scale", plan, WeakNoise),
    Case("price made from exact demand", plan, mechanism=price_of_exact_demand),
    Case("forgotten once in 1,000", plan, ForgottenNoise),
)


def convictions(case: Case, samples: int, seed: int = 1) -> list[Attack]:
    """The attacks that convict, the one that passes its bound by most first."""
    found = run_audit(
        case.plan(), DAYS, seed, lambda _: None, source=case.source, samples=samples, mechanism=case.mechanism
    )
    return sorted((each for each in found if not each.ok), key=lambda each: -each.severity[1])


def report(case: Case) -> bool:
    """Print the row of one mechanism; whether it is convicted."""
    found = convictions(case, SAMPLES)
    row = f"{case.name:<29} acquitted"
    if found:
        attack = found[0]
        by = f"{attack.name} ({attack.target})"
        row = f"{case.name:<29} convicted  {by:<24} {attack.measured or 0.0:>8.2f}  {attack.bound or 0.0:>7.2f}"
    print(row, flush=True)
    return bool(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    print(f"{SAMPLES:,} samples of each world\n")
    print(f"{'mechanism':<29} {'verdict':<9}  {'by':<24} {'measured':>8}  {'allowed':>7}")
    held = [report(case) for case in CASES]
    print()
    for chance in (1e-3, 1e-4):
        needed = samples_to_find(plan(), chance)
        found = "is not found" if needed is None else f"is found from about {needed:,} samples on"
        print(f"noise that is forgotten once in {round(1 / chance):,} draws {found}")
    right = Case("right", plan)
    wrong = sum(bool(convictions(right, FEWER_SAMPLES, seed)) for seed in range(runs))
    print(f"\nright mechanism: {wrong} of {runs} convicted ({FEWER_SAMPLES:,} samples)")
    return int(not all(held) or wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
