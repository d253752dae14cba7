"""The rules of the protocol, checked at every change of the stores.

The oracle has what no publisher has: the true log, the true clock, every plan, every draw and every demand. Of the code
under test it uses only the bytes of a tile, the text of a zone table and the fields of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log.tile import Tile
from murmurate.public_log.tile_chain import ShardHead
from murmurate.publisher.desired_state import DesiredState, ZoneOpening
from murmurate.publisher.protocol import BlockedCode, Outcome
from murmurate.publisher.steps import Offer
from tests.simulation import reference_chain_rules as reference
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import FaultSchedule, violation
from tests.simulation.memory_stores import MemoryLog, ObservedRound, ShardRow, StateSession, describe_tile
from tests.simulation.prediction_oracle import PredictionOracle

_NOISE_CODES = {
    NoiseDistribution.LAPLACE: reference.LAPLACE,
    NoiseDistribution.HUBER: reference.HUBER,
    NoiseDistribution.GAUSSIAN: reference.GAUSSIAN,
}


class ZonePlace(NamedTuple):
    """Where a zone stands in the whole log: its shard, its last interval, and its chain."""

    shard: str
    interval: int
    chain: reference.Place


class Oracle:
    """Checks every save, claim, send, append and round. See `memory_stores.StoreObserver`."""

    def __init__(
        self, faults: FaultSchedule, noise: samples.CountedNoise, verify: samples.Verify, unknown_plans: set[str]
    ) -> None:
        self.log: MemoryLog
        self.faults = faults
        self.noise = noise
        self.verify = verify
        self.unknown_plans = unknown_plans  # plans that no publisher can read
        self.inputs_until = 0  # the interval until which late public values are known
        self.demand: dict[int, tuple[str, int]] = {}  # the zone and interval of each demand
        self.corrupted: dict[str, str] = {}  # shards that need not be finished, with the reason
        self.damaged: ShardHead | None = None  # a state's head that was never public
        self.published = 0
        self.contested: set[tuple[str, int]] = set()  # numbers for which different tiles were sent
        self.current: dict[str, reference.Head] = {}  # the head of each shard in the log
        self.places: dict[str, ZonePlace] = {}
        self._sent: dict[tuple[str, int], Tile] = {}  # the first of each number
        self._heads: dict[str, reference.Head] = {}  # after each tile that follows the one that it names, by its hash
        self._tile_by_draw: dict[int, str] = {}
        self._decided: dict[tuple[str, int], str] = {}  # the tile of each zone and interval
        self._predictions = PredictionOracle()
        self._total: dict[str, tuple[int, int]] = dict.fromkeys(samples.ZONES, (0, 0))

    def zones_of(self, shard: str) -> set[str]:
        """Return the zones that are in a shard by the log."""
        head = self.current.get(shard)
        return set() if head is None else {row["zone"] for row in head.table["zones"]}

    # The state

    def on_save(
        self, session: StateSession, new_heads: Mapping[str, list[ShardHead]], pending: Mapping[str, Offer | None]
    ) -> None:
        rows, observed = session.state.rows, session.observed
        for shard in new_heads.keys() | pending.keys():
            if session.state.locks.get(shard) is not session:
                violation("saved without the lock", shard, "in", session.state.name)
            built = shard in new_heads or pending[shard] is not None
            damaged = built and self.damaged is not None and observed.locked_heads[shard] is self.damaged
            if damaged or shard in observed.unreadable:
                violation("damaged state used", shard, "in", session.state.name)
        for shard, heads in new_heads.items():
            self._check_mirror(shard, len(rows[shard].mirror), heads)
        for shard in observed.log_seq:
            if self.corrupted.get(shard) != "state damaged":
                row = rows[shard]
                head = new_heads[shard][-1] if new_heads.get(shard) else row.head
                self._check_pending(observed, row, head, pending.get(shard, row.pending))

    def _check_pending(
        self, observed: ObservedRound, row: ShardRow, head: ShardHead | None, left: Offer | None
    ) -> None:
        """Check the pending tile of a state at the commit."""
        before = row.pending
        if before is not None and (left is None or left.tile.hash != before.tile.hash):
            self._check_dropped(before.tile, left)
        if left is None:
            return
        if left.tile.header.prev != (reference.NOTHING if head is None else head.tile.hash):
            violation("stale draw kept", describe_tile(left.tile), "after", describe_tile(head and head.tile))
        if before is None or left.tile.hash != before.tile.hash:
            if row.written is not None and left.tile.header.seq <= row.written.header.seq:
                first, second = describe_tile(row.written), describe_tile(left.tile)
                violation("double value", first, "was written in this state, then", second)
            self._check_draft(observed, head, left)

    def _check_mirror(self, shard: str, known: int, heads: list[ShardHead]) -> None:
        """Check that the state's copy of the log equals the log, without forged tiles, and where each zone stands."""
        bodies = self.log.bodies[shard]
        for number, head in enumerate(heads, known):
            if number >= len(bodies) or bodies[number] != head.tile.to_bytes() or head.tile.header.seq != number:
                violation("false mirror", describe_tile(head.tile), "is not number", number, "of the log")
            if self.corrupted.get(shard, "").startswith("tile") and number == len(bodies) - 1:
                violation("forged tile accepted", describe_tile(head.tile))
            expected = self._heads[head.tile.hash]
            if reference.parse_table(head.table.text) != expected.table:
                violation("false mirror", describe_tile(head.tile), "has another zone table")
            places = {
                zone: reference.Place(leaf.tobytes(), *totals)
                for zone, leaf, totals in zip(head.table.zones, head.leaf_hashes, head.totals.T.tolist(), strict=True)
            }
            if places != expected.places:
                violation("false mirror", describe_tile(head.tile), "leaves", places, "not", expected.places)
        if not heads:
            violation("false mirror", shard, "no new tiles")

    def _check_dropped(self, draft: Tile, left: Offer | None) -> None:
        """Check that a draw that may have been sent is kept until its number is taken."""
        if len(self.log.bodies[draft.header.shard]) <= draft.header.seq:
            now = describe_tile(left and left.tile)
            violation("draw dropped", describe_tile(draft), "could still be appended; now", now)

    def _check_draft(self, observed: ObservedRound, head: ShardHead | None, draft: Offer) -> None:
        """Check that a new draft follows the head, is desired, and uses its own demand and new draws."""
        tile, shard = draft.tile, draft.tile.header.shard
        if (-1 if head is None else head.tile.header.seq) < observed.log_seq[shard]:
            violation("written while behind", describe_tile(tile), "but the log reported", observed.log_seq[shard])
        last = None if head is None else self._heads[head.tile.hash]
        new = self._follow(last, draft, "draft does not follow")
        self._check_desired(observed, last, new)
        for row in new.table["zones"] if new.rows else ():
            self._check_row(observed, last, new, row)
        if new.rows:
            self._predictions.check_inputs(new, observed.inputs_until)

    def _follow(self, last: reference.Head | None, offer: Offer, kind: str) -> reference.Head:
        try:
            new = reference.follow(last, offer.tile.to_bytes(), offer.table.text)
        except reference.BrokenRuleError as broken:
            violation(kind, describe_tile(offer.tile), broken)
        if new.hash != offer.tile.hash:
            violation(kind, describe_tile(offer.tile), "hash")
        self._heads[new.hash] = new
        self._predictions.note_rows(new)
        return new

    @staticmethod
    def _check_desired(observed: ObservedRound, last: reference.Head | None, new: reference.Head) -> None:
        header = new.header
        kind, desired = header["kind"], observed.desired[header["shard"]]
        if kind in ("open", "zones"):
            valid = _is_desired_table(observed, last, new)
        elif kind == "key":
            valid = (header["key"], header["next_key"]) == desired.key_change
        else:
            valid = header["interval"] <= desired.until
        if kind == "open":
            opening = desired.opening
            valid = (
                valid
                and opening is not None
                and (opening.key, opening.interval_s, opening.lead)
                == (
                    header["key"],
                    header["interval_s"],
                    header["lead"],
                )
            )
        if not valid:
            violation("not desired", header, "under", desired)

    def _check_row(
        self, observed: ObservedRound, last: reference.Head | None, new: reference.Head, table_row: dict[str, Any]
    ) -> None:
        """Check one row of a draft: late, without a usable plan, from its own demand, or the forecast."""
        zone, interval, shard = table_row["zone"], new.header["interval"], new.header["shard"]
        row, late = new.rows[zone], interval < observed.desired[shard].priced_from
        facts = f"{zone} in {shard}/{new.header['seq']} of interval {interval}: {row}"
        loaded_wh = observed.loaded_wh.get(zone)
        hidden = loaded_wh is not None and samples.is_hidden(loaded_wh)
        if late:
            if zone in observed.requested:
                violation("demand loaded but not used", facts)
            expected = reference.WITHHELD
        elif is_unusable(observed, table_row["plan"]):
            observed.unpriced.add(zone)
            expected = reference.WITHHELD
        else:
            if observed.requested.get(zone) != interval:
                violation("demand ignored", facts)
            expected = reference.MEASURED if hidden else reference.FORECAST
            if not samples.PLAN_BY_DIGEST[table_row["plan"]].terms.reads_meters:
                expected = reference.PUBLIC
        if row.kind != expected:
            violation("household not hidden" if row.kind == reference.MEASURED else "wrong kind", facts)
        if row.kind == reference.MEASURED:
            self._check_draw(last, new, table_row, loaded_wh, facts)

    def _check_draw(
        self,
        last: reference.Head | None,
        new: reference.Head,
        table_row: dict[str, Any],
        energy_wh: int | None,
        facts: str,
    ) -> None:
        zone, interval, row = table_row["zone"], new.header["interval"], new.rows[table_row["zone"]]
        plan = samples.PLAN_BY_DIGEST[table_row["plan"]]
        silent_wh = self._predictions.silent_wh(last, new.header, plan.terms, energy_wh or 0)
        draw, energy, rest = plan.decode_row(row.price_ticks, row.noisy_wh, silent_wh)
        if energy != energy_wh or rest or self.demand[energy] != (zone, interval):
            violation("wrong demand", facts, "from", energy, "but loaded was", energy_wh)
        if self._tile_by_draw.setdefault(draw, new.hash + zone) != new.hash + zone:
            violation("draw used twice", facts)
        slot = interval % samples.SLOTS
        core = int(plan.terms.core_wh[slot]) if plan.terms.distribution is NoiseDistribution.HUBER else None
        if self.noise.drawn[draw] != (plan.terms.distribution, plan.terms.scale_wh[slot], core):
            violation("wrong noise", facts, *self.noise.drawn[draw])

    # The log

    def on_claim(self, observed: ObservedRound, claims: Mapping[str, str]) -> None:
        """Check that only zones are claimed that the round desires."""
        for zone, shard in claims.items():
            desired = observed.desired.get(shard)
            if desired is None or zone not in desired.zones:
                violation("claim not desired", zone, "for", shard)

    def on_send(self, observed: ObservedRound, offer: Offer) -> None:
        tile, shard, seq = offer.tile, offer.tile.header.shard, offer.tile.header.seq
        if observed.saved_pending is None:
            violation("sent before commit", describe_tile(tile))
        stored = observed.saved_pending.get(shard)
        if stored is None or stored.tile.to_bytes() != tile.to_bytes() or stored.table.text != offer.table.text:
            violation(
                "sent but not pending", describe_tile(tile), "but stored is", describe_tile(stored and stored.tile)
            )
        if not observed.slot_reached:
            violation("sent outside the slot", describe_tile(tile))
        if observed.log_seq[shard] >= seq:
            violation("sent although taken", describe_tile(tile), "but the log reported", observed.log_seq[shard])
        first = self._sent.setdefault((shard, seq), tile)
        if first.hash != tile.hash:
            self.contested.add((shard, seq))
            if first.header.extensions.get("inputs") != tile.header.extensions.get("inputs"):
                self.faults.record("sent again with other inputs", describe_tile(tile))
        if observed.log_seq[shard] < observed.seen_seq[shard]:
            ends = observed.log_seq[shard]
            violation("sent to a log that lost tiles", describe_tile(tile), "but the log ends at", ends)

    def on_append(self, offer: Offer) -> None:
        tile, shard = offer.tile, offer.tile.header.shard
        last = self.current.get(shard)
        if self.corrupted.get(shard, "").startswith("tile"):
            violation("appended after a forged tile", describe_tile(tile))
        new = self._heads.get(tile.hash)
        if new is None or new.header["prev"] != (reference.NOTHING if last is None else last.hash):
            new = self._follow(last, offer, "broken chain")
        header = new.header
        if header["shard"] != shard or header["seq"] != len(self.log.bodies[shard]) - 1:
            violation("broken chain", describe_tile(tile), "number")
        if not self.verify(header["key"], reference.signed_bytes(header), header["signature"]):
            violation("broken chain", describe_tile(tile), "signature")
        if header["kind"] == "release" and header["interval"] >= self.log.now:
            violation("released too early", describe_tile(tile), "in interval", self.log.now)
        if header["kind"] in ("open", "zones"):
            self._check_entering(last, new)
        for row in new.table["zones"] if new.rows else ():
            self._check_published_row(new, row)
        if new.rows:
            self._predictions.check_tile(new)
        self.current[shard] = new
        self.published += 1

    def on_set_aside(self, shard: str, first_seq: int, removed: list[bytes], held: set[str]) -> None:
        """Check that no reader accepts what was set aside, and that nothing was signed that the state does not hold."""
        head = self.current.get(shard)
        valid_seq = -1 if head is None else head.header["seq"]
        if first_seq <= valid_seq:
            violation("double value", f"{shard}/{first_seq}", "is public and was set aside: another can take its place")
        if first_seq != valid_seq + 1 or not removed:
            violation("invalid tile left", shard, "from", first_seq, "after", valid_seq)
        for body in removed if head is not None else ():
            signed_hash = reference.signed_hash(body, self.key_in_force(shard), self.verify)
            if signed_hash is not None and signed_hash not in held:
                violation("double value", f"{shard}/{first_seq}", "is signed and was set aside")
        self.corrupted.pop(shard)

    def key_in_force(self, shard: str) -> str:
        """Return the key that signs the next tile; nothing where the shard is not open."""
        head = self.current.get(shard)
        return "" if head is None else str(head.header["next_key"] or head.header["key"])

    def _check_entering(self, last: reference.Head | None, new: reference.Head) -> None:
        """Check the zones that enter a shard: claimed for it, and never in any shard before."""
        shard, interval = new.header["shard"], new.header["interval"]
        before = set() if last is None else {row["zone"] for row in last.table["zones"]}
        for row in new.table["zones"]:
            zone = row["zone"]
            if zone in before:
                continue
            if self.log.claims.get(zone) != shard:
                violation("entered without its claim", zone, "in", shard, self.log.claims.get(zone))
            if zone in self.places:
                violation("zone in two shards", zone, shard, self.places[zone].shard)
            self.places[zone] = ZonePlace(shard, interval, reference.START)
            terms = samples.PLAN_BY_DIGEST[row["plan"]].terms
            if terms.zone != zone or (row["currency"], row["tick"]) != (terms.currency, str(terms.curve.tick)):
                violation("not as planned", zone, "currency, tick or zone of the plan")

    def _check_published_row(self, new: reference.Head, table_row: dict[str, Any]) -> None:
        """Check that an interval is decided once for a zone, its chain goes on, and the costs are those of the plan."""
        zone, interval = table_row["zone"], new.header["interval"]
        row, place = new.rows[zone], self.places[zone]
        facts = f"{zone} in {new.header['shard']}/{new.header['seq']} of interval {interval}: {row}"
        if self._decided.setdefault((zone, interval), new.hash) != new.hash or interval <= place.interval:
            violation("double value", facts, "was decided before")
        if place.shard != new.header["shard"] or row.prev != place.chain.leaf:
            violation("chain of a zone broken", facts, "after", place)
        terms = samples.PLAN_BY_DIGEST[table_row["plan"]].terms
        slot = interval % samples.SLOTS
        epsilon, rho = self._total[zone]
        if row.kind == reference.MEASURED:
            cost = int(terms.epsilon_micro[slot]), int(terms.rho_micro[slot])
            noise = _NOISE_CODES[terms.distribution], float(terms.scale_wh[slot]), int(terms.core_wh[slot])
            if (row.epsilon_micro, row.rho_micro) != cost or (row.noise, row.scale_wh, row.core_wh) != noise:
                violation("not as planned", facts, "costs", cost, "noise", noise)
            self._total[zone] = epsilon, rho = epsilon + cost[0], rho + cost[1]
        if (row.total_epsilon_micro, row.total_rho_micro) != (epsilon, rho):
            violation("lost or double cost", facts, "spent", epsilon, rho)
        if row.kind == reference.FORECAST and not terms.prediction and row.price_ticks != terms.forecast_ticks[slot]:
            violation("not as planned", facts, "price")
        if (table_row["currency"], table_row["tick"]) != (terms.currency, str(terms.curve.tick)) or terms.zone != zone:
            violation("not as planned", facts, "currency, tick or zone")
        self.places[zone] = ZonePlace(new.header["shard"], interval, new.places[zone])

    # The round

    def on_round_end(self, session: StateSession, outcome: Outcome) -> None:
        """Check that each locked shard is reported as up to date, unfinished or blocked, and correctly."""
        observed = session.observed
        named = [*outcome.up_to_date, *outcome.unfinished, *outcome.blocked]
        if not observed.saved_heads.keys() <= set(named) <= observed.desired.keys():
            violation("shard not reported", sorted(observed.saved_heads), "locked but reported", sorted(named))
        if outcome.up_to_date & (outcome.unfinished | outcome.blocked.keys()):
            violation("false report", outcome)
        for shard in outcome.up_to_date:
            head, desired = observed.saved_heads[shard], observed.desired[shard]
            pending = (observed.saved_pending or {}).get(shard)
            if pending is not None or not is_up_to_date(head, desired, outcome.blocked_zones):
                violation("false report", shard, "is not up to date at", describe_tile(head and head.tile))
        for shard, reason in outcome.blocked.items():
            if shard in observed.set_aside:
                continue
            if not (observed.stale_read or observed.may_block or shard in self.corrupted):
                violation("blocked without need", shard, reason)
            if shard not in self.corrupted and ": signature is " in reason.text:
                violation("blocked without need", shard, reason)
        self._check_blocked_zones(observed, outcome)

    def _check_blocked_zones(self, observed: ObservedRound, outcome: Outcome) -> None:
        """Check that zones are blocked that another shard holds or whose plan cannot be used, and no others."""
        foreign = {zone for zone, reason in outcome.blocked_zones.items() if reason.code is BlockedCode.OTHER_SHARD}
        for zone in foreign:
            wanted_by = {shard for shard, desired in observed.desired.items() if zone in desired.zones}
            if not wanted_by - {observed.holders[zone]}:
                violation("blocked without need", zone, "belongs to", observed.holders[zone])
        unpriced = outcome.blocked_zones.keys() - foreign
        if any(not _may_be_unusable(observed, zone) for zone in unpriced):
            violation("blocked without need", sorted(unpriced))
        if observed.unpriced - outcome.blocked_zones.keys():
            violation("zone not reported", sorted(observed.unpriced), "cannot be priced")

    def check_finished(self, session: StateSession) -> None:
        """Check the end of a run: nothing pending, the state equals the log, no interval is missing."""
        for shard, row in session.state.rows.items():
            if shard in self.corrupted:
                continue
            if row.pending is not None:
                violation("unfinished work", describe_tile(row.pending.tile), "is still pending")
            seen = [offer.tile.to_bytes() for offer in row.mirror]
            if seen != self.log.bodies[shard] or (row.head and row.head.tile.to_bytes()) != (seen or [None])[-1]:
                violation("unfinished work", shard, "differs from the log")
            headers = [offer.tile.header for offer in row.mirror]
            intervals = [header.interval for header in headers if header.kind == "release"]
            end = self.log.now if self.zones_of(shard) else headers[-1].interval + 1 if headers else 0
            if headers and intervals != list(range(headers[0].interval + 1, end)):
                violation("gap", shard, intervals, "by", self.log.now)


def is_unusable(observed: ObservedRound, plan: str) -> bool:
    """Return whether nothing may be priced under a plan: the publisher cannot read it, or it has other intervals."""
    return plan in observed.unknown_plans or plan in samples.MISMATCHED_PLANS


def _may_be_unusable(observed: ObservedRound, zone: str) -> bool:
    rows = (head.table.find_row(zone) for head in observed.saved_heads.values() if head is not None)
    return any(row is not None and is_unusable(observed, row.plan) for row in rows)


def _is_desired_table(observed: ObservedRound, last: reference.Head | None, new: reference.Head) -> bool:
    """Return whether each difference between two zone tables is desired, and there is one."""
    shard, interval = new.header["shard"], new.header["interval"]
    desired = observed.desired[shard]
    before = {} if last is None else {row["zone"]: row for row in last.table["zones"]}
    after = {row["zone"]: row for row in new.table["zones"]}
    if before == after or before.keys() - after.keys() != before.keys() & set(desired.closing):
        return False
    for zone, row in after.items():
        was = before.get(zone)
        if was is None:
            opening = None if zone in desired.closing else desired.zones.get(zone)
            if opening is None or not _is_desired_entry(opening, row, interval + 1):
                return False
            if observed.holders.get(zone) != shard:
                return False
        elif row != was:
            change = desired.plan_changes.get(zone)
            if change is None or change != (was["plan"], row["plan"], row["currency"], row["tick"]):
                return False
    return True


def _is_desired_entry(opening: ZoneOpening, row: dict[str, Any], next_interval: int) -> bool:
    same = (opening.plan, opening.currency, opening.tick) == (row["plan"], row["currency"], row["tick"])
    return same and opening.first <= row["since"] == next_interval


def is_up_to_date(head: ShardHead | None, desired: DesiredState, blocked_zones: Mapping[str, object]) -> bool:
    """Return whether nothing is left to do. Zones that another shard holds need not be in this one."""
    missing = desired.zones.keys() - blocked_zones.keys() - set(desired.closing)
    if head is None:
        return desired.opening is None or not missing
    rows = {row.zone: row for row in head.table.rows}
    if not rows:  # the shard has ended
        return True
    missing -= {zone.zone for zone in head.table.closed}
    missing = {zone for zone in missing - rows.keys() if desired.zones[zone].first <= head.interval + 1}
    key_done = desired.key_change is None or head.tile.key_in_force != desired.key_change.before
    plans_done = all(zone not in rows or rows[zone].plan != its.before for zone, its in desired.plan_changes.items())
    closed = not rows.keys() & set(desired.closing)
    return key_done and plans_done and closed and not missing and head.interval >= desired.until
