"""Random numbers for simulated homes: many at a time, from the raw bits of a generator. Not for the noise of a release.

Sixteen bits make a number, so that a draw costs a quarter of what a generator's own functions take.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Float32Array = NDArray[np.float32]

_VALUES = 1 << 16
_NORMAL = ndtri((np.arange(_VALUES) + 0.5) / _VALUES).astype(np.float32)


class RandomStream:
    """Draws from one generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def normal(self, count: int) -> Float32Array:
        """Return standard normal numbers, each one of 65,536 quantiles."""
        return np.take(_NORMAL, self._bits(count), mode="wrap")  # quicker than a check of each

    def uniform(self, count: int) -> Float32Array:
        """Return numbers between 0 and 1."""
        return (self._bits(count).astype(np.float32) + np.float32(0.5)) * np.float32(1 / _VALUES)

    def pick(self, count: int, chance: float) -> NDArray[np.intp]:
        """Return some of the numbers below `count`, each with a chance and independent of the others.

        A number may be there twice: so many that are thrown at random that a number is missed with 1 - chance.
        """
        thrown = int(self._rng.poisson(-count * np.log1p(-chance)))
        return (self._bits(thrown).astype(np.intp) * count) >> 16

    def _bits(self, count: int) -> NDArray[np.uint16]:
        raw = self._rng.bit_generator.random_raw(-(-count // 4))
        return np.asarray(raw, np.uint64).view(np.uint16)[:count]
