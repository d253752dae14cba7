"""What a household consumes in one interval: laws f(X | S, earlier rates) on integer Wh within a public bound.

A law may depend on occupancy, on the time of day and on prices published earlier (paper, section II-A). How the last
two enter is said by a :class:`Setting`; which law it then is, by :class:`UniformConsumption` (the paper's simulation)
or :class:`TableConsumption` (anything else).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from murmurate.errors import ModelError
from murmurate.quantities import BoolArray, FloatArray, IntArray, integers, refuse_where

NO_PRICES: IntArray = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Which row of a law holds: by time of day, and by the mean of the last `memory` published prices.

    `price_steps` are rising prices [ticks] that part the levels 0, 1, ..; before the first publication the level is 0.

    >>> Setting(period=(0, 0, 1), price_steps=(100,)).row(interval=5, past_ticks=np.array([80, 120]))
    (1, 1)
    """

    period: tuple[int, ...] = (0,)  # [interval of the day]
    price_steps: tuple[int, ...] = ()
    memory: int = 1

    def __post_init__(self) -> None:
        if not self.period or min(self.period) < 0:
            raise ModelError("period", self.period, "must name a row, 0 or more, for each interval of the day")
        if list(self.price_steps) != sorted(set(self.price_steps)):
            raise ModelError("price_steps", self.price_steps, "must rise")
        if self.memory < 1:
            raise ModelError("memory", self.memory, "must be at least 1 published price")

    def row(self, interval: int, past_ticks: IntArray) -> tuple[int, int]:
        """(level, period) of an interval, given all prices published before it."""
        recent = [int(ticks) for ticks in past_ticks[-self.memory :]]
        level = bisect_right([step * len(recent) for step in self.price_steps], sum(recent)) if recent else 0
        return level, self.period[interval % len(self.period)]

    def rows(self) -> tuple[int, int]:
        """How many (levels, periods) a law must know."""
        return len(self.price_steps) + 1, max(self.period) + 1


