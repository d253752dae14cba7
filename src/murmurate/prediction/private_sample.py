"""What households of a consented sample use, published with exact noise: each household keeps a pure epsilon.

A household has one vote: what it uses on a mean day, by period of the day and by size of reading, and how much more on
a colder day. The vote is cut off at public limits, so replacing a household changes the sum of all votes by a known
distance at most, and discrete Laplace noise of scale distance/epsilon hides it. Proof: `private_sample.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.prediction.calendar import CalendarSlots, DayType
from murmurate.prediction.forecast import degrees_below_base
from murmurate.privacy.noise import MAX_SCALE_WH, MIN_SCALE_WH, NoiseDistribution, NoiseSampler
from murmurate.units import FloatArray, IntArray, round_up_to_double

SENSOR_BOUNDS_WH = (300, 500, 700, 1000, 1500, 2100, 3000, 5000, 10_000)  # what lies above the last one is cut off
SIZES_WH = (50, 100, 150, 200, *SENSOR_BOUNDS_WH)  # upper ends of the sizes of readings
RESOLUTIONS = ((2, 24), (2, 12), (2, 8), (1, 8), (1, 6), (1, 4))  # types of day and periods of the day, finest first
MAX_PERIOD_NOISE = 0.06  # rms of the noise of a period, relative to a household that uses half of the daily limit
_MIN_DAYS = 7
_LIMIT_COLD_K = 20  # a household uses the daily limit more at most where it is so much colder
_MIN_DAY = 0.01  # of the daily limit: the least that a household is taken to use
_MIN_SPREAD_MK = 1000  # temperatures that differ less show no response to cold
_SIZES_SHARE, _HEAT_SHARE = Fraction(1, 4), Fraction(1, 8)  # of epsilon


class VotePart(NamedTuple):
    """Some entries of a vote: how far two votes can be apart there, and the share of epsilon that hides it."""

    entries: int
    distance: int  # sum of absolute differences [Wh]
    share: Fraction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VoteLayout:
    """What is asked of each household of a sample. All of it is public and chosen without looking at a reading."""

    when: CalendarSlots  # intervals of the sample
    temperature_c: FloatArray | None  # outdoors, in each interval; None: the response to cold is not asked for
    max_day_wh: int  # of a household; what it uses beyond is cut off
    day_types: int  # 2: workdays and other days; 1: all days alike
    periods: int  # of the day

    def __post_init__(self) -> None:
        if self.max_day_wh < _LIMIT_COLD_K:
            raise ModelError("max-day-kwh", self.max_day_wh / 1000, "must be what a household uses a day, such as 20")
        days, seen = len(self.when) / self.when.slots_per_day, np.bincount(self.cell, minlength=self.cells)
        if days < _MIN_DAYS or not seen.all():
            allowed = f"must be {_MIN_DAYS} days or more, workdays and others"
            raise ModelError("sample", f"{len(self.when)} intervals ({days:.1f} days)", allowed)

    @property
    def cells(self) -> int:
        """Number of types of day times periods of the day."""
        return self.day_types * self.periods

    @property
    def cell(self) -> IntArray:
        """The type of day and period of each interval [interval]."""
        free = (self.when.day_type != DayType.WORKDAY) & (self.day_types > 1)
        return np.asarray(free * self.periods + self.when.slot * self.periods // self.when.slots_per_day)

    @property
    def period_lengths(self) -> IntArray:
        """Number of intervals of each period of a day [period]."""
        slots = self.when.slots_per_day
        return np.bincount(np.arange(slots) * self.periods // slots)

    @property
    def colder_mk(self) -> IntArray:
        """How much colder than the mean each 24 hours of the sample were [mK]; empty if that is not asked for."""
        if self.temperature_c is None:
            return np.zeros(0, np.int64)
        slots = self.when.slots_per_day
        days = degrees_below_base(self.temperature_c[: len(self.when) // slots * slots]).reshape(-1, slots).mean(axis=1)
        found = np.rint(1000 * (days - days.mean())).astype(np.int64)
        return np.asarray(found if int(found @ found) >= _MIN_SPREAD_MK**2 else found[:0])

    @property
    def parts(self) -> tuple[VotePart, ...]:
        """The parts of a vote: use by period, use by size of reading, response to cold."""
        limit = self.max_day_wh
        heat = (VotePart(1, 2 * (limit // _LIMIT_COLD_K), _HEAT_SHARE),) if len(self.colder_mk) else ()
        rest = 1 - _SIZES_SHARE - sum(part.share for part in heat)
        use = VotePart(self.cells, 2 * limit * self.day_types, Fraction(rest))
        return use, VotePart(len(SIZES_WH), 2 * limit, _SIZES_SHARE), *heat

    def noise_scales(self, epsilon: Fraction) -> FloatArray:
        """Return the scale of the noise of each entry of the sum of votes [entry], rounded up."""
        if epsilon <= 0:
            raise PrivacyError("epsilon", epsilon, "must be positive, for example 1")
        exact = [max(Fraction(MIN_SCALE_WH), part.distance / (part.share * epsilon)) for part in self.parts]
        if max(exact) > MAX_SCALE_WH:
            raise PrivacyError("epsilon", epsilon, "must be larger: the noise would exceed 2**40")
        return np.repeat([round_up_to_double(scale) for scale in exact], [part.entries for part in self.parts])

    def needed_households(self, epsilon: Fraction) -> int:
        """Return how many households it takes so that the noise of a period is at most `MAX_PERIOD_NOISE`."""
        usual_wh = self.max_day_wh / (2 * self.periods)
        return ceil(sqrt(2) * float(self.noise_scales(epsilon)[0]) / (MAX_PERIOD_NOISE * usual_wh))


def choose_layout(
    when: CalendarSlots, temperature_c: FloatArray | None, *, max_day_wh: int, epsilon: Fraction, households: int
) -> VoteLayout:
    """Return the finest layout for which the sample has enough households. Raises PrivacyError if there is none.

    It depends on public numbers alone.
    """
    layouts = [
        VoteLayout(when=when, temperature_c=temperature_c, max_day_wh=max_day_wh, day_types=types, periods=periods)
        for types, periods in RESOLUTIONS
        if periods <= when.slots_per_day
    ]
    if not layouts:
        raise ModelError("interval-minutes", 1440 // when.slots_per_day, "must be 360 or less with --sample")
    for layout in layouts:
        if households >= layout.needed_households(epsilon):
            return layout
    needed = layouts[-1].needed_households(epsilon)
    allowed = f"must be {needed:,} or more at epsilon {epsilon}; nothing was spent"
    raise PrivacyError("households", f"{households:,}", allowed)


def cast_votes(energy_wh: IntArray, layout: VoteLayout) -> IntArray:
    """Return the vote of each household, whole Wh a day [household, entry]. A vote depends on its own readings alone.

    `energy_wh` is [interval, household].
    """
    slots, limit = layout.when.slots_per_day, layout.max_day_wh
    used = np.clip(energy_wh, 0, SIZES_WH[-1])
    by_cell = np.zeros((layout.cells, used.shape[1]), np.int64)
    np.add.at(by_cell, layout.cell, used)
    length = np.tile(layout.period_lengths, layout.day_types)
    by_period = by_cell * length[:, None] // np.bincount(layout.cell)[:, None]
    up_to = np.stack([np.minimum(used, size).sum(axis=0) for size in (0, *SIZES_WH)])
    by_size = np.diff(up_to, axis=0) * slots // len(used)
    votes = [_limit_total(each, limit) for each in by_period.reshape(layout.day_types, layout.periods, -1)]
    votes.append(_limit_total(by_size, limit))
    if len(colder := layout.colder_mk):
        days = used[: len(colder) * slots].reshape(len(colder), slots, -1).sum(axis=1)
        per_k, most = colder @ days * 1000 // (colder @ colder), limit // _LIMIT_COLD_K
        votes.append(np.clip(per_k, -most, most)[None])
    return np.concatenate(votes).T


def _limit_total(parts_wh: IntArray, limit_wh: int) -> IntArray:
    """Return the parts of each household [part, household], scaled down alike where they sum to more than a limit."""
    total = np.maximum(parts_wh.sum(axis=0), limit_wh)
    return np.asarray(parts_wh * limit_wh // total)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateSample:
    """The mean vote of a sample, with noise. Everything in it may be published."""

    layout: VoteLayout
    households: int
    epsilon: Fraction  # of this release
    mean_vote: FloatArray  # [entry] Wh a day, may be negative

    @property
    def day_wh(self) -> FloatArray:
        """What a household uses in each interval of a day [type of day, slot], positive and without steps."""
        cells = self.mean_vote[: self.layout.cells].reshape(-1, self.layout.periods)
        length = self.layout.period_lengths
        usual_wh = max(float(cells.mean()), _MIN_DAY * self.layout.max_day_wh / self.layout.periods)
        level = np.maximum(cells, usual_wh / 10) / length
        middle, at = np.cumsum(length) - length / 2, np.arange(length.sum()) + 0.5
        smooth = np.array([np.interp(at, middle, each, period=len(at)) for each in level])
        return np.asarray(smooth * (level @ length / smooth.sum(axis=1))[:, None])

    @property
    def size_wh(self) -> FloatArray:
        """What a household uses a day between one size of reading and the next [size], may be negative."""
        return self.mean_vote[self.layout.cells : self.layout.cells + len(SIZES_WH)]

    @property
    def heat_wh_per_k(self) -> float:
        """What a household uses more on a day that is 1 K colder; 0 where it was not asked for."""
        return max(float(self.mean_vote[-1]), 0.0) if len(self.layout.colder_mk) else 0.0

    @property
    def period_noise(self) -> float:
        """Rms of the noise in the use of a period, relative to the mean use of a period. A public number."""
        mean_wh = float(self.day_wh.mean()) * self.layout.when.slots_per_day / self.layout.periods
        return sqrt(2) * float(self.layout.noise_scales(self.epsilon)[0]) / self.households / mean_wh


def release_votes(votes: IntArray, layout: VoteLayout, *, epsilon: Fraction, noise: NoiseSampler) -> PrivateSample:
    """Return the mean of votes [household, entry] of `cast_votes`, with noise. Each call spends epsilon."""
    drawn = noise.draw(NoiseDistribution.LAPLACE, layout.noise_scales(epsilon))
    mean = (votes.sum(axis=0) + drawn) / len(votes)
    return PrivateSample(layout=layout, households=len(votes), epsilon=epsilon, mean_vote=mean)
