"""The paper's experiment (section IV), over many seeds and every interpretation of its text.

Each seed samples a zone and a day, then prices the same demand under four rules: the paper's Blowfish rule, its naive
rule, group privacy over the horizon, and a forecast without readings. Blowfish runs twice: with the naive rule's
random numbers (common random numbers), and with independent ones, like a single run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from murmurate.errors import MurmurateError
from murmurate.lab.audit.attack import Estimate
from murmurate.lab.evaluate.parallel import run_tasks
from murmurate.privacy.calibration import (
    MAX_EPSILON,
    MIN_EPSILON,
    group_sensitivity,
    laplace_scales,
    naive_sensitivity,
)
from murmurate.privacy.noise import SeededNoise
from murmurate.privacy.policy import Policy, ProtectionRule, kappa, sensitivity_schedule
from murmurate.release import protect
from murmurate.units import FloatArray, IntArray
from research.metrics import estimate_gain, estimate_mean, estimate_proportion, paper_rmsre
from research.paper.simulated_zones import (
    PAPER_INTERPRETATIONS,
    BoundInterpretation,
    PaperInterpretation,
    PaperZone,
    RedrawnConsumption,
    SimulatedDay,
    forecast_demand,
    sample_paper_zone,
    simulate_day,
)

PAPER_BLOWFISH_RMSRE = 1.089e-3
PAPER_NAIVE_RMSRE = 1.149e-3
_SEEDS_PER_CHUNK = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """The settings of the experiment."""

    seeds: int = 1000
    households: int = 1000
    intervals: int = 96
    epsilon: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        for name in ("seeds", "households", "intervals"):
            if getattr(self, name) < 1:
                raise MurmurateError(name, getattr(self, name), "must be at least 1")
        if not MIN_EPSILON <= self.epsilon <= MAX_EPSILON:
            raise MurmurateError(
                "epsilon", f"{float(self.epsilon):g}", "must lie between 1e-06 and 100, for example 0.5"
            )


class ExperimentRun(NamedTuple):
    """One seed: the day, and its prices under each rule [ticks, interval]."""

    zone: PaperZone
    day: SimulatedDay
    sensitivity_wh: IntArray  # [interval] of the Blowfish rule
    blowfish: IntArray
    blowfish_alone: IntArray  # the same with independent random numbers
    naive: IntArray
    group: IntArray
    forecast: IntArray


PRICING_RULES = ("blowfish", "blowfish_alone", "naive", "group", "forecast")


def run_seed(interpretation: PaperInterpretation, settings: ExperimentSettings, seed: int) -> ExperimentRun:
    """Simulate one seeded day and compute its prices under every rule."""
    streams = np.random.SeedSequence([seed, PAPER_INTERPRETATIONS.index(interpretation)]).spawn(5)
    zone = sample_paper_zone(interpretation, settings.households, np.random.default_rng(streams[0]))
    occupancy_rng, consumption_rng = (np.random.default_rng(stream) for stream in streams[1:3])
    day = simulate_day(zone, settings.intervals, occupancy_rng, consumption_rng)
    sensitivity_wh = blowfish_sensitivity(interpretation, zone, day, streams[2])

    def price(sensitivity: IntArray, stream: np.random.SeedSequence) -> IntArray:
        scale_wh = laplace_scales(sensitivity, settings.epsilon)
        noise = SeededNoise(stream)
        return protect(day.demand_wh, scale_wh=scale_wh, curve=zone.curve, noise=noise).price_ticks

    return ExperimentRun(
        zone=zone,
        day=day,
        sensitivity_wh=sensitivity_wh,
        blowfish=price(sensitivity_wh, streams[3]),
        blowfish_alone=price(sensitivity_wh, streams[4]),
        naive=price(naive_sensitivity(zone.max_bound_wh, settings.intervals), streams[3]),
        group=price(group_sensitivity(zone.max_bound_wh, settings.intervals), streams[3]),
        forecast=zone.curve.price_ticks(forecast_demand(zone, settings.intervals)),
    )


def blowfish_sensitivity(
    interpretation: PaperInterpretation, zone: PaperZone, day: SimulatedDay, consumption_seed: np.random.SeedSequence
) -> IntArray:
    """lambda/alpha of Algorithm 1 [Wh, interval]: a public schedule, except for the peeking interpretation."""
    horizon = len(day.demand_wh)
    if interpretation.bounds is not BoundInterpretation.PEEKING:
        return sensitivity_schedule(Policy(rule=ProtectionRule.PAPER), zone.consumption.bound_wh, horizon, zone.theta)
    consumption, rng = RedrawnConsumption(len(zone.meters)), np.random.default_rng(consumption_seed)
    drawn = [consumption.sample_ceiling_and_energy(home, rng) for home in day.occupied]
    protected = islice(kappa(zone.theta), horizon)
    return np.array([(ceiling * exposed).max() for (ceiling, _), exposed in zip(drawn, protected, strict=True)])


def rmsre_by_rule(interpretation: PaperInterpretation, settings: ExperimentSettings, seed: int) -> FloatArray:
    """Return the paper's RMSRE of one seed under each of `PRICING_RULES`."""
    run = run_seed(interpretation, settings, seed)
    return np.array([paper_rmsre(getattr(run, rule), run.day.price_ticks) for rule in PRICING_RULES])


