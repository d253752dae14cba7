"""The possible joint states of a chain: Boolean reachability on its zero pattern, eight kinds of household per byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from murmurate.household.occupancy import OccupancyChains
from murmurate.units import BoolArray, FloatArray, IntArray

BitPlanes = NDArray[np.uint8]  # last axis: kinds, one bit each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReachableStates:
    """mu^t of each kind of group in `OccupancyChains`, as bit planes.

    >>> chains = OccupancyChains.independent(initial=[0.0, 0.0], arrive=[[0.1, 0.0]], leave=[[0.2, 0.3]])
    >>> ReachableStates.from_chains(chains).advance(1).possible.tolist()  # away: both kinds; home: the first one
    [[192], [128]]
    """

    possible: BitPlanes  # [state, byte]
    transition: BitPlanes  # [period, from, to, byte]
    period: IntArray  # [interval of the day]

    @classmethod
    def from_chains(cls, chains: OccupancyChains) -> ReachableStates:
        """Return support(Pi). It depends on exact zeros, never on a belief."""
        return cls(
            possible=_pack_bits(chains.initial),
            transition=np.stack([_pack_bits(row) for row in chains.transition]),
            period=chains.period,
        )

    def advance(self, interval: int) -> ReachableStates:
        """Return support(P A^t), the possible states of the next interval t = `interval`."""
        step = self.transition[self.period[interval % len(self.period)]]
        possible = self.possible[0] & step[0]
        for state, reaches in zip(self.possible[1:], step[1:], strict=True):
            possible |= state & reaches
        return replace(self, possible=possible)

    def exposed_members(self) -> BitPlanes:
        """Return the members that are the only difference of two possible states (nu, then kappa) [member, byte]."""
        states = range(len(self.possible))
        members = range(len(states).bit_length() - 1)
        without = [[state for state in states if not state >> member & 1] for member in members]
        return np.stack(
            [
                reduce(np.bitwise_or, (self.possible[s] & self.possible[s | 1 << member] for s in without[member]))
                for member in members
            ]
        )


def _pack_bits(probability: FloatArray) -> BitPlanes:
    return np.packbits(probability > 0, axis=-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HouseholdLayout:
    """The household numbers of `OccupancyChains`. Models with the same layout are united before the lookup."""

    members: tuple[IntArray | slice, ...]  # [member] households of all groups
    kind: IntArray | slice  # [group]
    kinds: int

    @classmethod
    def from_chains(cls, chains: OccupancyChains) -> HouseholdLayout:
        members = tuple(_as_slice(households) for households in chains.members)
        return cls(members=members, kind=_as_slice(chains.kind), kinds=chains.initial.shape[-1])

    @staticmethod
    def layout_key(chains: OccupancyChains) -> tuple[object, ...]:
        """Return a key that is equal for chains with the same arrays of households and kinds."""
        arrays = (chains.members, chains.kind)
        return chains.initial.shape[-1], *((a.__array_interface__["data"][0], a.shape, a.strides) for a in arrays)

    def mark_protected(self, reachable: Iterable[ReachableStates], protected: BoolArray) -> None:
        """Set `protected` [household] to True for each household that any of these models exposes."""
        union = reduce(np.bitwise_or, (chains.exposed_members() for chains in reachable))
        exposed = np.unpackbits(union, axis=-1, count=self.kinds).view(np.bool_)
        for households, kinds in zip(self.members, exposed, strict=True):
            protected[households] |= kinds[self.kind]


def _as_slice(indices: IntArray) -> IntArray | slice:
    """Return consecutive numbers as a slice, which NumPy reads without a copy."""
    if len(indices) and bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices
