"""Shards and zones as the public log stands, ready to be written in any format.

Views of zones are made when they are asked for: 100,000 zones are 100 shards and a few look-up tables.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from murmurate.errors import ChainError, MurmurateError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.corrections import MEASURED_DAYS, SQUARE
from murmurate.public_log.tile import RowKind
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import ClosedZone, ZoneRow, ZoneTable
from murmurate.service.log_reader.price_columns import PriceColumns
from murmurate.service.settings import ZoneDisplay
from murmurate.units import SECONDS_PER_DAY

LoadTerms = Callable[[str], ReleaseTerms]  # of a plan digest
parse_tick = lru_cache(maxsize=1024)(Fraction)


class PriceKind(StrEnum):
    """What a price was made from."""

    MEASURED = "measured"
    FALLBACK = "fallback"
    WITHHELD = "withheld"
    PUBLIC = "public"  # no meter was read


PRICE_KINDS = {RowKind[kind.name]: kind for kind in PriceKind}


@dataclass(frozen=True, slots=True)
class Price:
    """What is decided about the price of one interval. It never changes."""

    interval: int  # the one that pays it, from interval * interval_s to (interval + 1) * interval_s [s of UTC]
    kind: PriceKind
    ticks: int | None  # none: withheld
    tick: Fraction  # [currency/kWh]
    scale_wh: float | None  # of the noise, where there is some
    logged_s: float  # when the log took it [s of UTC]
    core_wh: int = 0  # of Huber noise

    @property
    def value(self) -> float | None:
        """[currency/kWh], the double nearest to it."""
        return None if self.ticks is None else self.ticks * self.tick.numerator / self.tick.denominator


@dataclass(frozen=True, slots=True, eq=False)
class ShardView:
    """A shard as far as its log was read. It is never changed; a new tile makes a new view."""

    head: ShardHead
    opening_key: str  # signed the first tile; a verifier must know it from another source
    columns: PriceColumns
    first: int  # the first interval that was measured and whose prices are in memory
    last: int  # the last one
    archived_seq: int = -1  # releases up to this number have left the log
    kept_seqs: tuple[int, ...] = ()  # the tiles up to it that have not: those without rows

    @property
    def name(self) -> str:
        return self.head.tile.header.shard

    @property
    def table(self) -> ZoneTable:
        return self.head.table

    @property
    def interval_s(self) -> int:
        return self.head.tile.header.interval_s

    @property
    def lead_intervals(self) -> int:
        return self.head.tile.header.lead

    def square_units(self, zone: str) -> int | None:
        """The last state of the last row of a zone, see `prediction.corrections`; None: it has none, or is too new."""
        rows, at = self.head.last_rows, self.table.position[zone]
        days = (self.last - self.table.rows[at].since) * self.interval_s / SECONDS_PER_DAY
        if rows is None or "states" not in (rows.dtype.names or ()) or days < MEASURED_DAYS:
            return None
        return int(rows["states"][at, SQUARE])

    def last_of(self, zone: str) -> int:
        """The last interval that was measured for a zone: the last one of the shard, unless the zone was closed."""
        closed = self.table.closed_by_zone.get(zone)
        return self.last if closed is None else min(self.last, closed.last)


class RecentPrices(Mapping[int, Price]):
    """The prices of a zone that are in memory, by the interval that pays. They have no gap."""

    __slots__ = ("_position", "_shard", "_zone", "intervals")

    def __init__(self, shard: ShardView, row: ZoneRow) -> None:
        lead = shard.lead_intervals
        self._shard, self._zone, self._position = shard, row.zone, shard.table.column[row.zone]
        self.intervals = range(max(shard.first, row.since) + lead, shard.last_of(row.zone) + lead + 1)

    def __getitem__(self, interval: int) -> Price:
        if interval not in self.intervals:
            raise KeyError(interval)
        measured = interval - self._shard.lead_intervals
        columns = self._shard.columns
        kind, ticks, scale_wh, core_wh, logged_s = columns.read(measured, self._position)
        price = None if kind is RowKind.WITHHELD else ticks
        tick = find_tick(columns.table_of(measured), self._zone)
        return Price(interval, PRICE_KINDS[kind], price, tick, scale_wh or None, logged_s, core_wh)

    def exact_prices(self, intervals: range) -> list[ExactPrice]:
        """What `Price` says about intervals that are all in memory, without making one for each."""
        lead = self._shard.lead_intervals
        found: list[ExactPrice] = []
        measured = range(intervals.start - lead, intervals.stop - lead)
        kinds, ticks, logged_s, tables = self._shard.columns.read_span(measured, self._position)
        table, tick = None, Fraction(1)
        for kind, price, at_s, its_table in zip(kinds, ticks, logged_s, tables, strict=True):
            if its_table is not table:
                table, tick = its_table, find_tick(its_table, self._zone)
            found.append((None if kind == RowKind.WITHHELD else price, tick, at_s))
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self.intervals)

    def __len__(self) -> int:
        return len(self.intervals)

    def __contains__(self, interval: object) -> bool:
        return interval in self.intervals


ExactPrice = tuple[int | None, Fraction, float]  # ticks (none: withheld), [currency/kWh] of a tick, logged [s of UTC]


def find_tick(table: ZoneTable, zone: str) -> Fraction:
    """One price step of a zone under a zone table [currency/kWh]."""
    return parse_tick(table.rows[table.position[zone]].tick)


class PlanEnd(NamedTuple):
    """A plan that is no longer in force."""

    plan: str  # digest
    end: int  # the first interval that was measured under the next one


@dataclass(frozen=True, slots=True, eq=False)
class ZoneView:
    """A zone as the log stands now."""

    shard: ShardView
    row: ZoneRow  # of a zone that was closed, as it last stood
    display: ZoneDisplay
    load_terms: LoadTerms
    archived: Mapping[int, Price] | None = None  # prices of another stretch, from the archive, instead of recent ones
    older_plans: tuple[PlanEnd, ...] = ()  # from the archive: those that ended before the prices in memory

    @property
    def zone(self) -> str:
        return self.row.zone

    @property
    def currency(self) -> str:
        return self.row.currency

    def currency_of(self, interval: int) -> str:
        """The currency of a price that is in memory: that of the plan which made it."""
        table = self.shard.columns.table_of(interval - self.lead_intervals)
        return table.rows[table.position[self.zone]].currency

    @property
    def tick(self) -> Fraction:
        """One price step [currency/kWh]."""
        return parse_tick(self.row.tick)

    @property
    def interval_s(self) -> int:
        return self.shard.interval_s

    @property
    def lead_intervals(self) -> int:
        return self.shard.lead_intervals

    @property
    def plan_digest(self) -> str:
        return self.row.plan

    @property
    def key(self) -> str:
        """Signs the next tile."""
        return self.shard.head.tile.key_in_force

    @property
    def first_priced(self) -> int:
        """The first interval with a price."""
        return self.row.since + self.lead_intervals

    @property
    def closed(self) -> ClosedZone | None:
        """Where its chain ended, if the zone was closed. What was decided before is still paid."""
        return self.shard.table.closed_by_zone.get(self.zone)

    @property
    def last_decided(self) -> int:
        """The last interval whose price is decided; the one before the first: none yet."""
        return self.shard.last_of(self.zone) + self.lead_intervals

    @property
    def prices(self) -> Mapping[int, Price]:
        """By interval, without gaps from some recent one to `last_decided`."""
        return RecentPrices(self.shard, self.row) if self.archived is None else self.archived

    @property
    def known_intervals(self) -> range:
        """The intervals whose prices are known here."""
        prices = self.prices
        if isinstance(prices, RecentPrices):
            return prices.intervals
        return range(min(prices), max(prices) + 1) if prices else range(0)

    def exact_prices(self, intervals: range) -> list[ExactPrice]:
        """Ticks, price step and time of intervals that are all known here."""
        prices = self.prices
        if isinstance(prices, RecentPrices):
            return prices.exact_prices(intervals)
        return [(prices[n].ticks, prices[n].tick, prices[n].logged_s) for n in intervals]

    @property
    def terms(self) -> ReleaseTerms:
        """What the plan says about each release."""
        return self.load_terms(self.row.plan)

    @property
    def measured_error(self) -> tuple[float, float] | None:
        """Between which errors the demand that was priced lay in the last four weeks; None: that is not known."""
        prediction = self.terms.prediction if self.terms.reads_meters else None
        square_units = None if self.closed is not None else self.shard.square_units(self.zone)
        return None if prediction is None or square_units is None else prediction.measured_error(square_units)

    @property
    def earlier_plans(self) -> list[PlanEnd]:
        """The plans before the one in force that `older_plans` and the prices in memory know of, the oldest first."""
        measured = range(max(self.shard.first, self.row.since), self.shard.last_of(self.zone) + 1)
        tables = (self.shard.columns.table_of(n) for n in measured)
        plans = [table.rows[table.position[self.zone]].plan for table in tables] + [self.row.plan]
        changes = enumerate(pairwise(plans), measured.start + 1)
        return [*self.older_plans, *(PlanEnd(plan, end) for end, (plan, after) in changes if plan != after)]

    def is_expected(self, interval: int) -> bool:
        """Whether an interval will get a price that is not decided yet."""
        return self.closed is None and interval > self.last_decided

    def expected_ticks(self, interval: int) -> int:
        """The plan's expected price of the interval that pays; it is not billed."""
        return self.terms.expected_ticks(range(interval, interval + 1), self.lead_intervals)[0]

    def expected_price(self, interval: int) -> float:
        """What the plan expects the price of an interval to be [currency/kWh]; it is not billed."""
        return float(self.expected_ticks(interval) * self.tick)

    def start_s(self, interval: int) -> int:
        return interval * self.interval_s

    def interval_at(self, now_s: float) -> int:
        """The interval of a moment."""
        return int(now_s // self.interval_s)


def format_rfc3339(at_s: float) -> str:
    """A moment in UTC, with seconds.

    >>> format_rfc3339(1_794_658_500)
    '2026-11-14T12:15:00Z'
    """
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


MakeView = Callable[[ShardView, str], ZoneView]  # of a zone of a shard


class ZoneViews(Mapping[str, ZoneView]):
    """The view of each zone, also of one that was closed. One thread at a time; names are in order."""

    def __init__(self, display_of: Callable[[str], ZoneDisplay], load_terms: LoadTerms) -> None:
        self._display_of, self._load_terms = display_of, load_terms
        self._shards: dict[str, ShardView] = {}
        self._shard_by_zone: dict[str, str] = {}
        self._names: list[str] = []
        self._unsorted: list[str] = []  # names that are not in `_names` yet
        self.table_version = 0  # how often the zone table of a shard has changed

    def put(self, view: ShardView) -> tuple[str, ...]:
        """Show a shard as it is now. Return the zones that were not known before."""
        before = self._shards.get(view.name)
        self._shards[view.name] = view
        if before is None or before.table.digest != view.table.digest:
            self.table_version += 1
        if before is not None and before.table.zones_ever == view.table.zones_ever:
            return ()
        new = tuple(zone for zone in view.table.zones_ever if zone not in self._shard_by_zone)
        self._shard_by_zone.update(dict.fromkeys(new, view.name))
        self._unsorted.extend(new)
        return new

    @property
    def shards(self) -> Mapping[str, ShardView]:
        return self._shards

    def shard_of(self, zone: str) -> str | None:
        """The name of the shard that a zone is in."""
        return self._shard_by_zone.get(zone)

    @property
    def names(self) -> Sequence[str]:
        """All zones, sorted."""
        if self._unsorted:
            self._names = sorted([*self._names, *sorted(self._unsorted)])  # two runs: merged in linear time
            self._unsorted = []
        return self._names

    def names_after(self, name: str, limit: int) -> Sequence[str]:
        """The next zones after a name, in order."""
        at = bisect_right(self.names, name)
        return self.names[at : at + limit]

    def __getitem__(self, zone: str) -> ZoneView:
        return self.make_view(self._shards[self._shard_by_zone[zone]], zone)

    def make_view(self, shard: ShardView, zone: str) -> ZoneView:
        """The view of a zone of a shard. Any thread may ask for it."""
        closed = shard.table.closed_by_zone.get(zone)
        row = shard.table.rows[shard.table.position[zone]] if closed is None else closed.row
        return ZoneView(shard, row, self._display_of(zone), self._load_terms)

    def __contains__(self, zone: object) -> bool:
        return zone in self._shard_by_zone

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self._shard_by_zone)


