"""Write records: demand becomes a price under the plan, and the record is chained and signed.

This is the one place where the noise of a publication is drawn. A measured record holds the noised price and public
numbers; nothing else in it depends on the demand. An entry must be stored before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ChainError, MurmurateError, UnknownNameError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import NoiseDistribution, NoiseSampler
from murmurate.public_log.record import GENESIS_PREV, Entry, Record, RecordKind, sign_record
from murmurate.public_log.signing import Signer
from murmurate.publisher.desired_state import Change, NextRecord, Opening
from murmurate.release import protect
from murmurate.types import Demand


class Drafts(NamedTuple):
    """Entries that may be stored, and the zones for which none could be written, with the reason."""

    written: dict[str, Entry]
    refused: dict[str, str]


class _NoisedPrice(NamedTuple):
    ticks: int
    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWriter:
    """Everything that writing a record takes, handed in: plans, keys, noise."""

    terms_for_plan: Callable[[str], ReleaseTerms | None]  # of a plan digest
    signers: Mapping[str, Signer]  # by public key
    noise: NoiseSampler

    def write_entries(self, next_records: Mapping[str, tuple[Entry | None, NextRecord]], demand: Demand) -> Drafts:
        """The next entry of each zone. A zone that cannot have one does not keep the others from theirs."""
        drafts = Drafts({}, {})
        usable: dict[str, tuple[Entry | None, NextRecord, ReleaseTerms, Signer]] = {}
        for zone, (head, next_record) in next_records.items():
            try:
                usable[zone] = (head, next_record, self._terms(head, next_record), self._signer(head, next_record))
            except MurmurateError as error:
                drafts.refused[zone] = str(error)
        demand_rows = {
            zone: row
            for row, zone in enumerate(demand.zones)
            if zone in usable and _noise_hides_all(demand, row, usable[zone][2])
        }
        prices = self._draw_prices(
            {
                z: (terms, next_record.interval)
                for z, (_, next_record, terms, _) in usable.items()
                if z in demand_rows and next_record.kind is None
            },
            demand,
            demand_rows,
        )
        for zone, (head, next_record, terms, signer) in usable.items():
            members = self._forecast_members(next_record, terms)
            if zone in prices:
                members = self._measured_members(next_record, terms, prices[zone])
            drafts.written[zone] = sign_record(
                _build_record(zone, head, next_record, terms, members, signer.public_key), signer
            )
        return drafts

    def _terms(self, head: Entry | None, next_record: NextRecord) -> ReleaseTerms:
        digest = (
            _change_target(next_record.desired.plan_change)
            if next_record.kind is RecordKind.PLAN
            else _require_opening(next_record).plan
            if head is None
            else head.record.plan
        )
        terms = self.terms_for_plan(digest)
        if terms is None:
            raise UnknownNameError("plan", digest, "must be registered before anything is released under it")
        return terms

    def _signer(self, head: Entry | None, next_record: NextRecord) -> Signer:
        key = _require_opening(next_record).key if head is None else head.key_in_force
        if key not in self.signers:
            raise UnknownNameError("key", key, "is not among this publisher's keys")
        return self.signers[key]

    def _draw_prices(
        self, to_measure: Mapping[str, tuple[ReleaseTerms, int]], demand: Demand, demand_rows: Mapping[str, int]
    ) -> dict[str, _NoisedPrice]:
        """One draw for each zone, those with a common curve and law at once."""
        groups: dict[tuple[int, str], list[str]] = {}
        for zone, (terms, _) in to_measure.items():
            groups.setdefault((id(terms.curve), terms.distribution.value), []).append(zone)
        prices: dict[str, _NoisedPrice] = {}
        for zones in groups.values():
            first = to_measure[zones[0]][0]
            slots = [(terms, terms.slot_of_day(interval)) for terms, interval in (to_measure[zone] for zone in zones)]
            core_wh = np.array([terms.core_wh[slot] for terms, slot in slots])
            release = protect(
                demand.energy_wh[[demand_rows[zone] for zone in zones]],
                scale_wh=np.array([terms.scale_wh[slot] for terms, slot in slots]),
                core_wh=core_wh if first.distribution is NoiseDistribution.HUBER else None,
                curve=first.curve,
                noise=self.noise,
                distribution=first.distribution,
            )
            name = f"test-only {first.distribution.value}" if release.test_only else first.distribution.value
            prices.update(
                {
                    zone: _NoisedPrice(ticks, name)
                    for zone, ticks in zip(zones, release.price_ticks.tolist(), strict=True)
                }
            )
        return prices

    @staticmethod
    def _forecast_members(next_record: NextRecord, terms: ReleaseTerms) -> dict[str, Any]:
        """Where nothing is measured: the plan's forecast price, or what the task says instead of a price."""
        if next_record.kind is not None:
            return {"kind": next_record.kind}
        return {
            "kind": RecordKind.FORECAST,
            "price_ticks": int(terms.forecast_ticks[terms.slot_of_day(next_record.interval)]),
        }

    @staticmethod
    def _measured_members(next_record: NextRecord, terms: ReleaseTerms, price: _NoisedPrice) -> dict[str, Any]:
        members = terms.noise_members(terms.slot_of_day(next_record.interval))
        return members | {"kind": RecordKind.MEASURED, "price_ticks": price.ticks, "noise": price.mechanism}


def _noise_hides_all(demand: Demand, row: int, terms: ReleaseTerms) -> bool:
    """Whether the plan's noise hides every household in this demand. Where its bounds are not known it does not."""
    return terms.not_hidden_reason(demand.bounds_at(row)) is None


def _build_record(
    zone: str, head: Entry | None, next_record: NextRecord, terms: ReleaseTerms, members: dict[str, Any], key: str
) -> Record:
    """The next record of a chain."""
    last = None if head is None else head.record
    return Record(
        zone=zone,
        seq=0 if last is None else last.seq + 1,
        prev=GENESIS_PREV if head is None else head.hash,
        interval=next_record.interval,
        applies=next_record.interval + (_require_opening(next_record).lead if head is None else head.lead_intervals),
        interval_s=terms.interval_s,
        plan=terms.plan_digest,
        currency=terms.currency,
        tick=terms.tick,
        total_epsilon_micro=(0 if last is None else last.total_epsilon_micro) + members.get("epsilon_micro", 0),
        total_rho_micro=(0 if last is None else last.total_rho_micro) + members.get("rho_micro", 0),
        key=key,
        next_key=_change_target(next_record.desired.key_change) if next_record.kind is RecordKind.KEY else None,
        **members,
    )


def _require_opening(next_record: NextRecord) -> Opening:
    if next_record.desired.opening is None:
        raise ChainError("chain", "not open", "must be opened with a plan and a key first")
    return next_record.desired.opening


def _change_target(change: Change | None) -> str:
    if change is None:
        raise ChainError("change", None, "must say what to change to")
    return change.after
