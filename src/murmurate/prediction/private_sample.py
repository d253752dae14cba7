"""What households of a consented sample use, published with exact noise: each keeps (epsilon, delta) with delta 1e-6.

A household has one vote: the regression of its readings on hours and weather, what lies between one bound and the next,
what its roof feeds in, and how far its readings vary. The vote is cut off at public limits, so replacing a household
moves the sum of all votes by a known distance at most (root of the sum of squares), and discrete Gaussian noise hides
it. Proof: `private_sample.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.prediction.calendar import CalendarSlots, DayType
from murmurate.prediction.forecast import SUN_UNIT, Weather, degrees_below_base, find_dark
from murmurate.prediction.public_forecast import SAMPLE_DELTA
from murmurate.privacy.calibration import gaussian_rho
from murmurate.privacy.noise import MAX_SCALE_WH, MIN_SCALE_WH, NoiseDistribution, NoiseSampler
from murmurate.units import FloatArray, IntArray, round_up_to_double

COLD_UNIT_K = 8.0
SAMPLE_BOUNDS_WH = (300, 500, 700, 1000, 1500, 2100, 3000, 5000, 10_000)  # what lies above the last one is cut off
EXPORT_BOUNDS_WH = (0, 300, 700, 1000, 1500, 2000, 10_000)  # likewise below zero
RESOLUTIONS = ((2, 24), (2, 12), (1, 12), (1, 8))  # types of day and periods of the day, finest first
MAX_NOISE = 0.1  # rms of the noise of the use, relative to the usual use
_UNITS = 100  # of a vote, in a Wh
_MIN_DAYS = 7
_MIN_USUAL_WH = 1  # in an interval
_MIN_WEATHER = 0.1  # rms of what hours do not explain of the weather, in its units; less shows no response
_CUT_PERIODS = 6
_BLOCK = 250  # households whose votes are counted at once
_USUAL_SHAPE = np.repeat([0.5, 0.9, 1.8, 1.05], [6, 11, 5, 2])  # a usual day [hour], 1 in the mean
# Roofs, level and weather differ more between households than the shape of the day does: the limit weighs them less.
_WEIGHTS = {"sun": 0.08, "level": 0.4, "cold": 0.4, "dark": 0.7}  # that of the sun is for a sun of 300 W/m^2 (rms)
# Limits in usual uses. Squares are divided by the usual use, and those between households count more.
_USE_LIMIT, _CUT_LIMIT, _SUN_LIMIT, _SQUARE_LIMIT = Fraction(4, 5), Fraction(4, 5), Fraction(5, 2), 10
_LASTING_WEIGHT = 2.5
_CUT_SHARE, _SUN_SHARE, _SQUARE_SHARE = Fraction(1, 10), Fraction(1, 10), Fraction(3, 100)  # of rho


class VotePart(NamedTuple):
    """Some entries of a vote, cut off at a length, and the share of rho that hides them."""

    entries: int
    limit: int  # root of the sum of squares, in hundredths of a Wh
    distance_square: int  # of two votes at most
    share: Fraction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VoteLayout:
    """What is asked of each household of a sample. All of it is public and chosen without looking at a reading."""

    when: CalendarSlots  # intervals of the sample
    weather: Weather  # of the intervals; what it lacks is not asked for
    usual_wh: Fraction  # about what a household uses in an interval
    day_types: int  # 2: workdays and other days; 1: all days alike
    periods: int  # of the day
    asked: tuple[str, ...]  # of cold, dark and sun
    features: FloatArray  # [interval, feature]: periods of all days, of other days, then what is asked of the weather
    basis: FloatArray  # [interval, entry] of the same space, orthogonal, each of mean square 1; that of the sun first
    weights: FloatArray  # [entry] by which entries of the regression are multiplied before they are cut off

    @property
    def centre_wh(self) -> FloatArray:
        """What a usual household uses [interval]. Votes are how far a household is from it."""
        return np.asarray(float(self.usual_wh) * _USUAL_SHAPE[self.when.hour])

    @property
    def cut_periods(self) -> int:
        return min(_CUT_PERIODS, self.when.slots_per_day)

    @property
    def parts(self) -> tuple[VotePart, ...]:
        """The parts of a vote: regression, use between bounds, squares, and feed-in between bounds.

        Two votes without negative entries are at most sqrt(2) limits apart, others 2.
        """

        def part(entries: int, limit: Fraction | int, share: Fraction, square: int) -> VotePart:
            units = int(limit * self.usual_wh * _UNITS)
            return VotePart(entries, units, square * units**2, share)

        sun = (part(len(EXPORT_BOUNDS_WH) - 1, _SUN_LIMIT, _SUN_SHARE, 2),) if "sun" in self.asked else ()
        cut = part((len(SAMPLE_BOUNDS_WH) - 1) * self.cut_periods, _CUT_LIMIT, _CUT_SHARE, 2)
        squares = part(2, _SQUARE_LIMIT, _SQUARE_SHARE, 2)
        rest = 1 - sum(each.share for each in (cut, squares, *sun))
        return part(self.basis.shape[1], _USE_LIMIT, Fraction(rest), 4), cut, squares, *sun

    def noise_scales(self, epsilon: Fraction) -> FloatArray:
        """Return the scale of the noise of each entry of the sum of votes [entry], rounded up."""
        rho = Fraction(gaussian_rho(epsilon, float(SAMPLE_DELTA)))
        squares = [part.distance_square / (2 * rho * part.share) for part in self.parts]
        exact = [max(MIN_SCALE_WH, _root_rounded_up(square)) for square in squares]
        if max(exact) > MAX_SCALE_WH:
            raise PrivacyError("epsilon", epsilon, "must be larger: the noise would exceed 2**40")
        return np.repeat(exact, [part.entries for part in self.parts])

    def use_noise_wh(self, epsilon: Fraction, households: int) -> float:
        """Return the rms of the noise of the mean use in an interval of the sample, without that of the sun [Wh]."""
        scale = float(self.noise_scales(epsilon)[0]) / (_UNITS * households)
        of_use = self.weights[int("sun" in self.asked) :]
        return scale * sqrt(float((1 / of_use**2).sum()))

    def needed_households(self, epsilon: Fraction) -> int:
        """Return how many households it takes so that the noise is at most `MAX_NOISE`."""
        return ceil(self.use_noise_wh(epsilon, 1) / (MAX_NOISE * self.usual_wh))


def _root_rounded_up(square: Fraction) -> float:
    root = Fraction(sqrt(square))
    while root**2 < square:
        root *= 1 + Fraction(1, 2**50)
    return round_up_to_double(root)


def build_features(when: CalendarSlots, weather: Weather, day_types: int, periods: int) -> dict[str, FloatArray]:
    """Return features of intervals by name [interval, feature]. Periods are joined by straight lines."""
    middle = (when.slot + 0.5) * periods / when.slots_per_day - 0.5
    period = np.floor(middle).astype(np.int64)
    later, one = (middle - period)[:, None], np.eye(periods)
    found = {"all": one[period % periods] * (1 - later) + one[(period + 1) % periods] * later}
    if day_types > 1:
        found["other"] = found["all"] * (when.day_type != DayType.WORKDAY)[:, None]
    if weather.temperature_c is not None:
        found["cold"] = degrees_below_base(weather.temperature_c)[:, None] / COLD_UNIT_K
    if weather.irradiance is not None:
        found["dark"] = find_dark(weather.irradiance)[:, None]
        found["sun"] = np.maximum(weather.irradiance, 0.0)[:, None] / SUN_UNIT
    return found


def make_layout(
    when: CalendarSlots, weather: Weather, *, usual_day_wh: int, day_types: int, periods: int
) -> VoteLayout:
    """Return a layout. Weather is asked for where it differs enough from what the hour alone says."""
    usual_wh = Fraction(usual_day_wh, when.slots_per_day)
    if usual_wh < _MIN_USUAL_WH:
        raise ModelError("usual-day-kwh", usual_day_wh / 1000, "must be what a household uses a day, such as 10")
    named = build_features(when, weather, day_types, periods)
    features = np.concatenate([named[name] for name in ("all", "other") if name in named], axis=1)
    days = len(when) / when.slots_per_day
    if days < _MIN_DAYS or np.linalg.matrix_rank(features) < features.shape[1]:
        allowed = f"must be {_MIN_DAYS} days or more, workdays and others"
        raise ModelError("sample", f"{len(when)} intervals ({days:.1f} days)", allowed)
    asked: list[str] = []
    for name in ("cold", "dark", "sun"):
        if name in named:
            unexplained = named[name] - features @ np.linalg.lstsq(features, named[name])[0]
            if np.mean(unexplained**2) >= _MIN_WEATHER**2:
                asked.append(name)
                features = np.concatenate([features, named[name]], axis=1)
    # Roofs first, so that little else of a household with a roof is large; then the level and what is left of each.
    first = [name for name in _WEIGHTS if name == "level" or name in asked]
    shape = features[:, [n for n in range(day_types * periods) if n != periods - 1]]
    ordered = np.concatenate([*(named.get(name, np.ones((len(when), 1))) for name in first), shape], axis=1)
    weights = np.array([*(_WEIGHTS[name] for name in first), *[1.0] * shape.shape[1]])
    if "sun" in asked:
        weights[0] /= sqrt(float(np.mean(named["sun"] ** 2)))
    return VoteLayout(
        when=when,
        weather=weather,
        usual_wh=usual_wh,
        day_types=day_types,
        periods=periods,
        asked=tuple(asked),
        features=features,
        basis=np.linalg.qr(ordered)[0] * sqrt(len(when)),
        weights=weights,
    )


def choose_layout(
    when: CalendarSlots, weather: Weather, *, usual_day_wh: int, epsilon: Fraction, households: int
) -> VoteLayout:
    """Return the finest layout for which the sample has enough households. Raises PrivacyError if there is none.

    It depends on public numbers alone.
    """
    layout = None
    for day_types, periods in RESOLUTIONS:
        if periods <= when.slots_per_day:
            layout = make_layout(when, weather, usual_day_wh=usual_day_wh, day_types=day_types, periods=periods)
            if households >= layout.needed_households(epsilon):
                return layout
    if layout is None:
        raise ModelError("interval-minutes", 1440 // when.slots_per_day, "must be 360 or less with --sample")
    allowed = f"must be {layout.needed_households(epsilon):,} or more at epsilon {epsilon}; nothing was spent"
    raise PrivacyError("households", f"{households:,}", allowed)


def cast_votes(energy_wh: IntArray, layout: VoteLayout) -> IntArray:
    """Return the vote of each household, in hundredths of a Wh [household, entry]. It depends on its readings alone.

    `energy_wh` is [interval, household]; readings below zero are fed in.
    """
    blocks = range(0, energy_wh.shape[1], _BLOCK)
    votes = [_cast_votes(energy_wh[:, first : first + _BLOCK], layout) for first in blocks]
    return np.concatenate(votes) if votes else np.zeros((0, sum(part.entries for part in layout.parts)), np.int64)


def _cast_votes(energy_wh: IntArray, layout: VoteLayout) -> IntArray:
    count, usual_wh = len(layout.when), float(layout.usual_wh)
    used = np.clip(energy_wh, -EXPORT_BOUNDS_WH[-1], SAMPLE_BOUNDS_WH[-1]).astype(np.float64)
    centre = layout.centre_wh[:, None]
    of_use = (layout.basis * layout.weights).T @ (used - centre) / count
    period = np.eye(layout.cut_periods)[layout.when.slot * layout.cut_periods // layout.when.slots_per_day]
    share = (period / period.sum(axis=0)).T
    of_cut = [share @ (np.clip(used, low, high) - low) for low, high in pairwise(SAMPLE_BOUNDS_WH)]
    hour, of_hour = np.unique(layout.when.hour, return_inverse=True)
    one_hour = np.eye(len(hour))[of_hour]
    usual = (one_hour / one_hour.sum(axis=0)).T @ used
    own = np.mean((used - usual[of_hour]) ** 2, axis=0)
    lasting = np.mean((usual[of_hour] - centre) ** 2, axis=0)
    parts = [of_use, np.concatenate(of_cut), np.stack([own, _LASTING_WEIGHT * lasting]) / usual_wh]
    if "sun" in layout.asked:
        sun = layout.features[:, -1]  # layers are laid on the sun alone, as the forecast takes them off it
        layers = [sun @ (np.clip(-used, low, high) - low) for low, high in pairwise(EXPORT_BOUNDS_WH)]
        parts.append(np.stack(layers) / (sun @ sun))
    return np.concatenate([_cut_off(each, part.limit) for each, part in zip(parts, layout.parts, strict=True)]).T


def _cut_off(part_wh: FloatArray, limit: int) -> IntArray:
    """Return a part of votes [entry, household] in whole units, made shorter where it is longer than the limit.

    Rounding towards zero makes no part longer. The limit is undercut by more than doubles are off.
    """
    length = _UNITS * np.sqrt((part_wh**2).sum(axis=0))
    factor = np.minimum(1, (1 - 1e-9) * limit / np.maximum(length, 1e-9))
    return np.asarray(np.trunc(_UNITS * part_wh * factor), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateSample:
    """The mean vote of a sample, with noise. Everything in it may be published."""

    layout: VoteLayout
    households: int
    epsilon: Fraction  # of this release
    mean_vote: FloatArray  # [entry] Wh

    @property
    def _parts(self) -> list[FloatArray]:
        return np.split(self.mean_vote, np.cumsum([part.entries for part in self.layout.parts])[:-1])

    @property
    def coefficients(self) -> FloatArray:
        """The regression of a mean household on the features of the layout [feature]."""
        fitted = self.layout.basis @ (self._parts[0] / self.layout.weights) + self.layout.centre_wh
        return np.asarray(np.linalg.lstsq(self.layout.features, fitted)[0])

    @property
    def cut_wh(self) -> FloatArray:
        """What lies above each bound but the last [bound, period], positive and falling."""
        return _sum_above(self._parts[1].reshape(len(SAMPLE_BOUNDS_WH) - 1, -1))

    @property
    def sun_below_wh(self) -> FloatArray:
        """How much less a household uses in a sun of 300 W/m^2, by what lies below minus each bound but the last.

        It is there where the sun is asked for.
        """
        return _sum_above(self._parts[3])

    @property
    def own_square(self) -> float:
        """Mean square of a reading around what its household usually uses at that hour [Wh^2], may be negative."""
        return float(self._parts[2][0]) * float(self.layout.usual_wh)

    @property
    def square_noise(self) -> tuple[float, float]:
        """Sd of the noise in both squares [Wh^2]. Public numbers."""
        scale = float(self.layout.noise_scales(self.epsilon)[sum(part.entries for part in self.layout.parts[:2])])
        own = scale / (_UNITS * self.households) * float(self.layout.usual_wh)
        return own, own / _LASTING_WEIGHT

    @property
    def lasting_square(self) -> float:
        """Mean square of the usual use of a household around that of all [Wh^2], may be negative."""
        around = float(self._parts[2][1]) * float(self.layout.usual_wh) / _LASTING_WEIGHT
        hour = self.layout.when.hour
        off = self.layout.features @ self.coefficients - self.layout.centre_wh
        mean = np.bincount(hour, weights=off) / np.maximum(np.bincount(hour), 1)
        return around - float(np.mean(mean[hour] ** 2))

    @property
    def use_noise_wh(self) -> float:
        """Rms of the noise of the use, without that of the sun [Wh]. A public number."""
        return self.layout.use_noise_wh(self.epsilon, self.households)


def _sum_above(layers_wh: FloatArray) -> FloatArray:
    """Return the sum of a layer and those above it [layer, ..], positive and falling."""
    above = np.cumsum(layers_wh[::-1], axis=0)[::-1]
    return np.asarray(np.minimum.accumulate(np.maximum(above, 0.0), axis=0))


def release_votes(votes: IntArray, layout: VoteLayout, *, epsilon: Fraction, noise: NoiseSampler) -> PrivateSample:
    """Return the mean of votes [household, entry] of `cast_votes`, with noise. Each call spends epsilon."""
    drawn = noise.draw(NoiseDistribution.GAUSSIAN, layout.noise_scales(epsilon))
    mean = (votes.sum(axis=0) + drawn) / (_UNITS * len(votes))
    return PrivateSample(layout=layout, households=len(votes), epsilon=epsilon, mean_vote=mean)
