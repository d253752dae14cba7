"""The desk at which records are written: demand becomes a price under the plan, the record is chained and signed.

This is the one place where the noise of a publication is drawn. A measured record holds the noised price and public
numbers; nothing else in it depends on the demand. What leaves the desk must be stored before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from murmurate.curator.interval import protect
from murmurate.curator.terms import Terms
from murmurate.errors import ChainError, MurmurateError, UnknownNameError
from murmurate.privacy.noise import Noise, NoiseLaw
from murmurate.publication.record import NOBODY, Entry, Kind, Record, sign
from murmurate.publication.signing import Signer
from murmurate.publication.wish import Change, Opening, Task
from murmurate.quantities import Demand


class Drafts(NamedTuple):
    """Entries that may be stored, and the zones for which none could be written, with the reason."""

    written: dict[str, Entry]
    refused: dict[str, str]


class _Price(NamedTuple):
    ticks: int
    noise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Everything that writing a record takes, handed in: plans, keys, noise."""

    terms: Callable[[str], Terms | None]  # of a plan digest
    signers: Mapping[str, Signer]  # by public key
    noise: Noise

    def write(self, tasks: Mapping[str, tuple[Entry | None, Task]], demand: Demand) -> Drafts:
        """The next entry of each zone. A zone that cannot have one does not keep the others from theirs."""
        drafts = Drafts({}, {})
        usable: dict[str, tuple[Entry | None, Task, Terms, Signer]] = {}
        for zone, (head, task) in tasks.items():
            try:
                usable[zone] = (head, task, self._terms(head, task), self._signer(head, task))
            except MurmurateError as error:
                drafts.refused[zone] = str(error)
        known = {
            zone: place
            for place, zone in enumerate(demand.zones)
            if zone in usable and _hidden(demand, place, usable[zone][2])
        }
        prices = self._measure(
            {
                z: (terms, task.interval)
                for z, (_, task, terms, _) in usable.items()
                if z in known and task.kind is None
            },
            demand,
            known,
        )
        for zone, (head, task, terms, signer) in usable.items():
            what = self._forecast(task, terms)
            if zone in prices:
                what = self._measured(task, terms, prices[zone])
            drafts.written[zone] = sign(_record(zone, head, task, terms, what, signer.public), signer)
        return drafts

    def _terms(self, head: Entry | None, task: Task) -> Terms:
        digest = (
            _after(task.wish.plan)
            if task.kind is Kind.PLAN
            else _opened(task).plan
            if head is None
            else head.record.plan
        )
        terms = self.terms(digest)
        if terms is None:
            raise UnknownNameError("plan", digest, "must be registered before anything is released under it")
        return terms

    def _signer(self, head: Entry | None, task: Task) -> Signer:
        key = _opened(task).key if head is None else head.key
        if key not in self.signers:
            raise UnknownNameError("key", key, "is not among this publisher's keys")
        return self.signers[key]

    def _measure(
        self, wanted: Mapping[str, tuple[Terms, int]], demand: Demand, known: Mapping[str, int]
    ) -> dict[str, _Price]:
        """One draw for each zone, those with a common curve and law at once."""
        groups: dict[tuple[int, str], list[str]] = {}
        for zone, (terms, _) in wanted.items():
            groups.setdefault((id(terms.curve), terms.law.value), []).append(zone)
        prices: dict[str, _Price] = {}
        for zones in groups.values():
            first = wanted[zones[0]][0]
            slots = [(terms, terms.slot(interval)) for terms, interval in (wanted[zone] for zone in zones)]
            core_wh = np.array([terms.core_wh[slot] for terms, slot in slots])
            release = protect(
                demand.energy_wh[[known[zone] for zone in zones]],
                scale_wh=np.array([terms.scale_wh[slot] for terms, slot in slots]),
                core_wh=core_wh if first.law is NoiseLaw.HUBER else None,
                curve=first.curve,
                noise=self.noise,
                law=first.law,
            )
            name = f"rehearsal of {first.law.value}" if release.rehearsal else first.law.value
            prices.update(
                {zone: _Price(ticks, name) for zone, ticks in zip(zones, release.price_ticks.tolist(), strict=True)}
            )
        return prices

    @staticmethod
    def _forecast(task: Task, terms: Terms) -> dict[str, Any]:
        """Where nothing is measured: the plan's forecast price, or what the task says instead of a price."""
        if task.kind is not None:
            return {"kind": task.kind}
        return {"kind": Kind.FORECAST, "price_ticks": int(terms.forecast_ticks[terms.slot(task.interval)])}

    @staticmethod
    def _measured(task: Task, terms: Terms, price: _Price) -> dict[str, Any]:
        members = terms.noise_members(terms.slot(task.interval))
        return members | {"kind": Kind.MEASURED, "price_ticks": price.ticks, "noise": price.noise}


def _hidden(demand: Demand, place: int, terms: Terms) -> bool:
    """Whether the plan's noise hides every household in this demand. Where its bounds are not known it does not."""
    return terms.refusal(demand.bounds_at(place)) is None


def _record(zone: str, head: Entry | None, task: Task, terms: Terms, what: dict[str, Any], key: str) -> Record:
    """The next record of a chain."""
    last = None if head is None else head.record
    return Record(
        zone=zone,
        seq=0 if last is None else last.seq + 1,
        prev=NOBODY if head is None else head.hash,
        interval=task.interval,
        applies=task.interval + (_opened(task).lead if head is None else head.lead),
        interval_s=terms.interval_s,
        plan=terms.plan,
        currency=terms.currency,
        tick=terms.tick,
        total_epsilon_micro=(0 if last is None else last.total_epsilon_micro) + what.get("epsilon_micro", 0),
        total_rho_micro=(0 if last is None else last.total_rho_micro) + what.get("rho_micro", 0),
        key=key,
        next_key=_after(task.wish.key) if task.kind is Kind.KEY else None,
        **what,
    )


def _opened(task: Task) -> Opening:
    if task.wish.opening is None:
        raise ChainError("chain", "not open", "must be opened with a plan and a key first")
    return task.wish.opening


def _after(change: Change | None) -> str:
    if change is None:
        raise ChainError("change", None, "must say what to change to")
    return change.after
