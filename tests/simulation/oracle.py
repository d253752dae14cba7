"""What must never happen, checked at the moment it would.

The oracle knows what no publisher knows: the true log, the true clock, every plan, every draw and every demand that was
handed out. It asks none of the code under test for its opinion, but for the fields of an entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NoReturn

from murmurate.privacy.noise import NoiseLaw
from murmurate.publication.publisher import Outcome
from murmurate.publication.record import NOBODY, Entry
from murmurate.publication.wish import Wish
from tests.simulation import cast, rules
from tests.simulation.weather import Violation
from tests.simulation.world import MemoryLog, Row, Session, Turn, brief

Line = dict[str, Any]


def violation(kind: str, *facts: object) -> NoReturn:
    raise Violation(kind, " ".join(map(str, facts)))


class Oracle:
    """See `world.Witness`."""

    def __init__(self, noise: cast.CountedNoise, verify: cast.Verify) -> None:
        self.log: MemoryLog
        self.noise = noise
        self.verify = verify
        self.demand: dict[int, tuple[str, int]] = {}  # of which zone and interval each demand was
        self.poisoned: dict[str, str] = {}  # zones that nobody need finish, and why
        self.damaged: Entry | None = None  # the head of a state that says what was never public
        self.published = 0
        self.contested: set[tuple[str, int]] = set()  # numbers for which different lines were sent
        self._sent: dict[tuple[str, int], str] = {}
        self._parsed: dict[str, Line] = {}
        self._sound: set[str] = set()  # lines that follow the one whose hash they name
        self._line_of_draw: dict[int, str] = {}
        self._head: dict[str, tuple[Line | None, str]] = dict.fromkeys(cast.ZONES, (None, NOBODY))
        self._total: dict[str, tuple[int, int]] = dict.fromkeys(cast.ZONES, (0, 0))

    def parsed(self, entry: Entry) -> Line:
        line = self._parsed.get(entry.line)
        if line is None:
            line = self._parsed[entry.line] = json.loads(entry.line)
        return line

    # The state

    def saving(self, session: Session, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        rows, turn = session.state.rows, session.turn
        for zone in seen.keys() | pending.keys():
            if session.state.locks.get(zone) is not session:
                violation("saved without the lock", zone, "in", session.state.name)
            built = zone in seen or pending[zone] is not None
            damaged = built and self.damaged is not None and turn.found[zone] is self.damaged
            if damaged or zone in turn.unreadable:
                violation("damage built upon", zone, "in", session.state.name)
        for zone, entries in seen.items():
            self._mirrored(zone, len(rows[zone].release), entries)
        for zone in turn.told:
            if self.poisoned.get(zone) != "state damaged":
                row = rows[zone]
                head = seen[zone][-1] if seen.get(zone) else row.head
                self._left_pending(turn, row, head, pending.get(zone, row.pending))

    def _left_pending(self, turn: Turn, row: Row, head: Entry | None, left: Entry | None) -> None:
        """What a state holds as pending when it commits."""
        before = row.pending
        if before is not None and (left is None or left.line != before.line):
            self._given_up(before, left)
        if left is None:
            return
        if left.record.prev != (NOBODY if head is None else head.hash):
            violation("stale draw kept", brief(left), "after", brief(head))
        if before is None or left.line != before.line:
            if row.written is not None and left.record.seq <= row.written.record.seq:
                violation("double value", brief(row.written), "was written in this state, then", brief(left))
            self._written(turn, head, left)

    def _mirrored(self, zone: str, known: int, entries: list[Entry]) -> None:
        """What a state takes for public is public, and can be trusted."""
        lines = self.log.lines[zone]
        for number, entry in enumerate(entries, known):
            if number >= len(lines) or lines[number] != entry.line or entry.record.seq != number:
                violation("false mirror", brief(entry), "is not number", number, "of the log")
            if self.poisoned.get(zone, "").startswith("line") and number == len(lines) - 1:
                violation("forgery believed", brief(entry))
        if not entries:
            violation("false mirror", zone, "nothing seen")

    def _given_up(self, draft: Entry, left: Entry | None) -> None:
        """A draw that may have been sent is kept until its number is taken, whatever its value."""
        if len(self.log.lines[draft.record.zone]) <= draft.record.seq:
            violation("draw dropped", brief(draft), "could still be appended; now", brief(left))

    def _written(self, turn: Turn, head: Entry | None, draft: Entry) -> None:
        """A new draft: follows the head, brings the wish closer, and comes from its own demand and a fresh draw."""
        zone, line = draft.record.zone, self.parsed(draft)
        if (-1 if head is None else head.record.seq) < turn.told[zone]:
            violation("written while behind", brief(draft), "but the log is known to be at", turn.told[zone])
        last = None if head is None else self.parsed(head)
        broken = rules.misfit(last, NOBODY if head is None else sha256(head.line.encode()).hexdigest(), line)
        if broken:
            violation("misfit written", brief(draft), broken)
        self._sound.add(draft.line)
        self._wished(turn.wishes[zone], last, line)
        recalled = turn.recalled.get(zone)
        hidden = recalled is not None and cast.is_hidden(recalled)
        if line["kind"] == "measured":
            if recalled is not None and not hidden:
                violation("household not hidden", brief(draft))
            self._fresh(draft, line, recalled)
        elif hidden or (recalled is not None and line["kind"] != "forecast"):
            violation("demand recalled in vain", brief(draft))
        elif line["kind"] == "forecast" and recalled is None and (zone, line["interval"]) in turn.demand:
            violation("demand ignored", brief(draft))

    @staticmethod
    def _wished(wish: Wish, last: Line | None, line: Line) -> None:
        kind, interval = line["kind"], line["interval"]
        if kind == "open":
            opening = wish.opening
            fine = opening is not None and (opening.plan, opening.key, opening.first, opening.lead) == (
                line["plan"],
                line["key"],
                interval + 1,
                line["applies"] - interval,
            )
        elif last is None:
            fine = False
        elif kind == "key":
            fine = (line["key"], line["next_key"]) == wish.key
        elif kind == "plan":
            fine = (last["plan"], line["plan"]) == wish.plan
        else:
            late = interval < wish.in_time_from
            fine = interval <= wish.until and late == (kind == "withheld")
        if not fine:
            violation("not wished", line["zone"], kind, "of interval", interval, "under", wish)

    def _fresh(self, draft: Entry, line: Line, energy_wh: int | None) -> None:
        tariff = cast.TARIFFS[line["plan"]]
        draw, energy, rest = tariff.origin(line["price_ticks"])
        if energy != energy_wh or rest or self.demand[energy] != (line["zone"], line["interval"]):
            violation("wrong demand", brief(draft), "from", energy, "where recalled was", energy_wh)
        if self._line_of_draw.setdefault(draw, draft.line) != draft.line:
            violation("draw used twice", brief(draft))
        slot = line["interval"] % cast.SLOTS
        core = int(tariff.terms.core_wh[slot]) if tariff.terms.law is NoiseLaw.HUBER else None
        if self.noise.drawn[draw] != (tariff.terms.law, tariff.terms.scale_wh[slot], core):
            violation("wrong noise", brief(draft), *self.noise.drawn[draw])

    # The log

    def sending(self, turn: Turn, entry: Entry) -> None:
        zone, seq = entry.record.zone, entry.record.seq
        if turn.saved is None:
            violation("sent before commit", brief(entry))
        stored = turn.saved.get(zone)
        if stored is None or stored.line != entry.line:
            violation("sent but not pending", brief(entry), "where stored is", brief(stored))
        if not turn.beaten:
            violation("sent off the beat", brief(entry))
        if turn.told[zone] >= seq:
            violation("sent in vain", brief(entry), "but the log is known to be at", turn.told[zone])
        if self._sent.setdefault((zone, seq), entry.line) != entry.line:
            self.contested.add((zone, seq))
        if turn.told[zone] < turn.known[zone]:
            violation("sent to a log that lost entries", brief(entry), "but the log ends at", turn.told[zone])

    def taken(self, entry: Entry) -> None:
        line = self.parsed(entry)
        zone, kind = line["zone"], line["kind"]
        head, head_hash = self._head[zone]
        if self.poisoned.get(zone, "").startswith("line"):
            violation("forgery followed", brief(entry))
        checked = entry.line in self._sound and line["prev"] == head_hash
        broken = None if checked else rules.misfit(head, head_hash, line)
        if broken:
            violation("broken chain", brief(entry), broken)
        if line["seq"] != len(self.log.lines[zone]) - 1:
            violation("broken chain", brief(entry), "number")
        if not self.verify(line["key"], rules.signed_bytes(entry.line), line["signature"]):
            violation("broken chain", brief(entry), "signature")
        if kind in rules.RELEASES and line["interval"] >= self.log.now:
            violation("released too early", brief(entry), "in interval", self.log.now)
        self._as_planned(entry, line, kind)
        self._head[zone] = line, sha256(entry.line.encode()).hexdigest()
        self.published += 1

    def _as_planned(self, entry: Entry, line: Line, kind: str) -> None:
        """Scale, cost and forecast are those of the plan; the total is the sum of the costs."""
        terms = cast.TARIFFS[line["plan"]].terms
        zone, slot = line["zone"], line["interval"] % cast.SLOTS
        epsilon, rho = self._total[zone]
        if kind == "measured":
            cost = int(terms.epsilon_micro[slot]), int(terms.rho_micro[slot])
            noise = terms.law.value, repr(float(terms.scale_wh[slot])), int(terms.core_wh[slot])
            if (line["epsilon_micro"], line["rho_micro"]) != cost:
                violation("not as planned", brief(entry), "costs", cost)
            if (line["noise"], line["scale_wh"], line["core_wh"]) != noise:
                violation("not as planned", brief(entry), "noise", noise)
            self._total[zone] = epsilon, rho = epsilon + cost[0], rho + cost[1]
        if (line["total_epsilon_micro"], line["total_rho_micro"]) != (epsilon, rho):
            violation("lost or double cost", brief(entry), "spent", epsilon, rho)
        if kind == "forecast" and line["price_ticks"] != terms.forecast_ticks[slot]:
            violation("not as planned", brief(entry), "price", line["price_ticks"])
        if (line["currency"], line["tick"]) != (terms.currency, str(terms.curve.tick)) or terms.zone != zone:
            violation("not as planned", brief(entry), "currency, tick or zone")

    # The turn

    def ended(self, session: Session, outcome: Outcome) -> None:
        """Each zone that was locked is done, moved or aside, and is what it is said to be."""
        turn = session.turn
        named = [*outcome.done, *outcome.moved, *outcome.aside]
        if not turn.heads.keys() <= set(named) <= turn.wishes.keys():
            violation("zone forgotten", sorted(turn.heads), "locked but told of", sorted(named))
        if outcome.done & (outcome.moved | outcome.aside.keys()):
            violation("false report", outcome)
        for zone in outcome.done:
            head, wish = turn.heads[zone], turn.wishes[zone]
            if (turn.saved or {}).get(zone) is not None or not fulfilled(head, wish):
                violation("false report", zone, "is not done at", brief(head))
        for zone, reason in outcome.aside.items():
            if not (turn.stale or turn.excused or zone in self.poisoned):
                violation("set aside without need", zone, reason)
            if zone not in self.poisoned and reason.startswith("signature"):
                violation("set aside without need", zone, reason)

    def settled(self, session: Session) -> None:
        """After healing: nothing pending, the state knows all that is public, every chain is told from end to end."""
        for zone, row in session.state.rows.items():
            if zone in self.poisoned:
                continue
            if row.pending is not None:
                violation("unfinished work", brief(row.pending), "is pending still")
            if list(row.release) != self.log.lines[zone] or (row.head and row.head.line) != (row.release or [None])[-1]:
                violation("unfinished work", zone, "is not known to its end")
            intervals = [
                line["interval"] for text in row.release if (line := self._parsed[text])["kind"] in rules.RELEASES
            ]
            if intervals != list(range(intervals[0], self.log.now)):
                violation("gap", zone, intervals, "by", self.log.now)


def fulfilled(head: Entry | None, wish: Wish) -> bool:
    if head is None:
        return wish.opening is None
    turned = wish.key is None or head.key != wish.key.before
    planned = wish.plan is None or head.record.plan != wish.plan.before
    return turned and planned and head.record.interval >= wish.until