MAX_TERMS_KEPT = 20_000
ReadDocuments = Callable[[list[str]], Mapping[str, str]]  # by digest, as far as the log has them


class PlanTerms:
    """Terms of published plans by digest: read when first needed, and the last ones kept. Any thread may ask."""

    def __init__(self, read_documents: ReadDocuments, max_kept: int = MAX_TERMS_KEPT) -> None:
        self._read_documents, self._max_kept = read_documents, max_kept
        self._terms: OrderedDict[str, ReleaseTerms] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, plan: object) -> bool:
        return plan in self._terms

    def __len__(self) -> int:
        return len(self._terms)

    def get(self, plan: str) -> ReleaseTerms:
        """The terms of a plan. Raises ChainError where the log does not have it, or it is no plan."""
        terms = self._terms.get(plan)
        if terms is None:
            self.load([plan])
            terms = self._terms.get(plan)
        if terms is None:
            raise ChainError("plan", plan, "is not in the log, or is no plan")
        return terms

    def load(self, plans: Iterable[str]) -> None:
        """Read the terms of these plans, as far as the log has them."""
        missing = [plan for plan in dict.fromkeys(plans) if plan not in self._terms]
        if not missing:
            return
        for plan, text in self._read_documents(missing).items():
            with suppress(MurmurateError):
                self.put(plan, ReleaseTerms.from_json(text))

    def put(self, plan: str, terms: ReleaseTerms) -> None:
        """Keep the terms of a plan."""
        with self._lock:
            self._terms[plan] = terms
            while len(self._terms) > self._max_kept:
                self._terms.popitem(last=False)
