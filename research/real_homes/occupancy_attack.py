"""How well an attacker guesses whether a person is home, from exact demand of small zones and from noisy releases.

The attacker was told the habits of the target and its readings in the first half of the data, home and away, and the
mean and variance of all other households by month, type and time of day. In the second half it sees the releases of
the zone alone, and computes the chance that the target is home from the releases of each whole day, by
forward-backward. In a zone of one household that is the attacker who knows all other readings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from murmurate.adversaries import adversary
from murmurate.lab.audit.attack import Estimate
from murmurate.lab.audit.attack_verdict import estimate_auc
from murmurate.prediction.calendar import DayType
from murmurate.units import BoolArray, FloatArray, IntArray
from research.data_sets.homes_data import HomesData
from research.metrics import estimate_mean
from research.real_homes.release_noise import ExampleNoise
from research.real_homes.trial_knowledge import split_trial

ZONE_SIZES = (1, 2, 5, 10, 20, 47, 100)
MIN_STATE_INTERVALS = 40  # of each state in each half, or a household is no target
_HABIT_PSEUDO_DAYS = 1.0  # towards a coin toss
_POOLED_WEIGHT = 24.0  # readings of all day that count towards those of a part of the day
_DAY_PARTS = 4
_MAX_CELLS = 64  # of the distribution of a reading
_MIN_CELL_WH = 20
_MONTH_DAYS = 28

AttackProgress = Callable[[float], None]


class AttackScores(NamedTuple):
    """The success of one attack on one household in the second half."""

    auc: float  # of pairs of any two intervals: one home, one away
    same_time_auc: float  # of pairs at the same time of day; 0.5 is guessing


@dataclass(frozen=True, slots=True)
class AttackEstimate:
    """Means over households with 95 % intervals."""

    auc: Estimate
    above_clock: Estimate  # AUC minus that of the clock alone, paired by household
    same_time_auc: Estimate


@dataclass(frozen=True, slots=True, eq=False)
class ZoneAttack:
    """Attacks on zones of one size."""

    homes: int
    targets: int
    clock: AttackEstimate  # knows the habits alone
    exact: AttackEstimate
    noisy: AttackEstimate


@dataclass(frozen=True, slots=True, eq=False)
class OccupancyAttack:
    """All that was attacked."""

    home_share: float  # of the targets' intervals
    households: int
    eligible: int  # households whose occupancy varies enough
    targets: int
    zones: tuple[ZoneAttack, ...]


def attack_occupancy(
    homes: Sequence[tuple[HomesData, int]],
    noise: ExampleNoise,
    seed: int,
    *,
    max_targets: int,
    progress: AttackProgress = lambda _: None,
) -> OccupancyAttack:
    """Attack households of data sets with known occupancy, each with the bound of its releases.

    Zones are drawn at random within a data set. A zone of a size that the data set lacks is left out. `progress` gets
    shares of the work that sum to 1.
    """
    rng = np.random.default_rng(seed)
    scores: dict[int, list[tuple[AttackScores, AttackScores, AttackScores]]] = {}
    at_home, eligible = [], 0
    for data, bound_wh in homes:
        usable = _find_targets(data)
        chosen = np.sort(rng.permutation(usable)[:max_targets])
        eligible += len(usable)
        for household in chosen:
            target = _Target(data, int(household))
            at_home.append(target.home_share)
            order = rng.permutation(np.delete(np.arange(len(data.households)), household))
            for size in ZONE_SIZES:
                if size <= len(data.households):
                    drawn = noise.draw(bound_wh, (target.intervals,), int(rng.integers(2**31)))
                    found = target.attack_zone(order[: size - 1], bound_wh, drawn, noise.sd_wh(bound_wh))
                    scores.setdefault(size, []).append(found)
            progress(1 / len(homes) / len(chosen))
    zones = [
        ZoneAttack(size, len(each), *(_summarize(each, way) for way in range(3)))
        for size, each in sorted(scores.items())
    ]
    return OccupancyAttack(
        home_share=float(np.mean(at_home)) if at_home else float("nan"),
        households=sum(len(data.households) for data, _ in homes),
        eligible=eligible,
        targets=len(at_home),
        zones=tuple(zones),
    )


def _find_targets(data: HomesData) -> IntArray:
    """Return households whose occupancy is always known and varies in both halves."""
    if data.occupied is None or data.occupancy_known is None:
        return np.zeros(0, np.int64)
    trial = split_trial(data)
    usable = data.occupancy_known.all(axis=0)
    for half in (data.occupied[:trial], data.occupied[trial:]):
        usable &= np.minimum(half.sum(axis=0), (~half).sum(axis=0)) >= MIN_STATE_INTERVALS
    return np.flatnonzero(usable)


def _summarize(scores: list[tuple[AttackScores, AttackScores, AttackScores]], way: int) -> AttackEstimate:
    auc, clock, same_time = np.array([(each[way].auc, each[0].auc, each[way].same_time_auc) for each in scores]).T
    return AttackEstimate(estimate_mean(auc), estimate_mean(auc - clock), estimate_mean(same_time))


class _Target:
    """One household: what the attacker was told of it, and what happened in the second half."""

    def __init__(self, data: HomesData, household: int) -> None:
        slots = data.slots_per_day
        self._data, self._household, self._slots = data, household, slots
        self._trial_days = split_trial(data) // slots
        occupied = np.zeros(0, np.bool_) if data.occupied is None else data.occupied[:, household]
        self._by_day: BoolArray = occupied.reshape(-1, slots)
        self._free: BoolArray = (data.calendar().day_type != DayType.WORKDAY).reshape(-1, slots)[:, slots // 2]
        self._home: BoolArray = self._by_day[self._trial_days :]
        self._chains = {free: self._learn_habits(free=free) for free in (False, True)}
        self._prior = self._log_odds(np.zeros(self._home.shape))
        self.intervals = self._home.size

    @property
    def home_share(self) -> float:
        return float(self._home.mean())

    def attack_zone(
        self, others: IntArray, bound_wh: int, noise_wh: IntArray, noise_sd_wh: float
    ) -> tuple[AttackScores, AttackScores, AttackScores]:
        """Return the scores of the clock alone, of exact demand and of noisy releases of a zone with these others."""
        own_wh, rest_wh = self._data.energy_wh[:, self._household], self._data.energy_wh[:, others]
        exact = self._log_ratios(own_wh, rest_wh.sum(axis=1), np.zeros_like(noise_wh), 0.0)
        clipped_wh = np.minimum(rest_wh, bound_wh).sum(axis=1)
        noisy = self._log_ratios(np.minimum(own_wh, bound_wh), clipped_wh, noise_wh, noise_sd_wh)
        return (self._judge(np.zeros(self._home.shape)), self._judge(exact), self._judge(noisy))

    def _learn_habits(self, *, free: bool) -> tuple[FloatArray, FloatArray]:
        """Return the chance to be home at midnight and the transitions of a type of day, from the first half."""
        days = self._by_day[: self._trial_days][self._free[: self._trial_days] == free]
        at_midnight = (days[:, 0].sum() + _HABIT_PSEUDO_DAYS / 2) / (len(days) + _HABIT_PSEUDO_DAYS)
        before, after = days[:, :-1], days[:, 1:]
        transition = np.full((self._slots, 2, 2), 0.5)
        for state in (0, 1):
            here = before == bool(state)
            usual = (after[here].sum() + 0.5) / (here.sum() + 1)
            stays = ((after & here).sum(axis=0) + _HABIT_PSEUDO_DAYS * usual) / (here.sum(axis=0) + _HABIT_PSEUDO_DAYS)
            transition[1:, state, 1], transition[1:, state, 0] = stays, 1 - stays
        return np.array([1 - at_midnight, at_midnight]), transition

    def _log_ratios(self, own_wh: IntArray, rest_wh: IntArray, noise_wh: IntArray, noise_sd_wh: float) -> FloatArray:
        """Return log Pr[release | home] / Pr[release | away] in the second half [day, slot]."""
        shape = self._home.shape
        own, rest = (each.reshape(-1, self._slots)[self._trial_days :] for each in (own_wh, rest_wh))
        published = own + rest + noise_wh.reshape(shape)
        mean, variance = self._rest_moments(rest)
        step = max(_MIN_CELL_WH, int(own_wh.max()) // _MAX_CELLS)
        ratio = np.zeros(shape)
        for slots in np.array_split(np.arange(self._slots), _DAY_PARTS):
            away, home = self._learn_readings(own_wh, slots, step)
            spread = variance[:, slots] + noise_sd_wh**2 + step**2
            ratio[:, slots] = adversary.public_log_ratio(published[:, slots], mean[:, slots], spread, away, home, 0.0)
        return ratio

    def _rest_moments(self, rest_wh: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the others by four weeks, type of day and time [day, slot]."""
        free = self._free[self._trial_days :]
        mean, variance = np.zeros(rest_wh.shape), np.zeros(rest_wh.shape)
        for kind in (False, True):
            of_kind = np.flatnonzero(free == kind)
            for month in np.unique(of_kind // _MONTH_DAYS):
                days = of_kind[of_kind // _MONTH_DAYS == month]
                mean[days] = rest_wh[days].mean(axis=0)
            variance[of_kind] = ((rest_wh - mean)[of_kind] ** 2).mean(axis=0)
        return mean, variance

    def _learn_readings(self, own_wh: IntArray, slots: IntArray, step: int) -> tuple[FloatArray, FloatArray]:
        """Return the distributions of a reading away and home in a part of the day, from the first half."""
        cells = (own_wh.reshape(-1, self._slots)[: self._trial_days] + step // 2) // step
        home, length = self._by_day[: self._trial_days], int(own_wh.max()) // step + 2
        found = []
        for state in (False, True):
            pooled = np.bincount(cells[home == state], minlength=length) + 1 / length
            here = np.bincount(cells[:, slots][home[:, slots] == state], minlength=length)
            weights = here + _POOLED_WEIGHT * pooled / pooled.sum()
            found.append(np.kron(weights / weights.sum(), np.eye(1, step)[0]))
        return found[0], found[1]

    def _log_odds(self, ratio: FloatArray) -> FloatArray:
        odds = np.zeros(ratio.shape)
        free = self._free[self._trial_days :]
        for kind, (initial, transition) in self._chains.items():
            emission = np.stack([np.zeros_like(ratio[free == kind]), ratio[free == kind]], axis=-1)
            odds[free == kind] = adversary.smoothed_log_odds(initial, transition, emission)
        return odds

    def _judge(self, ratio: FloatArray) -> AttackScores:
        odds = self._log_odds(ratio)
        overall = estimate_auc(odds.reshape(-1, 1), self._home.reshape(-1, 1), np.array([True]))
        same_time = estimate_auc(odds - self._prior, self._home, np.ones(self._slots, np.bool_))
        return AttackScores(*(0.5 if each is None else each.auc.mean for each in (overall, same_time)))
