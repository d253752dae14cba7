"""Hold each record against its plan, which is proven anew, and all records together against the plan's windows."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from murmurate.curator.change import Used, refuse_straddling
from murmurate.curator.document import digest
from murmurate.curator.plan import Plan
from murmurate.curator.planfile import load_plan
from murmurate.curator.spending import MICRO
from murmurate.curator.terms import Terms
from murmurate.errors import MurmurateError
from murmurate.privacy.promise import WindowPromise
from murmurate.publication.record import RELEASES, Kind, Record
from murmurate.publication.verification_report import PlanSummary, Window

_MARK = '"murmurate_plan"'
MOST_PLANS = 8  # of one zone, that a change is held against
_LARGEST = 2**40  # no release costs a million; whoever says so is refused by the plan, and counted as this
_UNREADABLE = (MurmurateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


class Bound(NamedTuple):
    """A window promise without delta."""

    words: str
    intervals: int
    epsilon: Fraction


@dataclass(frozen=True, slots=True, eq=False)
class Proven:
    """A plan that was proven anew, in plain numbers by the interval of the day."""

    plan: Plan
    terms: Terms
    measured: tuple[dict[str, object], ...]  # what a measured record must say
    forecast_ticks: tuple[int, ...]
    bounds: tuple[Bound, ...]

    @classmethod
    def of(cls, text: str) -> Proven:
        plan, terms = load_plan(text), Terms.of(text)
        columns = (terms.scale_wh.tolist(), terms.epsilon_micro.tolist(), terms.rho_micro.tolist())
        measured = tuple(
            {"noise": terms.law.value, "scale_wh": repr(scale), "epsilon_micro": epsilon, "rho_micro": rho}
            for scale, epsilon, rho in zip(*columns, strict=True)
        )
        pure = (each for each in plan.zone.promises if isinstance(each, WindowPromise) and not each.delta)
        bounds = tuple(Bound(str(each), each.intervals, each.epsilon) for each in pure)
        return cls(plan, terms, measured, tuple(terms.forecast_ticks.tolist()), bounds)

    def summary(self) -> PlanSummary:
        costs = (f"{cost.promise} (at most {cost.spent:.4g})" for cost in self.plan.costs)
        return PlanSummary(self.terms.plan, self.terms.zone, tuple(costs))

    def disagreements(self, record: Record) -> Iterator[str]:
        """Where a record does not say what its plan says, in words."""
        terms, slot = self.terms, self.terms.slot(record.interval)
        wanted: dict[str, object] = {"interval_s": terms.interval_s, "currency": terms.currency, "tick": terms.tick}
        if record.kind is Kind.MEASURED:
            wanted |= self.measured[slot]
            floor, cap = terms.curve.floor, terms.curve.cap
            price = (record.price_ticks or 0) * terms.curve.tick
            if (floor is not None and price < floor) or (cap is not None and price > cap):
                yield f"price_ticks is {record.price_ticks}: the plan's prices lie from {floor} to {cap}"
        if record.kind is Kind.FORECAST:
            wanted["price_ticks"] = self.forecast_ticks[slot]
        for name, value in wanted.items():
            if getattr(record, name) != value:
                yield f"{name} is {getattr(record, name)}: the plan says {value}"


@dataclass(slots=True)
class Shelf:
    """The plans at hand, by digest. Each is proven when a chain first names it, and once."""

    _texts: dict[str, str] = field(default_factory=dict)
    _proven: dict[str, Proven | str] = field(default_factory=dict)

    def add(self, text: str) -> bool:
        """Keep a plan document; False if it is none."""
        try:
            document: Any = json.loads(text) if _MARK in text else None
            claimed = document["digest"] if isinstance(document, dict) and "murmurate_plan" in document else None
            right = claimed == digest(document) if isinstance(claimed, str) else False
        except _UNREADABLE:
            return False
        if not isinstance(claimed, str):
            return False
        if right or claimed not in self._texts:
            self._texts[claimed] = text
        return True

    def proven(self, plan: str) -> Proven | str | None:
        """The plan with this digest, or why it is none; None where it was not given."""
        if plan not in self._proven and plan in self._texts:
            try:
                self._proven[plan] = Proven.of(self._texts[plan])
            except _UNREADABLE as error:
                self._proven[plan] = str(error) if isinstance(error, MurmurateError) else "it cannot be read"
        return self._proven.get(plan)


@dataclass(slots=True)
class Ledger:
    """What the last intervals of one zone have cost under one plan: enough for its longest window, and no more."""

    bounds: tuple[Bound, ...]
    windows: dict[str, Window]
    _costs: array[int] = field(default_factory=lambda: array("q"))  # of successive intervals, the last one last
    _sums: dict[Bound, tuple[int, int]] = field(default_factory=dict)  # cost, and releases with a cost
    _last: int | None = None

    def spend(self, record: Record) -> Iterator[str]:
        """Book the cost of a release; yield, in words, each promise that a window ending with it breaks.

        Costs are rounded up to a millionth in the log. A window of n releases may therefore state almost n millionths
        more than it costs, and no more: so much is taken off before it is held against the promise.
        """
        if not self.bounds or (self._last is not None and record.interval <= self._last):
            return
        longest = max(bound.intervals for bound in self.bounds)
        missing = 0 if self._last is None else record.interval - self._last - 1
        for cost in (*(0 for _ in range(min(missing, longest))), min(record.epsilon_micro, _LARGEST)):
            self._push(cost, longest)
        self._last = record.interval
        for bound in self.bounds:
            cost, releases = self._sums[bound]
            spent = Fraction(max(0, cost - releases), MICRO)
            window = self.windows.setdefault(bound.words, Window(bound.epsilon))
            window.largest = max(window.largest, spent)
            if spent > bound.epsilon:
                words = f"the {bound.intervals} intervals up to {record.interval} cost {float(spent):.6g}"
                yield f"{words}: promised is {bound.words!r}"

    def _push(self, cost: int, longest: int) -> None:
        self._costs.append(cost)
        for bound in self.bounds:
            leaves = self._costs[-bound.intervals - 1] if len(self._costs) > bound.intervals else 0
            total, releases = self._sums.get(bound, (0, 0))
            self._sums[bound] = (total + cost - leaves, releases + (cost > 0) - (leaves > 0))
        if len(self._costs) > 2 * longest + 64:
            del self._costs[: -longest - 1]


@dataclass(slots=True)
class Account:
    """One zone under its plans: the ledger of the one in force, and those that a change must be held against."""

    windows: dict[str, Window]
    in_force: Proven | None = None
    _ledger: Ledger | None = None
    _used: dict[str, tuple[Proven, int]] = field(default_factory=dict)  # by digest: its last interval with a cost

    def book(self, record: Record, proven: Proven) -> Iterator[tuple[str, str]]:
        """Hold a record against its plan: each rule that it breaks, with words."""
        for words in proven.disagreements(record):
            yield "terms", words
        if self.in_force is not proven:
            yield from self._change(record, proven)
            self.in_force, self._ledger = proven, Ledger(proven.bounds, self.windows)
        if record.kind in RELEASES and self._ledger is not None:
            for words in self._ledger.spend(record):
                yield "window", words
            if record.epsilon_micro or record.rho_micro:
                self._used.pop(proven.terms.plan, None)
                self._used[proven.terms.plan] = (proven, record.interval)

    def _change(self, record: Record, after: Proven) -> Iterator[tuple[str, str]]:
        recent = list(self._used.values())[-MOST_PLANS:]
        used = [Used(before.plan, max(0, record.interval - last)) for before, last in recent]
        try:
            refuse_straddling(used, after.plan)
        except MurmurateError as error:
            yield "change", f"stretches of time across this change may cost more than promised: {error}"
