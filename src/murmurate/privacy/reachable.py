"""Which joint states a chain may be in: Boolean reachability on its zero pattern, eight groups of households a byte."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from murmurate.household.occupancy import Chains
from murmurate.quantities import BoolArray, FloatArray, IntArray

BitPlanes = NDArray[np.uint8]  # last axis: groups, one bit each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reachable:
    """mu^t of each group of `Chains`, as bit planes.

    >>> chains = Chains.independent(initial=[0.0, 0.0], arrive=[[0.1, 0.0]], leave=[[0.2, 0.3]])
    >>> Reachable.at_start(chains).enter(1).states().tolist()
    [[True, True], [True, False]]
    """

    possible: BitPlanes  # [state, byte]
    transition: BitPlanes  # [period, from, to, byte]
    period: IntArray  # [interval of the day]
    members: tuple[IntArray | slice, ...]  # [member] households of all groups
    groups: int

    @classmethod
    def at_start(cls, chains: Chains) -> Reachable:
        """support(Pi): decided on exact zeros, never on a belief."""
        kind = _as_slice(chains.kind)
        rows = [[[_plane(law, kind) for law in step] for step in row] for row in chains.transition]
        return cls(
            possible=np.stack([_plane(law, kind) for law in chains.initial]),
            transition=np.array(rows),
            period=chains.period,
            members=tuple(_as_slice(households) for households in chains.members),
            groups=len(chains.kind),
        )

    def enter(self, interval: int) -> Reachable:
        """One interval on: support(P A^t) where t = `interval` is the one entered."""
        step = self.transition[self.period[interval % len(self.period)]]
        possible = self.possible[0] & step[0]
        for state, reaches in zip(self.possible[1:], step[1:], strict=True):
            possible |= state & reaches
        return replace(self, possible=possible)

    def mark(self, protected: BoolArray) -> None:
        """Set `protected` [household] where two possible states differ in that household alone (nu, then kappa)."""
        for member, households in enumerate(self.members):
            absent = [state for state in range(len(self.possible)) if not state >> member & 1]
            pairs = [self.possible[state] & self.possible[state | 1 << member] for state in absent]
            differs = np.bitwise_or.reduce(pairs)
            protected[households] |= np.unpackbits(differs, count=self.groups).view(np.bool_)

    def states(self) -> BoolArray:
        """The possible states [state, group], one Boolean each."""
        return np.unpackbits(self.possible, axis=-1, count=self.groups).view(np.bool_)


def _plane(probability: FloatArray, kind: IntArray | slice) -> NDArray[np.uint8]:
    return np.packbits((probability > 0)[kind])


def _as_slice(indices: IntArray) -> IntArray | slice:
    """Consecutive numbers as a slice, which NumPy reads without a gather."""
    if len(indices) and bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices
