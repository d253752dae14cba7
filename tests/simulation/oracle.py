"""The rules of the protocol, checked at every change of the stores.

The oracle has what no publisher has: the true log, the true clock, every plan, every draw and every demand. Of the code
under test it uses only the fields of an entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NoReturn

from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log.record import GENESIS_PREV, Entry
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import Outcome
from tests.simulation import reference_chain_rules
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import Violation
from tests.simulation.memory_stores import MemoryLog, ObservedRound, StateSession, ZoneRow, describe_entry

Line = dict[str, Any]


def violation(kind: str, *facts: object) -> NoReturn:
    raise Violation(kind, " ".join(map(str, facts)))


class Oracle:
    """Checks every save, send, append and round. See `memory_stores.StoreObserver`."""

    def __init__(self, noise: samples.CountedNoise, verify: samples.Verify) -> None:
        self.log: MemoryLog
        self.noise = noise
        self.verify = verify
        self.demand: dict[int, tuple[str, int]] = {}  # the zone and interval of each demand
        self.corrupted: dict[str, str] = {}  # zones that need not be finished, with the reason
        self.damaged: Entry | None = None  # a state's head that was never public
        self.published = 0
        self.contested: set[tuple[str, int]] = set()  # numbers for which different lines were sent
        self._sent: dict[tuple[str, int], str] = {}
        self._parsed: dict[str, Line] = {}
        self._checked_lines: set[str] = set()  # lines that follow the one whose hash they name
        self._line_by_draw: dict[int, str] = {}
        self._last_line: dict[str, tuple[Line | None, str]] = dict.fromkeys(samples.ZONES, (None, GENESIS_PREV))
        self._total: dict[str, tuple[int, int]] = dict.fromkeys(samples.ZONES, (0, 0))

    def parsed(self, entry: Entry) -> Line:
        line = self._parsed.get(entry.line)
        if line is None:
            line = self._parsed[entry.line] = json.loads(entry.line)
        return line

    # The state

    def on_save(
        self, session: StateSession, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]
    ) -> None:
        rows, observed = session.state.rows, session.observed
        for zone in seen.keys() | pending.keys():
            if session.state.locks.get(zone) is not session:
                violation("saved without the lock", zone, "in", session.state.name)
            built = zone in seen or pending[zone] is not None
            damaged = built and self.damaged is not None and observed.locked_heads[zone] is self.damaged
            if damaged or zone in observed.unreadable:
                violation("damaged state used", zone, "in", session.state.name)
        for zone, entries in seen.items():
            self._check_mirror(zone, len(rows[zone].release), entries)
        for zone in observed.log_seq:
            if self.corrupted.get(zone) != "state damaged":
                row = rows[zone]
                head = seen[zone][-1] if seen.get(zone) else row.head
                self._check_pending(observed, row, head, pending.get(zone, row.pending))

    def _check_pending(self, observed: ObservedRound, row: ZoneRow, head: Entry | None, left: Entry | None) -> None:
        """Check the pending entry of a state at the commit."""
        before = row.pending
        if before is not None and (left is None or left.line != before.line):
            self._check_dropped(before, left)
        if left is None:
            return
        if left.record.prev != (GENESIS_PREV if head is None else head.hash):
            violation("stale draw kept", describe_entry(left), "after", describe_entry(head))
        if before is None or left.line != before.line:
            if row.written is not None and left.record.seq <= row.written.record.seq:
                violation(
                    "double value", describe_entry(row.written), "was written in this state, then", describe_entry(left)
                )
            self._check_draft(observed, head, left)

    def _check_mirror(self, zone: str, known: int, entries: list[Entry]) -> None:
        """Check that the state's copy of the log equals the log and contains no forged line."""
        lines = self.log.lines[zone]
        for number, entry in enumerate(entries, known):
            if number >= len(lines) or lines[number] != entry.line or entry.record.seq != number:
                violation("false mirror", describe_entry(entry), "is not number", number, "of the log")
            if self.corrupted.get(zone, "").startswith("line") and number == len(lines) - 1:
                violation("forged line accepted", describe_entry(entry))
        if not entries:
            violation("false mirror", zone, "no new entries")

    def _check_dropped(self, draft: Entry, left: Entry | None) -> None:
        """Check that a draw that may have been sent is kept until its number is taken."""
        if len(self.log.lines[draft.record.zone]) <= draft.record.seq:
            violation("draw dropped", describe_entry(draft), "could still be appended; now", describe_entry(left))

    def _check_draft(self, observed: ObservedRound, head: Entry | None, draft: Entry) -> None:
        """Check that a new draft follows the head, is desired, and uses its own demand and a new draw."""
        zone, line = draft.record.zone, self.parsed(draft)
        if (-1 if head is None else head.record.seq) < observed.log_seq[zone]:
            violation("written while behind", describe_entry(draft), "but the log reported", observed.log_seq[zone])
        last = None if head is None else self.parsed(head)
        broken = reference_chain_rules.broken_rule(
            last, GENESIS_PREV if head is None else sha256(head.line.encode()).hexdigest(), line
        )
        if broken:
            violation("draft does not follow", describe_entry(draft), broken)
        self._checked_lines.add(draft.line)
        self._check_desired(observed.desired[zone], last, line)
        loaded_wh = observed.loaded_wh.get(zone)
        hidden = loaded_wh is not None and samples.is_hidden(loaded_wh)
        if line["kind"] == "measured":
            if loaded_wh is not None and not hidden:
                violation("household not hidden", describe_entry(draft))
            self._check_draw(draft, line, loaded_wh)
        elif hidden or (loaded_wh is not None and line["kind"] != "forecast"):
            violation("demand loaded but not used", describe_entry(draft))
        elif line["kind"] == "forecast" and loaded_wh is None and (zone, line["interval"]) in observed.demand:
            violation("demand ignored", describe_entry(draft))

    @staticmethod
    def _check_desired(desired: DesiredState, last: Line | None, line: Line) -> None:
        kind, interval = line["kind"], line["interval"]
        if kind == "open":
            opening = desired.opening
            valid = opening is not None and (opening.plan, opening.key, opening.first, opening.lead) == (
                line["plan"],
                line["key"],
                interval + 1,
                line["applies"] - interval,
            )
        elif last is None:
            valid = False
        elif kind == "key":
            valid = (line["key"], line["next_key"]) == desired.key_change
        elif kind == "plan":
            valid = (last["plan"], line["plan"]) == desired.plan_change
        else:
            late = interval < desired.priced_from
            valid = interval <= desired.until and late == (kind == "withheld")
        if not valid:
            violation("not desired", line["zone"], kind, "of interval", interval, "under", desired)

    def _check_draw(self, draft: Entry, line: Line, energy_wh: int | None) -> None:
        plan = samples.PLAN_BY_DIGEST[line["plan"]]
        draw, energy, rest = plan.decode_price(line["price_ticks"])
        if energy != energy_wh or rest or self.demand[energy] != (line["zone"], line["interval"]):
            violation("wrong demand", describe_entry(draft), "from", energy, "but loaded was", energy_wh)
        if self._line_by_draw.setdefault(draw, draft.line) != draft.line:
            violation("draw used twice", describe_entry(draft))
        slot = line["interval"] % samples.SLOTS
        core = int(plan.terms.core_wh[slot]) if plan.terms.distribution is NoiseDistribution.HUBER else None
        if self.noise.drawn[draw] != (plan.terms.distribution, plan.terms.scale_wh[slot], core):
            violation("wrong noise", describe_entry(draft), *self.noise.drawn[draw])

    # The log

    def on_send(self, observed: ObservedRound, entry: Entry) -> None:
        zone, seq = entry.record.zone, entry.record.seq
        if observed.saved_pending is None:
            violation("sent before commit", describe_entry(entry))
        stored = observed.saved_pending.get(zone)
        if stored is None or stored.line != entry.line:
            violation("sent but not pending", describe_entry(entry), "but stored is", describe_entry(stored))
        if not observed.slot_reached:
            violation("sent outside the slot", describe_entry(entry))
        if observed.log_seq[zone] >= seq:
            violation("sent although taken", describe_entry(entry), "but the log reported", observed.log_seq[zone])
        if self._sent.setdefault((zone, seq), entry.line) != entry.line:
            self.contested.add((zone, seq))
        if observed.log_seq[zone] < observed.seen_seq[zone]:
            violation(
                "sent to a log that lost entries", describe_entry(entry), "but the log ends at", observed.log_seq[zone]
            )

    def on_append(self, entry: Entry) -> None:
        line = self.parsed(entry)
        zone, kind = line["zone"], line["kind"]
        head, head_hash = self._last_line[zone]
        if self.corrupted.get(zone, "").startswith("line"):
            violation("appended after a forged line", describe_entry(entry))
        checked = entry.line in self._checked_lines and line["prev"] == head_hash
        broken = None if checked else reference_chain_rules.broken_rule(head, head_hash, line)
        if broken:
            violation("broken chain", describe_entry(entry), broken)
        if line["seq"] != len(self.log.lines[zone]) - 1:
            violation("broken chain", describe_entry(entry), "number")
        if not self.verify(line["key"], reference_chain_rules.signed_bytes(entry.line), line["signature"]):
            violation("broken chain", describe_entry(entry), "signature")
        if kind in reference_chain_rules.RELEASES and line["interval"] >= self.log.now:
            violation("released too early", describe_entry(entry), "in interval", self.log.now)
        self._check_terms(entry, line, kind)
        self._last_line[zone] = line, sha256(entry.line.encode()).hexdigest()
        self.published += 1

    def _check_terms(self, entry: Entry, line: Line, kind: str) -> None:
        """Scale, cost and forecast are those of the plan; the total is the sum of the costs."""
        terms = samples.PLAN_BY_DIGEST[line["plan"]].terms
        zone, slot = line["zone"], line["interval"] % samples.SLOTS
        epsilon, rho = self._total[zone]
        if kind == "measured":
            cost = int(terms.epsilon_micro[slot]), int(terms.rho_micro[slot])
            noise = terms.distribution.value, repr(float(terms.scale_wh[slot])), int(terms.core_wh[slot])
            if (line["epsilon_micro"], line["rho_micro"]) != cost:
                violation("not as planned", describe_entry(entry), "costs", cost)
            if (line["noise"], line["scale_wh"], line["core_wh"]) != noise:
                violation("not as planned", describe_entry(entry), "noise", noise)
            self._total[zone] = epsilon, rho = epsilon + cost[0], rho + cost[1]
        if (line["total_epsilon_micro"], line["total_rho_micro"]) != (epsilon, rho):
            violation("lost or double cost", describe_entry(entry), "spent", epsilon, rho)
        if kind == "forecast" and line["price_ticks"] != terms.forecast_ticks[slot]:
            violation("not as planned", describe_entry(entry), "price", line["price_ticks"])
        if (line["currency"], line["tick"]) != (terms.currency, str(terms.curve.tick)) or terms.zone != zone:
            violation("not as planned", describe_entry(entry), "currency, tick or zone")

    # The round

    def on_round_end(self, session: StateSession, outcome: Outcome) -> None:
        """Check that each locked zone is reported as up to date, unfinished or blocked, and correctly."""
        observed = session.observed
        named = [*outcome.up_to_date, *outcome.unfinished, *outcome.blocked]
        if not observed.saved_heads.keys() <= set(named) <= observed.desired.keys():
            violation("zone not reported", sorted(observed.saved_heads), "locked but reported", sorted(named))
        if outcome.up_to_date & (outcome.unfinished | outcome.blocked.keys()):
            violation("false report", outcome)
        for zone in outcome.up_to_date:
            head, desired = observed.saved_heads[zone], observed.desired[zone]
            if (observed.saved_pending or {}).get(zone) is not None or not is_up_to_date(head, desired):
                violation("false report", zone, "is not up to date at", describe_entry(head))
        for zone, reason in outcome.blocked.items():
            if not (observed.stale_read or observed.may_block or zone in self.corrupted):
                violation("blocked without need", zone, reason)
            if zone not in self.corrupted and reason.text.startswith("signature"):
                violation("blocked without need", zone, reason)

    def check_finished(self, session: StateSession) -> None:
        """Check the end of a run: nothing pending, the state equals the log, no interval is missing."""
        for zone, row in session.state.rows.items():
            if zone in self.corrupted:
                continue
            if row.pending is not None:
                violation("unfinished work", describe_entry(row.pending), "is still pending")
            if list(row.release) != self.log.lines[zone] or (row.head and row.head.line) != (row.release or [None])[-1]:
                violation("unfinished work", zone, "differs from the log")
            intervals = [
                line["interval"]
                for text in row.release
                if (line := self._parsed[text])["kind"] in reference_chain_rules.RELEASES
            ]
            if intervals != list(range(intervals[0], self.log.now)):
                violation("gap", zone, intervals, "by", self.log.now)


def is_up_to_date(head: Entry | None, desired: DesiredState) -> bool:
    if head is None:
        return desired.opening is None
    key_done = desired.key_change is None or head.key_in_force != desired.key_change.before
    plan_done = desired.plan_change is None or head.record.plan != desired.plan_change.before
    return key_done and plan_done and head.record.interval >= desired.until
