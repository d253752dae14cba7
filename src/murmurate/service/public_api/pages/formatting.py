"""Moments and prices as a resident reads them: by the clock on the wall, in cents, rounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from functools import lru_cache
from math import floor, log10
from urllib.parse import quote

from murmurate.planning.promise_text import EarlierPlan, PlanChanges, PromiseText, describe_promises
from murmurate.service.log_reader.zone_view import Price, PriceKind, ZoneView, format_rfc3339
from murmurate.translations.language import ENGLISH, Language

KIND_WORDS = {kind: kind.value for kind in PriceKind}  # keys of translations
_SUBUNITS = 100  # of each currency whose subunit the translations name
_ABOUT_DIGITS = 3  # significant ones


def format_price(ticks: int, tick: Fraction) -> str:
    """A price [currency/kWh], exactly; as a fraction where no decimal is exact.

    >>> ticks = {8120: Fraction(1, 100_000), -3: Fraction(1, 4), 5: Fraction(1, 7), 12: Fraction(1)}
    >>> tuple(format_price(*each) for each in ticks.items())
    ('0.08120', '-0.75', '5/7', '12')
    """
    digits = _decimal_digits(tick)
    if digits is None:
        return str(ticks * tick)
    whole, rest = divmod(abs(ticks * tick.numerator * (10**digits // tick.denominator)), 10**digits)
    sign = "-" if ticks * tick.numerator < 0 else ""
    return f"{sign}{whole}" + (f".{rest:0{digits}d}" if digits else "")


@lru_cache(maxsize=1024)
def _decimal_digits(tick: Fraction) -> int | None:
    """The digits after the point that write a number exactly; None: none do, up to 18."""
    return next((n for n in range(19) if 10**n % tick.denominator == 0), None)


def local_datetime(view: ZoneView, at_s: float) -> datetime:
    return datetime.fromtimestamp(int(at_s), UTC).astimezone(view.display.timezone)


def clock_label_formatter(view: ZoneView, intervals: range) -> Callable[[int], str]:
    """Names the begin of an interval; with its distance from UTC on days on which the clock changes.

    Without it two hours of such a day would bear the same names.
    """
    offsets = {local_datetime(view, view.start_s(n)).utcoffset() for n in intervals}
    layout = "%H:%M" if len(offsets) < 2 else "%H:%M (UTC%:z)"

    def name(interval: int) -> str:
        at = local_datetime(view, view.start_s(interval))
        offset = at.strftime("%z")
        return at.strftime(layout.replace("%:z", f"{offset[:3]}:{offset[3:5]}"))

    return name


@dataclass(frozen=True, slots=True)
class TimeLabel:
    """A moment for people and for machines."""

    at_s: float
    local: str  # as a clock in the zone shows it

    @property
    def utc(self) -> str:
        return format_rfc3339(self.at_s)


def format_day(day: date, language: Language = ENGLISH) -> str:
    """
    >>> format_day(date(2026, 11, 14))
    'Saturday, 14 November 2026'
    """
    weekday, month = language.plain(f"date.weekday_{day.isoweekday()}"), language.plain(f"date.month_{day.month}")
    return language.plain("date.long", weekday=weekday, day=day.day, month=month, year=day.year)


@dataclass(frozen=True, slots=True)
class PriceFormat:
    """How a page writes the prices of a zone: in the currency's subunit where the translations name one."""

    language: Language
    unit: str  # cents
    short_unit: str  # ct
    units: int  # in one of the currency

    @classmethod
    def of_zone(cls, view: ZoneView, language: Language) -> PriceFormat:
        language = language.in_country(view.display.country)
        name, short = (language.find(f"{table}.{view.currency}") for table in ("subunit", "subunit_short"))
        if name is None or short is None:
            return cls(language, view.currency, view.currency, 1)
        return cls(language, name, short, _SUBUNITS)

    def final(self, price: Price | None) -> tuple[str, str] | None:
        """The price of the log for programs, and rounded for people; none where there is no price."""
        if price is None or price.ticks is None:
            return None
        return format_price(price.ticks, price.tick), self.rounded(price.ticks * price.tick)

    def rounded(self, price: Fraction | float) -> str:
        """To a tenth of a cent, from 100 cents on to a whole one; without cents to three significant digits."""
        number = float(price * self.units)
        if self.units == 1:
            return self.about(price)
        return self.decimal(f"{number:z.{1 if abs(number) < 99.95 else 0}f}")

    def about(self, price: Fraction | float) -> str:
        """To three significant digits."""
        return self.decimal(format_about(price * self.units))

    def decimal(self, digits: str) -> str:
        return self.language.decimal(digits)


def format_about(value: Fraction | float) -> str:
    """Return a number to three significant digits; whole numbers are not rounded further.

    >>> [format_about(Fraction(text)) for text in ("8.1249", "12.36", "-0.01234", "1234.5", "0")]
    ['8.12', '12.4', '-0.0123', '1234', '0']
    """
    number = float(value)
    if not number:
        return "0"
    digits = max(0, _ABOUT_DIGITS - 1 - floor(log10(abs(number))))
    return f"{number:.{digits}f}"


def zone_url(view: ZoneView, base_url: str) -> str:
    return f"{base_url}/zones/{quote(view.zone, safe='')}"


def page_values(view: ZoneView, base_url: str, opening_key: str, language: Language) -> dict[str, object]:
    """What the templates of a zone's pages share."""
    return {
        "base_url": base_url,
        "zone": view.zone,
        "zone_url": zone_url(view, base_url),
        "currency": view.currency,
        "title": view.display.title or language.plain("zone.name", zone=view.zone),
        "has_title": bool(view.display.title),
        "opening_key": opening_key,
        "key": view.key,
    }


def promise_text(view: ZoneView, now_s: float, language: Language) -> PromiseText:
    """What the plan of a zone promises at a moment, in words. An earlier plan may weaken it for some time."""

    def format_start(interval: int) -> str:
        begins = local_datetime(view, view.start_s(interval))
        return language.plain("date.moment", day=format_day(begins.date(), language), clock=f"{begins:%H:%M}")

    earlier = tuple(EarlierPlan(view.load_terms(plan), end) for plan, end in view.earlier_plans)
    return describe_promises(view.terms, language, PlanChanges(earlier, view.interval_at(now_s), format_start))


def format_error(view: ZoneView, unit: PriceFormat) -> dict[str, str] | None:
    """Return how far the demand that is priced is off, in %: as planned, and as the log shows, if it does."""
    prediction, measured = view.terms.prediction, view.measured_error
    if prediction is None or (measured is None and prediction.read_meters):
        return None
    numbers = {"planned": prediction.predicted_error}
    if measured is not None:
        numbers |= {"low": measured[0], "high": measured[1]}
    return {name: unit.decimal(f"{100 * number:.0f}") for name, number in numbers.items()}
