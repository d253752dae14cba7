"""Models f(X | S, earlier rates) of the energy of a household in one interval, on integer Wh within public bounds.

A model may depend on occupancy, on the time of day and on earlier prices (paper, section II-A). `RowSelector` maps the
last two to a row of the model. `UniformConsumption` is the model of the paper's simulation. `TableConsumption` takes
any distribution.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from murmurate.errors import ModelError
from murmurate.units import BoolArray, FloatArray, IntArray, as_int64_array, raise_where

EMPTY_PRICE_HISTORY: IntArray = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelector:
    """Selects the row of a model by the time of day and the mean of the last `price_window` published prices.

    `price_steps` are rising prices [ticks] that separate the levels 0, 1, .. The level is 0 before the first price.

    >>> RowSelector(period=(0, 0, 1), price_steps=(100,)).select_row(interval=5, past_ticks=np.array([80, 120]))
    (1, 1)
    """

    period: tuple[int, ...] = (0,)  # [interval of the day]
    price_steps: tuple[int, ...] = ()
    price_window: int = 1

    def __post_init__(self) -> None:
        if not self.period or min(self.period) < 0:
            raise ModelError("period", self.period, "must name a row, 0 or more, for each interval of the day")
        if list(self.price_steps) != sorted(set(self.price_steps)):
            raise ModelError("price_steps", self.price_steps, "must rise")
        if self.price_window < 1:
            raise ModelError("memory", self.price_window, "must be at least 1 published price")

    def select_row(self, interval: int, past_ticks: IntArray) -> tuple[int, int]:
        """Return the (level, period) of an interval, given all earlier prices."""
        recent = [int(ticks) for ticks in past_ticks[-self.price_window :]]
        level = bisect_right([step * len(recent) for step in self.price_steps], sum(recent)) if recent else 0
        return level, self.period[interval % len(self.period)]

    def table_shape(self) -> tuple[int, int]:
        """Return the number of (levels, periods) of a model."""
        return len(self.price_steps) + 1, max(self.period) + 1


class ConsumptionModel(Protocol):
    """A law of X_i^t given S_i^t and earlier prices. `bound_wh` [household] is public and never exceeded.

    It is u_i where no household feeds in.
    """

    @property
    def bound_wh(self) -> IntArray: ...

    def sample(self, occupied: BoolArray, interval: int, past_ticks: IntArray, rng: np.random.Generator) -> IntArray:
        """Sample `energy_wh` [household]."""
        ...

    def pmf(self, household: int, occupied: bool, interval: int, past_ticks: IntArray) -> FloatArray:
        """Return f(x | S, earlier prices) for x = 0, 1, .. [Wh], or from minus the export bound on."""
        ...

    def mean_wh(self, interval: int, past_ticks: IntArray) -> FloatArray:
        """Return E[X | S = s] [occupied, household] in Wh."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UniformConsumption:
    """X uniform on 0, 1, .., ceiling: the paper's simulation has u_i when active at home and u_i/2 otherwise.

    >>> law = UniformConsumption.from_ceilings(ceiling_wh=[[500, 20], [1000, 40]])
    >>> law.bound_wh.tolist(), law.mean_wh(0, EMPTY_PRICE_HISTORY).tolist()
    ([1000, 40], [[250.0, 10.0], [500.0, 20.0]])
    """

    ceiling_wh: IntArray  # [level, period, occupied, household]
    row_selector: RowSelector
    bound_wh: IntArray  # [household]

    @classmethod
    def from_ceilings(
        cls, ceiling_wh: Any, row_selector: RowSelector | None = None, bound_wh: Any = None
    ) -> UniformConsumption:
        """Build from ceilings [.., occupied, household]. The default bound is the largest ceiling."""
        row_selector = row_selector or RowSelector()
        ceiling = as_int64_array(ceiling_wh, "ceiling_wh", ModelError)
        if ceiling.ndim < 2:
            raise ModelError("ceiling_wh", f"shaped {ceiling.shape}", "must end in the axes [occupied, household]")
        ceiling = np.broadcast_to(ceiling, (*row_selector.table_shape(), *ceiling.shape[-2:]))
        bound = ceiling.max(axis=(0, 1, 2)) if bound_wh is None else as_int64_array(bound_wh, "bound_wh", ModelError)
        return cls(ceiling_wh=ceiling, row_selector=row_selector, bound_wh=bound)

    def __post_init__(self) -> None:
        shape = (*self.row_selector.table_shape(), 2, *self.bound_wh.shape)
        if self.bound_wh.ndim != 1 or self.ceiling_wh.shape != shape:
            allowed = f"must be [level, period, occupied, household], here {shape}"
            raise ModelError("ceiling_wh", f"shaped {self.ceiling_wh.shape}", allowed)
        raise_where(self.bound_wh < 1, "bound_wh", self.bound_wh, "must be at least 1 Wh", ModelError)
        outside = (self.ceiling_wh < 0) | (self.ceiling_wh > self.bound_wh)
        raise_where(outside, "ceiling_wh", self.ceiling_wh, "must lie between 0 and bound_wh", ModelError)

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
        ceilings: IntArray = self.ceiling_wh[self.row_selector.select_row(interval, past_ticks)]
        return ceilings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableConsumption:
    """Any law, as a table of probabilities that households of one kind share. Its first column may be below 0 Wh.

    >>> law = TableConsumption.from_probabilities([[[0.5, 0.5, 0.0]], [[0.0, 0.5, 0.5]]], kind=[0, 0])
    >>> law.bound_wh.tolist(), law.pmf(1, True, 0, EMPTY_PRICE_HISTORY).tolist()
    ([2, 2], [0.0, 0.5, 0.5])
    """

    probability: FloatArray  # [level, period, occupied, kind, wh]
    kind: IntArray  # [household]
    row_selector: RowSelector
    bound_wh: IntArray  # [household]
    export_bound_wh: int = 0  # the first column is minus this [Wh]

    @classmethod
    def from_probabilities(
        cls,
        probability: Any,
        kind: Any,
        row_selector: RowSelector | None = None,
        bound_wh: Any = None,
        export_bound_wh: int = 0,
    ) -> TableConsumption:
        """Build from probabilities [.., occupied, kind, wh]. The default bound is the last column."""
        row_selector = row_selector or RowSelector()
        table = np.asarray(probability, np.float64)
        table = np.broadcast_to(table, (*row_selector.table_shape(), *table.shape[-3:]))
        kinds = as_int64_array(kind, "kind", ModelError)
        last = np.full(kinds.shape, table.shape[-1] - 1 - export_bound_wh)
        bound = last if bound_wh is None else as_int64_array(bound_wh, "bound_wh", ModelError)
        return cls(
            probability=table, kind=kinds, row_selector=row_selector, bound_wh=bound, export_bound_wh=export_bound_wh
        )

    def __post_init__(self) -> None:
        if self.probability.ndim != 5 or self.probability.shape[:3] != (*self.row_selector.table_shape(), 2):
            shape = f"(levels, periods, 2, kinds, wh) with {self.row_selector.table_shape()} levels and periods"
            raise ModelError("probability", self.probability.shape, f"must be shaped {shape}")
        raise_where(~(self.probability >= 0), "probability", self.probability, "must be 0 or more", ModelError)
        total = self.probability.sum(axis=-1)
        raise_where(~(np.abs(total - 1) <= 1e-9), "probability", total, "rows must sum to 1", ModelError)
        kinds, columns = self.probability.shape[-2:]
        raise_where((self.kind < 0) | (self.kind >= kinds), "kind", self.kind, f"must be below {kinds}", ModelError)
        last_wh = max(columns - 1 - self.export_bound_wh, 1)
        allowed = f"must be at least {last_wh} Wh, the last column of the table"
        raise_where(self.bound_wh < last_wh, "bound_wh", self.bound_wh, allowed, ModelError)

    def sample(self, occupied: BoolArray, interval: int, past_ticks: IntArray, rng: np.random.Generator) -> IntArray:
        below = np.cumsum(self._conditional_pmfs(interval, past_ticks), axis=-1)
        uniform = rng.random(len(self.kind))
        energy_wh = np.zeros(len(self.kind), np.int64)
        for state, kind in np.ndindex(below.shape[:2]):
            selected = (occupied == bool(state)) & (self.kind == kind)
            energy_wh[selected] = np.searchsorted(
                below[state, kind], uniform[selected] * below[state, kind, -1], side="right"
            )
        return energy_wh - self.export_bound_wh

    def pmf(self, household: int, occupied: bool, interval: int, past_ticks: IntArray) -> FloatArray:
        pmf: FloatArray = self._conditional_pmfs(interval, past_ticks)[int(occupied), self.kind[household]]
        return pmf

    def mean_wh(self, interval: int, past_ticks: IntArray) -> FloatArray:
        pmfs = self._conditional_pmfs(interval, past_ticks)
        mean: FloatArray = (pmfs @ np.arange(pmfs.shape[-1]))[:, self.kind]
        return mean - self.export_bound_wh

    def _conditional_pmfs(self, interval: int, past_ticks: IntArray) -> FloatArray:
        pmfs: FloatArray = self.probability[self.row_selector.select_row(interval, past_ticks)]
        return pmfs
