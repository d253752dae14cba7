"""What an attack sees, what it must have, and what it achieved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from murmurate.planning.plan import Plan
from murmurate.planning.zone import HouseholdKind
from murmurate.privacy.noise import NoiseSampler
from murmurate.types import Release
from murmurate.units import BoolArray, IntArray

DEFAULT_DAYS = 200  # simulated, for attackers who follow a household through its days
DEFAULT_SAMPLES = 1_000_000  # of a single interval, from each of two distributions
AUDIT_SEED = 1
BUILT_IN_ATTACKS = (
    *("strong", "extreme", "public", "interval", "values", "skipped", "residues", "prices", "differencing"),
    *("successive", "window", "joint"),
)

NoiseSource = Callable[[np.random.SeedSequence], NoiseSampler]
Mechanism = Callable[..., Release]  # called like `release.protect`
AuditProgress = Callable[[float], None]  # gets the share of the work that was done


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """What an attacker sees of many trials, and what it knows: everything but whether the target is home.

    In each trial the target is home throughout the `secret` intervals or away throughout them. Home it uses the bound
    of its kind, away the least that it may. In all other intervals it is away.

    Attributes:
        release: The published releases: prices [ticks], noised demand [Wh] and scale [Wh], each [trial, interval].
        rest_wh: Demand of all other households, the same in every trial [Wh, interval].
        secret: Whether the target may be home [interval].
        slot: Interval of the day of each interval of a trial [interval].
        target: The kind of the target.
        plan: The plan that is attacked.

    Example:
        >>> import murmurate as mm
        >>> class Total:
        ...     name = "total"
        ...
        ...     def score(self, seen):
        ...         return seen.release.noisy_wh[:, seen.secret].sum(axis=1)
        >>> text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
        >>> plan = mm.make_plan(mm.parse_zone(text.replace(', "any moment: 1"', "")))
        >>> mm.audit(plan, attacks=[Total()], days=2, samples=50_000)[0].ok
        True
    """

    release: Release
    rest_wh: IntArray
    secret: BoolArray
    slot: IntArray
    target: HouseholdKind
    plan: Plan


class Attack(Protocol):
    """An attack of your own: any object with a name and a method `score`. `audit` runs it.

    It tells trials in which the target is home from trials in which it is away. The audit measures how well it ranks
    them (AUC), and how much any threshold on its score gives away (a lower bound on epsilon). Nothing else counts: the
    score may have any unit.

    Attributes:
        name: Name in the results, unlike that of a built-in attack.

    Example:
        >>> import murmurate as mm
        >>> class LastPrice:
        ...     name = "last price"
        ...
        ...     def score(self, seen):
        ...         return seen.release.price_ticks[:, -1]
        >>> text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
        >>> plan = mm.make_plan(mm.parse_zone(text.replace(', "any moment: 1"', "")))
        >>> mm.audit(plan, attacks=[LastPrice()], days=2, samples=50_000)[0].better_than_guessing
        False
    """

    @property
    def name(self) -> str:
        """Name in the results, unlike that of a built-in attack."""
        ...

    def score(self, seen: Observation) -> Any:
        """Return one number for each trial: larger where the target is more likely home.

        Args:
            seen: What the attacker sees. The method is called several times, each time with other trials.

        Returns:
            The scores [trial], no unit.

        Example:
            >>> score = lambda seen: -seen.release.price_ticks.min(axis=1)  # the lowest price of each trial
        """
        ...


class Estimate(NamedTuple):
    """A mean with its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return self.high - self.mean if np.isinf(self.high) else (self.high - self.low) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """The result of one attack on one target, and the bound of the plan. None: not measured, or no bound exists.

    Attributes:
        name: Name of the attack.
        knows: What the attacker knows.
        target: Kind of the household that is attacked.
        auc: How often the attack ranks home above away, with its 95 % confidence interval: `mean`, `low`, `high`.
        auc_bound: The largest AUC that the plan allows.
        quantity: What `measured` is: "epsilon" or "posterior shift", in natural logarithms; empty if neither is.
        measured: For epsilon a lower bound, which is wrong with a probability below 1e-5; for a posterior shift the
            largest one.
        bound: The largest value that the plan allows.
        delta: The delta at which an epsilon is measured and bounded.
        ok: Whether the plan's bounds hold, as far as this attack can say.
        best_statistic: The statistic with the largest epsilon, or the promise that was attacked.
        note: Why something was not measured or has no bound.
        noise: False for the same attack on demand without noise, for comparison.
        auc_by_interval: The AUC [interval of the day], if it was measured for each.
        shift_by_interval: The largest posterior shift of all days [interval of the day].

    Example:
        >>> import murmurate as mm
        >>> mm.AttackResult(name="total", knows="all but the target", target="flat", quantity="epsilon", measured=0.42,
        ...                 bound=0.5)
        AttackResult(total on flat: epsilon at least 0.420, at most 0.500 allowed, within)
    """

    name: str
    knows: str
    target: str
    auc: Estimate | None = None  # of pairs of days at the same time of day, with its 95 % interval
    auc_bound: float | None = None
    quantity: str = ""  # "posterior shift" or "epsilon", in natural logarithms
    measured: float | None = None
    bound: float | None = None
    delta: float = 0.0  # at which an epsilon is measured and bounded
    ok: bool = True
    best_statistic: str = ""  # the candidate with the largest epsilon
    note: str = ""
    noise: bool = True  # False: the same attack on demand without noise
    auc_by_interval: tuple[float | None, ...] = ()  # of the day
    shift_by_interval: tuple[float, ...] = ()  # largest of all days

    @property
    def was_run(self) -> bool:
        """Whether anything was measured."""
        return self.auc is not None or self.measured is not None

    @property
    def better_than_guessing(self) -> bool:
        """Whether the 95 % interval of the AUC lies above 1/2."""
        return self.auc is not None and self.auc.low > 0.5

    @property
    def verdict(self) -> str:
        """The verdict in the words of `murmurate audit`; empty for an attack without noise."""
        if not self.was_run:
            return "not run"
        if not self.noise:
            return ""
        return "BROKEN" if not self.ok else "no bound" if self.auc_bound is self.bound is None else "within"

    @property
    def severity(self) -> tuple[bool, float]:
        """Sort key of attacks of one name: broken bounds first, then by the measured share of the bound."""
        share = self.measured / self.bound if self.measured is not None and self.bound else 0.0
        return not self.ok, share

    def without_bounds(self) -> AttackResult:
        """Return the result as that of an attack without noise, which has no bound."""
        return replace(
            self, noise=False, ok=True, auc_bound=None, bound=None, note="", auc_by_interval=(), shift_by_interval=()
        )

    def __repr__(self) -> str:
        parts = []
        if self.auc is not None:
            parts.append(f"AUC {self.auc.mean:.3f} [{self.auc.low:.3f}, {self.auc.high:.3f}]")
            parts += [] if self.auc_bound is None else [f"at most {self.auc_bound:.3f} allowed"]
        if self.measured is not None:
            least = "at least " if self.quantity == "epsilon" else ""
            parts.append(f"{self.quantity} {least}{self.measured:.3f}")
            parts += [] if self.bound is None else [f"at most {self.bound:.3f} allowed"]
        where = self.target if self.noise else f"{self.target} without noise"
        return f"AttackResult({self.name} on {where}: {', '.join(filter(None, [*parts, self.verdict]))})"
