"""Which joint states a chain may be in: Boolean reachability on its zero pattern, eight kinds of household a byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from murmurate.household.occupancy import Chains
from murmurate.quantities import BoolArray, FloatArray, IntArray

BitPlanes = NDArray[np.uint8]  # last axis: kinds, one bit each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reachable:
    """mu^t of each kind of group in `Chains`, as bit planes.

    >>> chains = Chains.independent(initial=[0.0, 0.0], arrive=[[0.1, 0.0]], leave=[[0.2, 0.3]])
    >>> Reachable.at_start(chains).enter(1).states().tolist()
    [[True, True], [True, False]]
    """

    possible: BitPlanes  # [state, byte]
    transition: BitPlanes  # [period, from, to, byte]
    period: IntArray  # [interval of the day]
    kinds: int

    @classmethod
    def at_start(cls, chains: Chains) -> Reachable:
        """support(Pi): decided on exact zeros, never on a belief."""
        return cls(
            possible=_planes(chains.initial),
            transition=np.stack([_planes(row) for row in chains.transition]),
            period=chains.period,
            kinds=chains.initial.shape[-1],
        )

    def enter(self, interval: int) -> Reachable:
        """One interval on: support(P A^t) where t = `interval` is the one entered."""
        step = self.transition[self.period[interval % len(self.period)]]
        possible = self.possible[0] & step[0]
        for state, reaches in zip(self.possible[1:], step[1:], strict=True):
            possible |= state & reaches
        return replace(self, possible=possible)

    def exposed(self) -> BitPlanes:
        """Members in which alone two possible states differ (nu, then kappa) [member, byte]."""
        states = range(len(self.possible))
        members = range(len(states).bit_length() - 1)
        without = [[state for state in states if not state >> member & 1] for member in members]
        return np.stack(
            [
                reduce(np.bitwise_or, (self.possible[s] & self.possible[s | 1 << member] for s in without[member]))
                for member in members
            ]
        )

    def states(self) -> BoolArray:
        """The possible states [state, kind], one Boolean each."""
        return np.unpackbits(self.possible, axis=-1, count=self.kinds).view(np.bool_)


def _planes(law: FloatArray) -> BitPlanes:
    return np.packbits(law > 0, axis=-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Where the households of `Chains` stand: models that share it are united before anybody is looked up."""

    members: tuple[IntArray | slice, ...]  # [member] households of all groups
    kind: IntArray | slice  # [group]
    kinds: int

    @classmethod
    def of(cls, chains: Chains) -> Layout:
        members = tuple(_as_slice(households) for households in chains.members)
        return cls(members=members, kind=_as_slice(chains.kind), kinds=chains.initial.shape[-1])

    @staticmethod
    def key(chains: Chains) -> tuple[object, ...]:
        """Equal for chains that share their arrays of households and kinds, and have equally many of these."""
        arrays = (chains.members, chains.kind)
        return chains.initial.shape[-1], *((a.__array_interface__["data"][0], a.shape, a.strides) for a in arrays)

    def mark(self, reachable: Iterable[Reachable], protected: BoolArray) -> None:
        """Set `protected` [household] where any of these models exposes a household."""
        union = reduce(np.bitwise_or, (chains.exposed() for chains in reachable))
        exposed = np.unpackbits(union, axis=-1, count=self.kinds).view(np.bool_)
        for households, kinds in zip(self.members, exposed, strict=True):
            protected[households] |= kinds[self.kind]


def _as_slice(indices: IntArray) -> IntArray | slice:
    """Consecutive numbers as a slice, which NumPy reads without a gather."""
    if len(indices) and bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices
