"""Write tiles: demand becomes a price under the plan of its zone, and the rows of a shard are signed together.

This is the one place where the noise of a publication is drawn. A measured row holds the noised price and public
numbers; nothing else in it depends on the demand. A tile must be stored before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.errors import ChainError, MurmurateError, PrivacyError, UnknownNameError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.public_inputs import Inputs, to_extensions
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution, NoiseSampler
from murmurate.public_log.make_tile import change_key, change_zones, open_shard, release_interval
from murmurate.public_log.predicted_rows import PredictedZones, carry_over, check_predictable, predicted_layout
from murmurate.public_log.signing import Signer
from murmurate.public_log.tile import (
    ROW_COLUMNS,
    ROW_LAYOUT,
    NoiseCode,
    RowKind,
    Tile,
    TileHeader,
    TileKind,
    row_dtype,
)
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import ZoneRow
from murmurate.publisher.desired_state import NextTile, ShardOpening
from murmurate.publisher.steps import Drafts
from murmurate.release import fill_silent_meters, protect
from murmurate.types import Demand
from murmurate.units import IntArray

_NO_NOISE = (0, 0, 0, 0)  # scale, core and costs
_LEFT_OPEN = (0, 0, 0)  # totals and hash of the leaf before: `release_interval` fills them in

Measured = dict[str, tuple[ReleaseTerms, int, int]]  # by zone: terms of its draw, interval of the day, silent share
FindInputs = Callable[[Collection[str], TileHeader, int], Inputs]  # of some series, after a tile, for an interval
Drawn = dict[str, tuple[int, int]]  # by zone: price [ticks] and noised demand [Wh]


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWriter:
    """Everything that writing a tile takes, handed in: plans, keys, noise."""

    terms_for_plan: Callable[[str], ReleaseTerms | None]  # of a plan digest
    signers: Mapping[str, Signer]  # by public key
    noise: NoiseSampler
    find_inputs: FindInputs = lambda *_: {}

    def write_tiles(self, next_tiles: Mapping[str, NextTile], demand: Demand) -> Drafts:
        """Return the next tile of each shard. A zone that cannot be priced does not keep the others from theirs."""
        drafts = Drafts({}, {}, {})
        to_write: dict[str, tuple[Signer, list[ReleaseTerms | None], Inputs]] = {}
        to_measure: Measured = {}
        demand_rows = {zone: row for row, zone in enumerate(demand.zones)}
        for shard, tile in next_tiles.items():
            try:
                key = _require_opening(tile).key if tile.head is None else tile.head.tile.key_in_force
                if key not in self.signers:
                    raise UnknownNameError("key", key, "is not among this publisher's keys")
                terms, usable, inputs = self._prepare(tile, demand, demand_rows, drafts.withheld)
            except MurmurateError as error:
                drafts.refused[shard] = str(error)
                continue
            to_write[shard] = self.signers[key], terms, inputs
            to_measure |= usable
        releases = self._draw_releases(to_measure, demand, demand_rows)
        for shard, (signer, terms, inputs) in to_write.items():
            drafts.written[shard] = _write_tile(shard, next_tiles[shard], terms, releases, inputs, signer)
        return drafts

    def _prepare(
        self, tile: NextTile, demand: Demand, demand_rows: Mapping[str, int], withheld: dict[str, str]
    ) -> tuple[list[ReleaseTerms | None], Measured, Inputs]:
        """Return the terms of each row of a release, the zones whose demand becomes a price, and the public inputs.

        Those are the zones whose plan reads meters, with a demand in which its noise hides every household.
        """
        if tile.head is None or tile.kind is not TileKind.RELEASE:
            return [], {}, {}
        header, usable = tile.head.tile.header, Measured()
        terms = [self._find_terms(row, header, tile.interval, withheld) for row in tile.table.rows]
        models = {its.prediction.model for its in terms if its and its.prediction}  # few: zones of one make share one
        series = set[str]().union(*(model.series.names for model in models))
        inputs = self.find_inputs(series, header, tile.interval) if series else {}
        has_silent = bool(demand.silent_bound_wh.any())
        shares = np.zeros(len(terms), np.int64)
        if has_silent:
            shares = _silent_shares(tile.head, tile.interval, terms, inputs)
        for zone, its, share_micro in zip(tile.table.zones, terms, shares.tolist(), strict=True):
            row = None if tile.withheld or its is None or not its.reads_meters else demand_rows.get(zone)
            if row is not None and its is not None and its.not_hidden_reason(demand.bounds_at(row)) is None:
                usable[zone] = its, its.slot_of_day(tile.interval), share_micro
        if usable and self.noise.test_only:
            raise PrivacyError("noise", "test-only", "must be real: test-only noise is never published")
        return terms, usable, inputs

    def _find_terms(
        self, row: ZoneRow, header: TileHeader, interval: int, withheld: dict[str, str]
    ) -> ReleaseTerms | None:
        """Return the terms of a zone. One whose plan cannot be read or does not fit is withheld, with the reason."""
        interval_s = header.interval_s
        try:
            terms = self.terms_for_plan(row.plan)
            if terms is None:
                raise UnknownNameError("plan", row.plan, "must be registered before anything is released under it")
            if (terms.interval_s, terms.currency, terms.tick) != (interval_s, row.currency, row.tick):
                allowed = f"must have intervals of {interval_s} s, and prices in steps of {row.tick} {row.currency}"
                raise ChainError("plan", row.plan, allowed)
            if terms.prediction is not None:
                check_predictable(terms.prediction.model, interval, header.lead)
        except MurmurateError as error:
            withheld[row.zone] = str(error)
            return None
        return terms

    def _draw_releases(self, to_measure: Measured, demand: Demand, demand_rows: Mapping[str, int]) -> Drawn:
        """Draw once for each zone, equal curves together."""
        share_micro = np.zeros(len(demand.zones), np.int64)
        for zone, (*_, share) in to_measure.items():
            share_micro[demand_rows[zone]] = share
        sums_wh = fill_silent_meters(demand, share_micro)
        groups: dict[tuple[RateCurve, NoiseDistribution], list[str]] = {}
        by_object: dict[tuple[int, NoiseDistribution], list[str]] = {}  # most plans share a curve: hashed once
        for zone, (terms, *_) in to_measure.items():
            curve, distribution = terms.curve, terms.distribution
            group = by_object.get((id(curve), distribution))
            if group is None:
                group = by_object[id(curve), distribution] = groups.setdefault((curve, distribution), [])
            group.append(zone)
        releases: Drawn = {}
        for (curve, distribution), zones in groups.items():
            plans = [to_measure[zone] for zone in zones]
            core_wh = np.array([terms.core_wh[slot] for terms, slot, _ in plans])
            drawn = protect(
                sums_wh[[demand_rows[zone] for zone in zones]],
                scale_wh=np.array([terms.scale_wh[slot] for terms, slot, _ in plans]),
                core_wh=core_wh if distribution is NoiseDistribution.HUBER else None,
                curve=curve,
                noise=self.noise,
                distribution=distribution,
            )
            columns = zip(drawn.price_ticks.tolist(), drawn.noisy_wh.tolist(), strict=True)
            releases.update(zip(zones, columns, strict=True))
        return releases


def _silent_shares(head: ShardHead, interval: int, terms: list[ReleaseTerms | None], inputs: Inputs) -> IntArray:
    """Return what a silent meter of each zone counts for [row], see `ReleaseTerms.silent_share_micro`.

    It follows from public numbers: the plans, the rows before and the inputs that the tile states.
    """
    rows = np.zeros(len(terms), row_dtype(ROW_LAYOUT))
    lead = head.tile.header.lead
    predicted = PredictedZones(rows, terms, inputs)
    expected_wh = predicted.expect(carry_over(head.last_rows, len(rows), lead), interval, lead)
    shares = np.zeros(len(terms), np.int64)
    for at, (its, predicted_wh) in enumerate(zip(terms, np.rint(expected_wh).astype(np.int64).tolist(), strict=True)):
        if its is not None and its.reads_meters:
            forecast = its.forecast_wh[its.slot_of_day(interval)] if its.prediction is None else predicted_wh
            shares[at] = its.silent_share_micro(forecast)
    return shares


def _write_tile(
    shard: str, tile: NextTile, terms: list[ReleaseTerms | None], releases: Drawn, inputs: Inputs, signer: Signer
) -> Tile:
    if tile.head is None:
        opening = _require_opening(tile)
        step, lead = opening.interval_s, opening.lead
        return open_shard(shard, tile.table, interval=tile.interval, interval_s=step, lead=lead, signer=signer)
    if tile.kind is TileKind.KEY:
        if tile.desired.key_change is None:
            raise ChainError("change", None, "must say what to change to")
        return change_key(tile.head, tile.desired.key_change.after, signer)
    if tile.kind is TileKind.ZONES:
        return change_zones(tile.head, tile.table, signer)
    return _write_release(tile.head, tile, terms, releases, inputs, signer)


def _write_release(
    head: ShardHead, tile: NextTile, terms: list[ReleaseTerms | None], releases: Drawn, inputs: Inputs, signer: Signer
) -> Tile:
    """Return the tile of an interval. A row is measured where there is a draw, else fallback, else withheld.

    It is public where the plan reads no meter.
    """
    lead, zones = head.tile.header.lead, tile.table.zones
    has_states = head.last_rows is not None and "states" in (head.last_rows.dtype.names or ())
    is_predicted = has_states or any(its is not None and its.prediction is not None for its in terms)
    layout = predicted_layout(lead) if is_predicted else ROW_LAYOUT
    rows = np.zeros(len(tile.table), row_dtype(layout))
    rows["kind"] = RowKind.WITHHELD
    if not tile.withheld:
        view = rows[list(rows.dtype.names or ())[: len(ROW_COLUMNS)]]
        for at, (zone, its) in enumerate(zip(zones, terms, strict=True)):
            if its is not None:
                view[at] = _row(its, its.slot_of_day(tile.interval), releases.get(zone))
    if not is_predicted:
        return release_interval(head, rows, signer)
    if not tile.withheld:
        rows["noisy_wh"] = [releases[zone][1] if zone in releases else 0 for zone in zones]
    carried = carry_over(head.last_rows, len(rows), lead)
    predicted = PredictedZones(rows, terms, inputs)
    rows["states"] = states = predicted.step(rows, carried, tile.interval, lead)
    if lead > 1:
        rows["due"] = carried.due[:, 1:]
    rows["price_ticks"][predicted.numbers] = predicted.price(states, tile.interval, lead)
    return release_interval(head, rows, signer, layout, to_extensions(inputs))


def _row(its: ReleaseTerms, slot: int, drawn: tuple[int, int] | None) -> tuple[Any, ...]:
    """The columns that every row has. The price is that of the curve, or the fallback price."""
    if drawn is None:
        kind = RowKind.FALLBACK if its.reads_meters else RowKind.PUBLIC
        return (kind, NoiseCode.NONE, its.forecast_ticks[slot], *_NO_NOISE, *_LEFT_OPEN)
    noise = NoiseCode[its.distribution.name], drawn[0], its.scale_wh[slot], its.core_wh[slot]
    return (RowKind.MEASURED, *noise, its.epsilon_micro[slot], its.rho_micro[slot], *_LEFT_OPEN)


def _require_opening(tile: NextTile) -> ShardOpening:
    if tile.desired.opening is None:
        raise ChainError("shard", "not open", "must be opened with a key first")
    return tile.desired.opening
