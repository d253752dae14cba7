"""Privacy curves delta(epsilon), and the pairs of distributions that they are computed from.

For outputs with distributions P and Q the curve is delta(epsilon) = sum over y of max(P(y) - e^epsilon Q(y), 0).
A mechanism is (epsilon, delta)-private for the pair iff the curves of (P, Q) and (Q, P) lie below delta at epsilon.
Proofs: `calibration.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from murmurate.errors import ModelError
from murmurate.privacy.huber import HuberCurve
from murmurate.units import FloatArray

_GAUSSIAN_CORE_SIGMAS = 38.0  # standard deviations beyond which the weight is below any double


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecretPair:
    """The distributions of a household's consumption when away and when home, on 0, 1, .., bound [Wh].

    >>> SecretPair.from_pmfs([0.5, 0.5, 0.0], [0.0, 0.5, 0.5]).bound_wh
    2
    """

    away: FloatArray  # [wh]
    home: FloatArray  # [wh]

    @classmethod
    def from_pmfs(cls, away: object, home: object) -> SecretPair:
        return cls(away=np.asarray(away, np.float64), home=np.asarray(home, np.float64))

    @classmethod
    def worst_case(cls, bound_wh: int) -> SecretPair:
        """Return the worst pair on 0, .., bound: always 0 when away, always the bound when home."""
        away, home = np.zeros(bound_wh + 1), np.zeros(bound_wh + 1)
        away[0] = home[-1] = 1.0
        return cls(away=away, home=home)

    def __post_init__(self) -> None:
        if self.away.shape != self.home.shape or self.away.ndim != 1 or len(self.away) < 2:
            shapes = (self.away.shape, self.home.shape)
            raise ModelError(
                "secret", shapes, "away and home must be distributions on the same 0, 1, .., bound [Wh], bound >= 1"
            )
        for name, pmf in (("away", self.away), ("home", self.home)):
            if not ((pmf >= 0).all() and abs(pmf.sum() - 1) <= 1e-9):
                raise ModelError(name, f"{pmf.sum():.12g}", "must be probabilities that sum to 1")

    @property
    def bound_wh(self) -> int:
        return len(self.away) - 1


class PrivacyCurve(Protocol):
    """delta as a function of epsilon, for one pair of worlds and both directions of telling them apart."""

    @property
    def max_loss(self) -> float:
        """The epsilon beyond which delta is negligible (below 1e-15)."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether no output at all has a loss beyond `reach`; pure promises need it."""
        ...

    def delta(self, epsilon: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class GaussianCurve:
    """The privacy curve delta(epsilon) of discrete Gaussian noise, for two demands that differ by `shift_wh`.

    It is the curve of Huber noise whose core ends 38 deviations out, where e^(-x^2/(2 sigma^2)) is below 1e-313. Its
    losses grow without end, so it is not bounded (`calibration.md`).

    Attributes:
        shift_wh: Difference of the two demands, a whole number, 0 or more [Wh].
        sigma_wh: Standard deviation of the noise, positive [Wh].

    Example:
        >>> import murmurate as mm
        >>> import numpy as np
        >>> float(mm.GaussianCurve(1000, 3730.0).delta(np.array([1.0]))[0]) < 1.1e-5
        True
    """

    shift_wh: int
    sigma_wh: float

    @property
    def max_loss(self) -> float:
        """The epsilon beyond which delta is below 1e-15."""
        mu = self.shift_wh / self.sigma_wh
        return mu**2 / 2 + mu * (8.3 + 1 / self.sigma_wh)

    @property
    def bounded(self) -> bool:
        """False: single outputs may have any loss."""
        return False

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Return delta at each epsilon, rounded upwards.

        Args:
            epsilon: Privacy losses, any shape, no unit.

        Returns:
            The probability delta, in the shape of `epsilon`.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.GaussianCurve(1000, 3730.0).delta(np.array([0.5, 1.0])).round(4).tolist()
            [0.0041, 0.0]
        """
        core_wh = int(np.ceil(_GAUSSIAN_CORE_SIGMAS * self.sigma_wh))
        return HuberCurve(self.shift_wh, self.sigma_wh**2 / core_wh, core_wh).delta(epsilon)
