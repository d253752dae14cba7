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

from murmurate.errors import ChainError, MurmurateError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.chain import check_follows, check_signature
from murmurate.public_log.record import RELEASE_KINDS, Entry, canonical_json, parse_entry
from murmurate.public_log.signing import verify_signature
from murmurate.service.log_reader.archive import Archive, price_from_entry, price_from_line
from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.settings import ZoneDisplay
from murmurate.service.storage.session import Session
from murmurate.units import SECONDS_PER_DAY

RECENT_PRICES_S = 3 * SECONDS_PER_DAY  # what is kept in memory
ZONES_PER_QUERY = 500  # zones in one answer

_SELECT_HEADS = "SELECT zone, seq, interval_s FROM public_log.head"
_SELECT_NEW_LINES = """
    SELECT mine.zone, e.line, extract(epoch FROM e.taken)::float8 FROM jsonb_each_text(%s) AS mine (zone, after)
    CROSS JOIN LATERAL (
        SELECT seq, line, taken FROM public_log.entry
        WHERE zone = mine.zone AND seq > mine.after::bigint ORDER BY seq LIMIT %s
    ) AS e ORDER BY mine.zone, e.seq"""


@dataclass(frozen=True, slots=True)
class FollowedChain:
    """A zone as far as it was read."""

    view: ZoneView
    head: Entry


class Follower:
    """Reads the log into views. One thread at a time."""

    def __init__(self, dsn: str, display_of: Callable[[str], ZoneDisplay]) -> None:
        self._session = Session(dsn)
        self._archive = Archive(dsn)
        self._display_of = display_of
        self._chains: dict[str, FollowedChain] = {}
        self._terms: dict[str, ReleaseTerms] = {}
        self.broken: dict[str, str] = {}  # zones that stand still, and why

    @property
    def views(self) -> Mapping[str, ZoneView]:
        return {zone: chain.view for zone, chain in self._chains.items()}

    def refresh(self) -> list[tuple[ZoneView, list[Price]]]:
        """Read what is new. Returns each zone that has changed, with the prices that are new since the last time.

        Of a zone that is read for the first time no price is called new: they may be days old.
        """
        with self._session.transaction() as connection:
            heads = {zone: (seq, step) for zone, seq, step in connection.execute(_SELECT_HEADS) if seq >= 0}
        changed = []
        behind = [zone for zone, (seq, _) in heads.items() if zone not in self._chains or self._seq(zone) < seq]
        for at in range(0, len(behind), ZONES_PER_QUERY):
            batch = {zone: heads[zone] for zone in behind[at : at + ZONES_PER_QUERY] if zone not in self.broken}
            changed += self._read_zones(batch)
        return changed

    def _seq(self, zone: str) -> int:
        return self._chains[zone].head.record.seq

    def _read_zones(self, heads: Mapping[str, tuple[int, int]]) -> list[tuple[ZoneView, list[Price]]]:
        new = {zone: head for zone, head in heads.items() if zone not in self._chains}
        after = {zone: self._seq(zone) for zone in heads.keys() - new.keys()}
        after |= {zone: max(-1, seq - RECENT_PRICES_S // step - 2) for zone, (seq, step) in new.items()}
        lines_by_zone: dict[str, list[tuple[str, float]]] = {}
        with self._session.transaction() as connection:
            for zone, line, taken in connection.execute(
                _SELECT_NEW_LINES, (canonical_json(after), RECENT_PRICES_S // 60)
            ):
                lines_by_zone.setdefault(zone, []).append((line, taken))
            openings = self._read_openings(connection, list(new))
        changed = []
        for zone, lines in lines_by_zone.items():
            try:
                changed.append(self._follow_zone(zone, lines, openings.get(zone)))
            except MurmurateError as error:
                self.broken[zone] = str(error)
            except (ValueError, KeyError, TypeError) as error:
                self.broken[zone] = f"a line of the log is no record ({type(error).__name__})"
        return changed

    @staticmethod
    def _read_openings(connection: Connection, zones: list[str]) -> dict[str, tuple[str, float]]:
        rows = (
            connection.execute(_SELECT_NEW_LINES, (canonical_json(dict.fromkeys(zones, -1)), 1)).fetchall()
            if zones
            else []
        )
        return {zone: (line, taken) for zone, line, taken in rows}

    def _follow_zone(
        self, zone: str, lines: list[tuple[str, float]], opening: tuple[str, float] | None
    ) -> tuple[ZoneView, list[Price]]:
        if (before := self._chains.get(zone)) is None:
            if opening is None:
                raise ChainError("zone", zone, "has no first record")
            head = _verified_entry(parse_entry(lines[-1][0]))
            prices_read = [price for line, taken_s in lines if (price := price_from_line(line, taken_s)) is not None]
            view = self._advance_view(self._opening_view(zone, parse_entry(opening[0]), opening[1]), head, prices_read)
            self._chains[zone] = FollowedChain(view, head)
            return view, []
        head, prices = before.head, []
        for line, taken_s in lines:
            entry = parse_entry(line)
            check_follows(head, entry)
            head = _verified_entry(entry)
            if entry.record.kind in RELEASE_KINDS:
                prices.append(price_from_entry(entry, taken_s))
        view = self._advance_view(before.view, head, prices)
        self._chains[zone] = FollowedChain(view, head)
        return view, prices

    def _opening_view(self, zone: str, opened: Entry, opened_s: float) -> ZoneView:
        record = opened.record
        return ZoneView(
            zone=zone,
            display=self._display_of(zone),
            currency=record.currency,
            tick=Fraction(record.tick),
            interval_s=record.interval_s,
            lead_intervals=opened.lead_intervals,
            plan_digest="",
            opening_key=record.key,
            key=opened.key_in_force,
            seq=0,
            opened_s=opened_s,
            first_priced=record.applies + 1,
            last_decided=record.applies,
            prices={},
            expected_ticks=(),
            total_epsilon_micro=0,
            total_rho_micro=0,
        )

    def _advance_view(self, view: ZoneView, head: Entry, prices: list[Price]) -> ZoneView:
        record = head.record
        oldest = record.applies - RECENT_PRICES_S // record.interval_s
        kept = {at: price for at, price in view.prices.items() if at > oldest}
        terms = self._terms_of(record.plan)
        ticks = terms.forecast_ticks.tolist()
        return replace(
            view,
            currency=record.currency,
            tick=Fraction(record.tick),
            plan_digest=record.plan,
            key=head.key_in_force,
            seq=record.seq,
            last_decided=record.applies,
            prices=kept | {price.interval: price for price in prices if price.interval > oldest},
            expected_ticks=tuple(ticks[(slot - head.lead_intervals) % len(ticks)] for slot in range(len(ticks))),
            total_epsilon_micro=record.total_epsilon_micro,
            total_rho_micro=record.total_rho_micro,
            terms=terms,
        )

    def _terms_of(self, plan: str) -> ReleaseTerms:
        if plan not in self._terms:
            text = self._archive.read_plan(plan)
            if text is None:
                raise ChainError("plan", plan, "is not in the log")
            self._terms[plan] = ReleaseTerms.from_json(text)
        return self._terms[plan]

    def close(self) -> None:
        """Close the connections. They are reopened on the next call."""
        self._session.close()
        self._archive.close()


def _verified_entry(entry: Entry) -> Entry:
    check_signature(entry, verify_signature)
    return entry
