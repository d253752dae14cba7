"""The paper's experiment (section IV), over many seeds and in every reading of its text.

Each seed draws a town and a day, then prices the same demand under four rules: the paper's Blowfish rule, its naive
rule, group privacy over the horizon, and a forecast that reads no meter. Blowfish runs twice: with the naive rule's
random numbers, so that their difference is not luck, and with its own, as a single run would.
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

from murmurate.curator.interval import protect
from murmurate.errors import MurmurateError
from murmurate.lab.metrics import Estimate, estimate, gain, paper_rmsre, proportion
from murmurate.lab.run import Day, live
from murmurate.lab.worlds import PAPER_READINGS, Bounds, PaperReading, RedrawnConsumption, Town, forecast_wh, paper_town
from murmurate.privacy.calibration import (
    LARGEST_EPSILON,
    LEAST_EPSILON,
    group_sensitivity,
    laplace_scales,
    naive_sensitivity,
)
from murmurate.privacy.noise import RehearsalNoise
from murmurate.privacy.protection import Policy, Rule, kappa, sensitivity_schedule
from murmurate.quantities import FloatArray, IntArray

PAPER_BLOWFISH = 1.089e-3
PAPER_NAIVE = 1.149e-3
_CHUNK = 10
Piece = tuple[PaperReading, range]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `murmurate paper` can be told."""

    seeds: int = 1000
    households: int = 1000
    intervals: int = 96
    epsilon: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        for name in ("seeds", "households", "intervals"):
            if getattr(self, name) < 1:
                raise MurmurateError(name, getattr(self, name), "must be at least 1")
        if not LEAST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise MurmurateError(
                "epsilon", f"{float(self.epsilon):g}", "must lie between 1e-06 and 100, for example 0.5"
            )


class Run(NamedTuple):
    """One seed: the day, and its prices under each rule [ticks, interval]."""

    town: Town
    day: Day
    sensitivity_wh: IntArray  # [interval] of the Blowfish rule
    blowfish: IntArray
    blowfish_alone: IntArray  # the same with random numbers of its own
    naive: IntArray
    group: IntArray
    forecast: IntArray


RULES = ("blowfish", "blowfish_alone", "naive", "group", "forecast")


def run(reading: PaperReading, settings: Settings, seed: int) -> Run:
    """Live one seeded day and price it under every rule."""
    streams = np.random.SeedSequence([seed, PAPER_READINGS.index(reading)]).spawn(5)
    town = paper_town(reading, settings.households, np.random.default_rng(streams[0]))
    who, what = (np.random.default_rng(stream) for stream in streams[1:3])
    day = live(town, settings.intervals, who, what)
    sensitivity_wh = blowfish_sensitivity(reading, town, day, streams[2])

    def price(sensitivity: IntArray, stream: np.random.SeedSequence) -> IntArray:
        scale_wh = laplace_scales(sensitivity, settings.epsilon)
        noise = RehearsalNoise(stream)
        return protect(day.demand_wh, scale_wh=scale_wh, curve=town.curve, noise=noise).price_ticks

    return Run(
        town=town,
        day=day,
        sensitivity_wh=sensitivity_wh,
        blowfish=price(sensitivity_wh, streams[3]),
        blowfish_alone=price(sensitivity_wh, streams[4]),
        naive=price(naive_sensitivity(town.largest_bound_wh, settings.intervals), streams[3]),
        group=price(group_sensitivity(town.largest_bound_wh, settings.intervals), streams[3]),
        forecast=town.curve.price_ticks(forecast_wh(town, settings.intervals)),
    )


def blowfish_sensitivity(reading: PaperReading, town: Town, day: Day, what: np.random.SeedSequence) -> IntArray:
    """lambda/alpha of Algorithm 1 [Wh, interval]: a public schedule, but for the reading that peeks at the day."""
    horizon = len(day.demand_wh)
    if reading.bounds is not Bounds.PEEKING:
        return sensitivity_schedule(Policy(rule=Rule.PAPER), town.law.bound_wh, horizon, town.theta)
    law, again = RedrawnConsumption(len(town.meters)), np.random.default_rng(what)
    drawn = [law.sample_ceiling_and_energy(home, again) for home in day.occupied]
    protected = islice(kappa(town.theta), horizon)
    return np.array([(ceiling * who).max() for (ceiling, _), who in zip(drawn, protected, strict=True)])


def errors(reading: PaperReading, settings: Settings, seed: int) -> FloatArray:
    """The paper's RMSRE of one seed under each of `RULES`."""
    done = run(reading, settings, seed)
    return np.array([paper_rmsre(getattr(done, rule), done.day.price_ticks) for rule in RULES])


def experiment(
    settings: Settings, jobs: int | None = None, progress: Callable[[int], None] = lambda _: None
) -> dict[PaperReading, FloatArray]:
    """RMSRE [seed, rule] of every reading; `progress` hears how many more runs are done. Seeds, not jobs, decide."""
    pieces = [
        (reading, range(first, min(first + _CHUNK, settings.seeds)))
        for first in range(0, settings.seeds, _CHUNK)
        for reading in PAPER_READINGS
    ]
    found = {reading: np.zeros((settings.seeds, len(RULES))) for reading in PAPER_READINGS}
    for reading, seeds, rows in _spread(settings, pieces, jobs or len(os.sched_getaffinity(0))):
        found[reading][seeds.start : seeds.stop] = rows
        progress(len(seeds))
    return found


def _spread(settings: Settings, pieces: list[Piece], jobs: int) -> Iterator[tuple[PaperReading, range, FloatArray]]:
    if jobs == 1:
        yield from ((*piece, _errors_of(settings, piece)) for piece in pieces)
        return
    pool = ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        waiting = {pool.submit(_errors_of, settings, piece): piece for piece in pieces}
        for done in as_completed(waiting):
            yield (*waiting[done], done.result())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _errors_of(settings: Settings, piece: Piece) -> FloatArray:
    reading, seeds = piece
    return np.stack([errors(reading, settings, seed) for seed in seeds])


class Finding(NamedTuple):
    """What many seeds say of one reading; errors in the paper's RMSRE."""

    blowfish: Estimate
    naive: Estimate
    gain: Estimate  # of Blowfish over naive, common random numbers [fraction]
    rightly: Estimate | None  # how often one run has Blowfish ahead; none where the two have the same law
    single_run: tuple[float, float]  # 95 % of single naive runs lie in here
    group: Estimate
    forecast: Estimate


def finding(reading: PaperReading, rows: FloatArray) -> Finding:
    """Summarise RMSRE [seed, rule] of one reading."""
    blowfish, alone, naive, group, forecast = rows.T
    low, high = np.percentile(naive, [2.5, 97.5])
    return Finding(
        blowfish=estimate(blowfish),
        naive=estimate(naive),
        gain=gain(blowfish, naive),
        rightly=None if reading.same_noise else proportion(alone < naive),
        single_run=(float(low), float(high)),
        group=estimate(group),
        forecast=estimate(forecast),
    )
