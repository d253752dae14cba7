"""Follow the public log: read what is new, check it as anybody would, and keep what everybody asks for.

A reader of the log needs no more rights than the public has. What does not follow from what was read before is not
shown: the zone stands still, and the reason is said. At the start the last record is checked, and not again the days
before it: that would take minutes for thousands of zones, and anybody can do it with `murmurate verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from psycopg import Connection

from murmurate.curator.terms import DAY_S, Terms
from murmurate.errors import ChainError, MurmurateError
from murmurate.publication.chain import refuse_misfit, refuse_unsigned
from murmurate.publication.record import RELEASES, Entry, encode, read
from murmurate.publication.signing import verify
from murmurate.service.board.archive import Archive, price_in, price_of
from murmurate.service.board.view import Price, ZoneView
from murmurate.service.connection import Session
from murmurate.service.settings import Sign

RECENT_S = 3 * DAY_S  # what is kept in memory
AT_ONCE = 500  # zones in one answer

_HEADS = "SELECT zone, seq, interval_s FROM public_log.head"
_LINES = """
    SELECT mine.zone, e.line, extract(epoch FROM e.taken)::float8 FROM jsonb_each_text(%s) AS mine (zone, after)
    CROSS JOIN LATERAL (
        SELECT seq, line, taken FROM public_log.entry
        WHERE zone = mine.zone AND seq > mine.after::bigint ORDER BY seq LIMIT %s
    ) AS e ORDER BY mine.zone, e.seq"""


@dataclass(frozen=True, slots=True)
class Chain:
    """A zone as far as it was read."""

    view: ZoneView
    head: Entry


class Follower:
    """Reads the log into views. One thread at a time."""

    def __init__(self, dsn: str, sign: Callable[[str], Sign]) -> None:
        self._session = Session(dsn)
        self._archive = Archive(dsn)
        self._sign = sign
        self._chains: dict[str, Chain] = {}
        self._terms: dict[str, Terms] = {}
        self.broken: dict[str, str] = {}  # zones that stand still, and why

    @property
    def views(self) -> Mapping[str, ZoneView]:
        return {zone: chain.view for zone, chain in self._chains.items()}

    def refresh(self) -> list[tuple[ZoneView, list[Price]]]:
        """Read what is new. Returns each zone that has moved, with the prices that are new since the last time.

        Of a zone that is read for the first time no price is called new: they may be days old.
        """
        with self._session.transaction() as connection:
            heads = {zone: (seq, step) for zone, seq, step in connection.execute(_HEADS) if seq >= 0}
        moved = []
        behind = [zone for zone, (seq, _) in heads.items() if zone not in self._chains or self._seq(zone) < seq]
        for at in range(0, len(behind), AT_ONCE):
            some = {zone: heads[zone] for zone in behind[at : at + AT_ONCE] if zone not in self.broken}
            moved += self._read(some)
        return moved

    def _seq(self, zone: str) -> int:
        return self._chains[zone].head.record.seq

    def _read(self, heads: Mapping[str, tuple[int, int]]) -> list[tuple[ZoneView, list[Price]]]:
        new = {zone: head for zone, head in heads.items() if zone not in self._chains}
        after = {zone: self._seq(zone) for zone in heads.keys() - new.keys()}
        after |= {zone: max(-1, seq - RECENT_S // step - 2) for zone, (seq, step) in new.items()}
        found: dict[str, list[tuple[str, float]]] = {}
        with self._session.transaction() as connection:
            for zone, line, taken in connection.execute(_LINES, (encode(after), RECENT_S // 60)):
                found.setdefault(zone, []).append((line, taken))
            openings = self._openings(connection, list(new))
        moved = []
        for zone, lines in found.items():
            try:
                moved.append(self._follow(zone, lines, openings.get(zone)))
            except MurmurateError as error:
                self.broken[zone] = str(error)
            except (ValueError, KeyError, TypeError) as error:
                self.broken[zone] = f"a line of the log is no record ({type(error).__name__})"
        return moved

    @staticmethod
    def _openings(connection: Connection, zones: list[str]) -> dict[str, tuple[str, float]]:
        rows = connection.execute(_LINES, (encode(dict.fromkeys(zones, -1)), 1)).fetchall() if zones else []
        return {zone: (line, taken) for zone, line, taken in rows}

    def _follow(
        self, zone: str, lines: list[tuple[str, float]], opening: tuple[str, float] | None
    ) -> tuple[ZoneView, list[Price]]:
        if (before := self._chains.get(zone)) is None:
            if opening is None:
                raise ChainError("zone", zone, "has no first record")
            head = _signed(read(lines[-1][0]))
            known = [price for line, taken_s in lines if (price := price_in(line, taken_s)) is not None]
            view = self._move(self._begin(zone, read(opening[0]), opening[1]), head, known)
            self._chains[zone] = Chain(view, head)
            return view, []
        head, prices = before.head, []
        for line, taken_s in lines:
            entry = read(line)
            refuse_misfit(head, entry)
            head = _signed(entry)
            if entry.record.kind in RELEASES:
                prices.append(price_of(entry, taken_s))
        view = self._move(before.view, head, prices)
        self._chains[zone] = Chain(view, head)
        return view, prices

    def _begin(self, zone: str, opened: Entry, opened_s: float) -> ZoneView:
        record = opened.record
        return ZoneView(
            zone=zone,
            sign=self._sign(zone),
            currency=record.currency,
            tick=Fraction(record.tick),
            interval_s=record.interval_s,
            lead=opened.lead,
            plan="",
            opening_key=record.key,
            key=opened.key,
            seq=0,
            opened_s=opened_s,
            first=record.applies + 1,
            decided=record.applies,
            prices={},
            expected_ticks=(),
            total_epsilon_micro=0,
            total_rho_micro=0,
        )

    def _move(self, view: ZoneView, head: Entry, prices: list[Price]) -> ZoneView:
        record = head.record
        oldest = record.applies - RECENT_S // record.interval_s
        kept = {at: price for at, price in view.prices.items() if at > oldest}
        terms = self._terms_of(record.plan)
        ticks = terms.forecast_ticks.tolist()
        return replace(
            view,
            currency=record.currency,
            tick=Fraction(record.tick),
            plan=record.plan,
            key=head.key,
            seq=record.seq,
            decided=record.applies,
            prices=kept | {price.interval: price for price in prices if price.interval > oldest},
            expected_ticks=tuple(ticks[(slot - head.lead) % len(ticks)] for slot in range(len(ticks))),
            total_epsilon_micro=record.total_epsilon_micro,
            total_rho_micro=record.total_rho_micro,
            terms=terms,
        )

    def _terms_of(self, plan: str) -> Terms:
        if plan not in self._terms:
            text = self._archive.plan(plan)
            if text is None:
                raise ChainError("plan", plan, "is not in the log")
            self._terms[plan] = Terms.of(text)
        return self._terms[plan]

    def close(self) -> None:
        """Hang up; a later call connects again."""
        self._session.drop()
        self._archive.close()


def _signed(entry: Entry) -> Entry:
    refuse_unsigned(entry, verify)
    return entry
