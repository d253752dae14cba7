"""Occupancy of households as Markov chains over their joint states.

Households that depend on each other form a group of k members. Their joint occupancy is a Markov chain on 2^k states;
k = 1 is a single household, k = N the paper's full joint chain (section II-B). Groups of equal
size share arrays, and the chain is the last axis, so that ten million households are a few NumPy calls.

In state s of a group, member m is home iff bit m of s is set. `initial` is the prior of the first interval;
``transition[period[t]]`` moves interval t-1 to t (the paper's A^t as its equation 2 uses it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ModelError
from murmurate.time_zones import LocalClock, local_clock, parse_slot
from murmurate.units import QUARTER_HOURS_PER_DAY, BoolArray, FloatArray, IntArray, as_int64_array, raise_where

_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OccupancyChains:
    """Groups of k households, each group one Markov chain on its 2^k joint states. A household kind needs k = 1.

    `kind` lets many groups share one column of probabilities: group c uses ``initial[:, kind[c]]``.

    Attributes:
        members: Household numbers [member, group].
        initial: Prior of the first interval [state, kind]. A `HouseholdKind` replaces it by the periodic one.
        transition: Probability to go from one state to another, into an interval [period, from, to, kind]. State 0 of a
            single household is away, state 1 home.
        period: Which row of `transition` leads into each interval [interval of the day, in standard time].
        kind: Which column of `initial` and `transition` a group has [group].

    Raises:
        ModelError: The arrays do not fit each other, or are no probabilities.

    Example:
        >>> import murmurate as mm
        >>> mm.OccupancyChains.independent(initial=[0.5, 0.5], arrive=[[0.1, 0.0]], leave=[[0.2, 0.3]])
        OccupancyChains(2 groups of 1, 1 period)
        >>> transition = [[[[0.6], [0.3]], [[0.0], [1.0]]]]
        >>> mm.OccupancyChains(members=[[0]], initial=[[1.0], [0.0]], transition=transition, period=[0], kind=[0])
        Traceback (most recent call last):
        murmurate.errors.ModelError: sum of transition[0, 0, :, 0] is 0.9: rows must sum to 1
    """

    members: IntArray  # [member, group] household numbers
    initial: FloatArray  # [state, kind]
    transition: FloatArray  # [period, from, to, kind]
    period: IntArray  # [interval of the day] -> first axis of transition
    kind: IntArray  # [group] -> last axis of initial and transition

    @classmethod
    def from_periods(
        cls,
        periods: Mapping[str, str],
        arrive: Mapping[str, float],
        leave: Mapping[str, float],
        *,
        time_zone: str | LocalClock = "UTC",
        intervals_per_day: int = QUARTER_HOURS_PER_DAY,
    ) -> OccupancyChains:
        """Return the chain of one household from its periods of the day, as a zone file describes it.

        Args:
            periods: The local time "HH:MM" at which each period starts, by its name.
            arrive: The chance to come home at some point during a period, by its name, 0 or more and below 1.
            leave: The chance to leave at some point during a period, by its name, 0 or more and below 1.
            time_zone: Name of the time zone of the hours, such as Europe/Zurich.
            intervals_per_day: Number of intervals of a day; 96 are quarter hours.

        Returns:
            The chain, by standard time.

        Raises:
            ModelError: A time is not the start of an interval, a period has no chance, or a chance is out of range.

        Example:
            >>> import murmurate as mm
            >>> hours = {"day": "08:00", "night": "20:00"}
            >>> chain = mm.OccupancyChains.from_periods(hours, {"day": 0, "night": 0.9}, {"day": 0.9, "night": 0})
            >>> chain, chain.transition_at(40)[1, 0].round(4).tolist()
            (OccupancyChains(1 group of 1, 2 periods), [0.0468])
        """
        day = intervals_per_day
        clock = local_clock(time_zone) if isinstance(time_zone, str) else time_zone
        begins = {name: parse_slot("periods", str(start), day) for name, start in periods.items()}
        if len(set(begins.values())) != len(begins) or not begins:
            raise ModelError("periods", sorted(begins.values()), "must be at least one, each with a different start")
        names = sorted(begins, key=begins.__getitem__)
        local = np.searchsorted([begins[name] for name in names], np.arange(day), side="right") - 1
        calendar = np.roll(local % len(names), -clock.slot_shifts(day)[0])  # on standard time
        chances = {}
        for key, by_period in (("arrive", arrive), ("leave", leave)):
            if set(by_period) != set(names):
                raise ModelError(key, sorted(by_period), f"must name each period once: {', '.join(names)}")
            numbers = [by_period[name] for name in names]
            if not all(isinstance(number, Real) and 0 <= number < 1 for number in numbers):
                raise ModelError(key, numbers, "must be chances, 0 or more and below 1")
            per_period = np.array(numbers, np.float64)
            chances[key] = per_interval_probability(per_period, np.bincount(calendar))[:, None]
        return cls.independent(initial=[0.5], arrive=chances["arrive"], leave=chances["leave"], period=calendar)

    @classmethod
    def independent(
        cls, *, initial: Any, arrive: Any, leave: Any, period: Any = (0,), kind: Any = None, first_household: int = 0
    ) -> OccupancyChains:
        """Return households that do not depend on each other, from the probabilities of an interval.

        Args:
            initial: Probability to be home in the first interval [kind].
            arrive: Probability to be home after an interval away [period, kind].
            leave: Probability to be away after an interval at home [period, kind].
            period: Which row of `arrive` and `leave` leads into each interval [interval of the day, in standard time].
            kind: Which column a household has [household]; None: one household of each.
            first_household: Number of the first household.

        Returns:
            One group for each household.

        Raises:
            ModelError: The arrays do not fit each other, or are no probabilities.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> hour = np.arange(24)
            >>> arrive = np.where(hour >= 17, 0.6, 0.02)  # any function of the hour
            >>> mm.OccupancyChains.independent(initial=[0.5], arrive=arrive[:, None], leave=0.1 - 0 * arrive[:, None],
            ...                                period=hour)
            OccupancyChains(1 group of 1, 24 periods)
        """
        start, come, go = (np.asarray(p, np.float64) for p in (initial, arrive, leave))
        kinds = _household_numbers(0, len(start)) if kind is None else as_int64_array(kind, "kind", ModelError)
        return cls(
            members=_household_numbers(first_household, len(kinds))[None, :],
            initial=np.stack([1 - start, start]),
            transition=np.stack([np.stack([1 - come, come], 1), np.stack([go, 1 - go], 1)], 1),
            period=period,
            kind=kinds,
        )

    def __post_init__(self) -> None:
        for name in ("members", "period", "kind"):
            object.__setattr__(self, name, as_int64_array(getattr(self, name), name, ModelError))
        for name in ("initial", "transition"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        states, kinds, periods = 2 ** len(self.members), self.initial.shape[-1], len(self.transition)
        expected: tuple[int, ...] = (states, kinds)
        if self.initial.shape != expected:
            raise ModelError("initial", f"shaped {self.initial.shape}", f"must be [state, kind], here {expected}")
        expected = (periods, states, states, kinds)
        if self.transition.shape != expected:
            actual = f"shaped {self.transition.shape}"
            raise ModelError("transition", actual, f"must be [period, from, to, kind], here {expected}")
        if self.members.shape[1:] != self.kind.shape:
            groups = self.members.shape[1:]
            raise ModelError("kind", f"shaped {self.kind.shape}", f"must have one entry per group, here {groups}")
        if not len(self.period):
            raise ModelError("period", "empty", "must name a row of transition for each interval of the day")
        for name, values, limit in (("kind", self.kind, kinds), ("period", self.period, periods)):
            raise_where((values < 0) | (values >= limit), name, values, f"must be below {limit}", ModelError)
        _check_distribution("initial", (), self.initial)
        for row, state in np.ndindex(self.transition.shape[:2]):
            _check_distribution("transition", (row, state), self.transition[row, state])

    @property
    def group_size(self) -> int:
        """The number of members of each group."""
        return len(self.members)

    def transition_at(self, interval: int) -> FloatArray:
        """Return the transition into an interval. Days repeat.

        Args:
            interval: Number of the interval, from 0.

        Returns:
            The probability to go from one state to another [from, to, kind].

        Example:
            >>> import murmurate as mm
            >>> chain = mm.OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.2]])
            >>> chain.transition_at(95)[..., 0].tolist()
            [[0.9, 0.1], [0.2, 0.8]]
        """
        transition: FloatArray = self.transition[self.period[interval % len(self.period)]]
        return transition

    def __repr__(self) -> str:
        counts = {"group": len(self.kind), "period": len(self.transition)}
        groups, periods = (f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items())
        return f"OccupancyChains({groups} of {self.group_size}, {periods})"


@lru_cache(maxsize=8)
def _household_numbers(first: int, count: int) -> IntArray:
    """Return first, first + 1, .. The array is cached, because many models of a class number the same households."""
    numbers = np.arange(first, first + count)
    numbers.flags.writeable = False
    return numbers


def _check_distribution(field: str, row: tuple[int, ...], probability: FloatArray) -> None:
    """Raise ModelError unless `probability` [state, kind] is a distribution over states."""
    total = probability.sum(axis=0)
    proper = (probability >= 0).all(axis=0) & (np.abs(total - 1) <= _SUM_TOLERANCE)
    if proper.all():
        return
    kind = int(proper.argmin())
    position = ", ".join(map(str, (*row, ":", kind)))
    if (probability[:, kind] >= 0).all():
        raise ModelError(f"sum of {field}[{position}]", f"{total[kind]:.12g}", "rows must sum to 1")
    raise ModelError(f"{field}[{position}]", probability[:, kind].tolist(), "probabilities must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OccupancyModel:
    """One model theta of a zone: groups that contain every household exactly once."""

    groups: tuple[OccupancyChains, ...]

    def __post_init__(self) -> None:
        if len({len(chains.period) for chains in self.groups}) != 1:
            lengths = [len(chains.period) for chains in self.groups]
            raise ModelError("period", lengths, "must be equal for all groups of a model")
        count = np.zeros(self.households, np.int64)
        for chains in self.groups:
            members = chains.members.ravel()
            outside = (members < 0) | (members >= len(count))
            raise_where(outside, "members", members, "must number households from 0", ModelError)
            np.add.at(count, members, 1)
        raise_where(count != 1, "household", count, "groups must contain each household exactly once", ModelError)

    @property
    def households(self) -> int:
        return sum(chains.members.size for chains in self.groups)

    @property
    def intervals_per_day(self) -> int:
        return len(self.groups[0].period)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelClass:
    """Theta: the models that an attacker may assume, over the same households and the same day (paper, section II-B).

    They share states and observation models and differ only in `initial` and `transition`. There is no prior over them.
    """

    models: tuple[OccupancyModel, ...]

    def __post_init__(self) -> None:
        for name in ("households", "intervals_per_day"):
            values = sorted({getattr(model, name) for model in self.models})
            if len(values) != 1:
                raise ModelError(name, values, "must be the same in every model of a class of at least one model")

    @property
    def households(self) -> int:
        return self.models[0].households


def per_interval_probability(cumulative_probability: FloatArray, intervals: IntArray) -> FloatArray:
    """Return the probability per interval, 1 - (1-P)^(1/n), of an event with probability P over n intervals.

    >>> per_interval_probability(np.array([0.98]), np.array([4])).round(5).tolist()
    [0.62394]
    """
    return np.asarray(-np.expm1(np.log1p(-cumulative_probability) / intervals))


def sample_occupancy(model: OccupancyModel, horizon: int, rng: np.random.Generator) -> BoolArray:
    """Sample `occupied` [interval, household].

    >>> always = OccupancyChains.independent(initial=[1.0], arrive=[[0.0]], leave=[[0.0]])
    >>> sample_occupancy(OccupancyModel(groups=(always,)), 3, np.random.default_rng(1)).tolist()
    [[True], [True], [True]]
    """
    occupied = np.zeros((horizon, model.households), np.bool_)
    for chains in model.groups:
        state = _sample_states(chains.initial[:, chains.kind], rng)
        for interval in range(horizon):
            if interval:
                state = _sample_states(chains.transition_at(interval)[state, :, chains.kind].T, rng)
            for member, household in enumerate(chains.members):
                occupied[interval, household] = state >> member & 1
    return occupied


def _sample_states(probability: FloatArray, rng: np.random.Generator) -> IntArray:
    """Sample one state per column of `probability` [state, group], never a state of probability 0."""
    below = np.cumsum(probability, axis=0)
    drawn: IntArray = (below <= rng.random(probability.shape[1]) * below[-1]).sum(axis=0)
    return drawn


def occupancy_probability(model: OccupancyModel, horizon: int) -> FloatArray:
    """Return the prior Pr[S_i^t = 1] before any release [interval, household].

    >>> fading = OccupancyChains.independent(initial=[1.0], arrive=[[0.0]], leave=[[0.5]])
    >>> occupancy_probability(OccupancyModel(groups=(fading,)), 3)[:, 0].tolist()
    [1.0, 0.5, 0.25]
    """
    probability = np.zeros((horizon, model.households))
    for chains in model.groups:
        belief = chains.initial
        for interval in range(horizon):
            if interval:
                belief = np.einsum("ik,ijk->jk", belief, chains.transition_at(interval))
            for member, household in enumerate(chains.members):
                home = (np.arange(len(belief)) >> member & 1).astype(bool)
                probability[interval, household] = belief[home].sum(axis=0)[chains.kind]
    return probability


class LogJointChain(NamedTuple):
    """A model in the paper's form: one chain on all 2^N states M^1 .. M^m, in natural logarithms."""

    initial: FloatArray  # [state] log Pi
    transition: FloatArray  # [interval of the day, from, to] log A^t


def log_joint_chain(model: OccupancyModel) -> LogJointChain:
    """Return the full joint chain of `model` (small N only). Household i is home in state s iff bit i of s is set."""
    if model.households > 12:
        raise ModelError("households", model.households, "must be at most 12 for the joint chain on 2**N states")
    state = np.arange(2**model.households)
    initial = np.zeros(len(state))
    transition = np.zeros((model.intervals_per_day, len(state), len(state)))
    with np.errstate(divide="ignore"):
        for chains in model.groups:
            for group, kind in enumerate(chains.kind):
                local = sum((state >> household & 1) << m for m, household in enumerate(chains.members[:, group]))
                initial += np.log(chains.initial[:, kind])[local]
                steps = np.log(chains.transition[..., kind])[chains.period]
                transition += steps[:, np.asarray(local)[:, None], np.asarray(local)[None, :]]
    return LogJointChain(initial, transition)
