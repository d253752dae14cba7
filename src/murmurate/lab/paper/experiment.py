"""The paper's experiment (section IV), over many seeds and every interpretation of its text.

Each seed samples a zone and a day, then prices the same demand under four rules: the paper's Blowfish rule, its naive
rule, group privacy over the horizon, and a forecast without readings. Blowfish runs twice: with the naive rule's
random numbers (common random numbers), and with independent ones, like a single run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

import numpy as np

from murmurate.errors import MurmurateError
from murmurate.lab.metrics import Estimate, estimate_gain, estimate_mean, estimate_proportion, paper_rmsre
from murmurate.lab.paper.simulate_day import SimulatedDay, simulate_day
from murmurate.lab.paper.simulated_zones import (
    PAPER_INTERPRETATIONS,
    BoundInterpretation,
    PaperInterpretation,
    PaperZone,
    RedrawnConsumption,
    forecast_demand,
    sample_paper_zone,
)
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

PAPER_BLOWFISH_RMSRE = 1.089e-3
PAPER_NAIVE_RMSRE = 1.149e-3
_SEEDS_PER_CHUNK = 10
SeedChunk = tuple[PaperInterpretation, range]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """The settings of `murmurate paper`."""

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
    settings: ExperimentSettings, jobs: int | None = None, progress: Callable[[int], None] = lambda _: None
) -> dict[PaperInterpretation, FloatArray]:
    """Return RMSRE [seed, rule] of every interpretation. `progress` gets the number of finished runs.

    The result depends on the seeds, not on the number of jobs.
    """
    pieces = [
        (reading, range(first, min(first + _SEEDS_PER_CHUNK, settings.seeds)))
        for first in range(0, settings.seeds, _SEEDS_PER_CHUNK)
        for reading in PAPER_INTERPRETATIONS
    ]
    errors = {reading: np.zeros((settings.seeds, len(PRICING_RULES))) for reading in PAPER_INTERPRETATIONS}
    for reading, seeds, rows in _run_chunks(settings, pieces, jobs or len(os.sched_getaffinity(0))):
        errors[reading][seeds.start : seeds.stop] = rows
        progress(len(seeds))
    return errors


def _run_chunks(
    settings: ExperimentSettings, chunks: list[SeedChunk], jobs: int
) -> Iterator[tuple[PaperInterpretation, range, FloatArray]]:
    if jobs == 1:
        yield from ((*piece, _chunk_rmsre(settings, piece)) for piece in chunks)
        return
    pool = ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        futures = {pool.submit(_chunk_rmsre, settings, piece): piece for piece in chunks}
        for future in as_completed(futures):
            yield (*futures[future], future.result())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _chunk_rmsre(settings: ExperimentSettings, chunk: SeedChunk) -> FloatArray:
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