class ConsumptionLaw(Protocol):
    """A law of X_i^t given S_i^t and earlier prices. `bound_wh` [household] is u_i: public, and never exceeded."""

    @property
    def bound_wh(self) -> IntArray: ...

    def sample(self, occupied: BoolArray, interval: int, past_ticks: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw `energy_wh` [household]."""
        ...

    def pmf(self, household: int, occupied: bool, interval: int, past_ticks: IntArray) -> FloatArray:
        """f(x | S, earlier prices) for x = 0, 1, .. [Wh]."""
        ...

    def mean_wh(self, interval: int, past_ticks: IntArray) -> FloatArray:
        """E[X | S = s] [occupied, household], in Wh."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UniformConsumption:
    """X uniform on 0, 1, .., ceiling: the paper's simulation has u_i when active at home and u_i/2 otherwise.

    >>> law = UniformConsumption.of(ceiling_wh=[[500, 20], [1000, 40]])
    >>> law.bound_wh.tolist(), law.mean_wh(0, NO_PRICES).tolist()
    ([1000, 40], [[250.0, 10.0], [500.0, 20.0]])
    """

    ceiling_wh: IntArray  # [level, period, occupied, household]
    setting: Setting
    bound_wh: IntArray  # [household]

    @classmethod
    def of(cls, ceiling_wh: Any, setting: Setting | None = None, bound_wh: Any = None) -> UniformConsumption:
        """From ceilings [.., occupied, household]; leading axes may be left out. The bound is the largest ceiling."""
        setting = setting or Setting()
        ceiling = integers(ceiling_wh, "ceiling_wh", ModelError)
        if ceiling.ndim < 2:
            raise ModelError("ceiling_wh", f"shaped {ceiling.shape}", "must end in the axes [occupied, household]")
        ceiling = np.broadcast_to(ceiling, (*setting.rows(), *ceiling.shape[-2:]))
        bound = ceiling.max(axis=(0, 1, 2)) if bound_wh is None else integers(bound_wh, "bound_wh", ModelError)
        return cls(ceiling_wh=ceiling, setting=setting, bound_wh=bound)

    def __post_init__(self) -> None:
        wanted = (*self.setting.rows(), 2, *self.bound_wh.shape)
        if self.bound_wh.ndim != 1 or self.ceiling_wh.shape != wanted:
            found = f"shaped {self.ceiling_wh.shape}"
            raise ModelError("ceiling_wh", found, f"must be [level, period, occupied, household], here {wanted}")
        refuse_where(self.bound_wh < 1, "bound_wh", self.bound_wh, "must be at least 1 Wh", ModelError)
        outside = (self.ceiling_wh < 0) | (self.ceiling_wh > self.bound_wh)
        refuse_where(outside, "ceiling_wh", self.ceiling_wh, "must lie between 0 and bound_wh", ModelError)

    def sample(self, occupied: BoolArray, interval: int, past_ticks: IntArray, rng: np.random.Generator) -> IntArray:
        away, home = self._ceilings(interval, past_ticks)
        energy_wh: IntArray = rng.integers(0, np.where(occupied, home, away), endpoint=True)
        return energy_wh

    def pmf(self, household: int, occupied: bool, interval: int, past_ticks: IntArray) -> FloatArray:
        outcomes = int(self._ceilings(interval, past_ticks)[int(occupied), household]) + 1
        return np.full(outcomes, 1 / outcomes)

    def mean_wh(self, interval: int, past_ticks: IntArray) -> FloatArray:
        return self._ceilings(interval, past_ticks) / 2

    def _ceilings(self, interval: int, past_ticks: IntArray) -> IntArray:
        found: IntArray = self.ceiling_wh[self.setting.row(interval, past_ticks)]
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableConsumption:
    """Any law, as a table of probabilities that households of one kind share.

    >>> law = TableConsumption.of([[[0.5, 0.5, 0.0]], [[0.0, 0.5, 0.5]]], kind=[0, 0])
    >>> law.bound_wh.tolist(), law.pmf(1, True, 0, NO_PRICES).tolist()
    ([2, 2], [0.0, 0.5, 0.5])
    """

    probability: FloatArray  # [level, period, occupied, kind, wh]
    kind: IntArray  # [household]
    setting: Setting
    bound_wh: IntArray  # [household]

    @classmethod
    def of(cls, probability: Any, kind: Any, setting: Setting | None = None, bound_wh: Any = None) -> TableConsumption:
        """From probabilities [.., occupied, kind, wh]; the bound is the last column unless a larger one is given."""
        setting = setting or Setting()
        table = np.asarray(probability, np.float64)
        table = np.broadcast_to(table, (*setting.rows(), *table.shape[-3:]))
        kinds = integers(kind, "kind", ModelError)
        last = np.full(kinds.shape, table.shape[-1] - 1)
        bound = last if bound_wh is None else integers(bound_wh, "bound_wh", ModelError)
        return cls(probability=table, kind=kinds, setting=setting, bound_wh=bound)

    def __post_init__(self) -> None:
        if self.probability.ndim != 5 or self.probability.shape[:3] != (*self.setting.rows(), 2):
            wanted = f"(levels, periods, 2, kinds, wh) with {self.setting.rows()} levels and periods"
            raise ModelError("probability", self.probability.shape, f"must be shaped {wanted}")
        refuse_where(~(self.probability >= 0), "probability", self.probability, "must be 0 or more", ModelError)
        total = self.probability.sum(axis=-1)
        refuse_where(~(np.abs(total - 1) <= 1e-9), "probability", total, "rows must sum to 1", ModelError)
        kinds, columns = self.probability.shape[-2:]
        refuse_where((self.kind < 0) | (self.kind >= kinds), "kind", self.kind, f"must be below {kinds}", ModelError)
        allowed = f"must be at least {max(columns - 1, 1)} Wh, the last column of the table"
        refuse_where(self.bound_wh < max(columns - 1, 1), "bound_wh", self.bound_wh, allowed, ModelError)

    def sample(self, occupied: BoolArray, interval: int, past_ticks: IntArray, rng: np.random.Generator) -> IntArray:
        below = np.cumsum(self._laws(interval, past_ticks), axis=-1)
        uniform = rng.random(len(self.kind))
        energy_wh = np.zeros(len(self.kind), np.int64)
        for state, kind in np.ndindex(below.shape[:2]):
            who = (occupied == bool(state)) & (self.kind == kind)
            energy_wh[who] = np.searchsorted(below[state, kind], uniform[who] * below[state, kind, -1], side="right")
        return energy_wh

    def pmf(self, household: int, occupied: bool, interval: int, past_ticks: IntArray) -> FloatArray:
        law: FloatArray = self._laws(interval, past_ticks)[int(occupied), self.kind[household]]
        return law

    def mean_wh(self, interval: int, past_ticks: IntArray) -> FloatArray:
        laws = self._laws(interval, past_ticks)
        mean: FloatArray = (laws @ np.arange(laws.shape[-1]))[:, self.kind]
        return mean

    def _laws(self, interval: int, past_ticks: IntArray) -> FloatArray:
        found: FloatArray = self.probability[self.setting.row(interval, past_ticks)]
        return found