def run_experiment(
    settings: ExperimentSettings, jobs: int = 0, progress: Callable[[int], None] = lambda _: None
) -> dict[PaperInterpretation, FloatArray]:
    """Return RMSRE [seed, rule] of every interpretation. `progress` gets the number of finished runs.

    `jobs` is the number of processes, 0: one for each core. The result depends on the seeds, not on `jobs`.
    """
    chunks = [
        (reading, range(first, min(first + _SEEDS_PER_CHUNK, settings.seeds)))
        for first in range(0, settings.seeds, _SEEDS_PER_CHUNK)
        for reading in PAPER_INTERPRETATIONS
    ]
    found = run_tasks(partial(_run_chunk, settings), chunks, jobs, lambda chunk: progress(len(chunk[1])))
    errors = {reading: np.zeros((settings.seeds, len(PRICING_RULES))) for reading in PAPER_INTERPRETATIONS}
    for (reading, seeds), rows in zip(chunks, found, strict=True):
        errors[reading][seeds.start : seeds.stop] = rows
    return errors


def _run_chunk(settings: ExperimentSettings, chunk: tuple[PaperInterpretation, range]) -> FloatArray:
    reading, seeds = chunk
    return np.stack([rmsre_by_rule(reading, settings, seed) for seed in seeds])


class ExperimentSummary(NamedTuple):
    """The summary of many seeds of one interpretation; errors in the paper's RMSRE."""

    blowfish: Estimate
    naive: Estimate
    gain: Estimate  # of Blowfish over naive, common random numbers [fraction]
    correct_order: Estimate | None  # share of runs with Blowfish ahead; None if both have the same distribution
    single_run: tuple[float, float]  # 95 % of single naive runs lie in here
    group: Estimate
    forecast: Estimate


def summarize_seeds(interpretation: PaperInterpretation, rows: FloatArray) -> ExperimentSummary:
    """Summarise RMSRE [seed, rule] of one interpretation."""
    blowfish, alone, naive, group, forecast = rows.T
    low, high = np.percentile(naive, [2.5, 97.5])
    return ExperimentSummary(
        blowfish=estimate_mean(blowfish),
        naive=estimate_mean(naive),
        gain=estimate_gain(blowfish, naive),
        correct_order=None if interpretation.same_noise else estimate_proportion(alone < naive),
        single_run=(float(low), float(high)),
        group=estimate_mean(group),
        forecast=estimate_mean(forecast),
    )
