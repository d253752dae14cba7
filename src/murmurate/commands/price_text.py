"""Prices and times as a resident reads them in a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

CURRENCIES_WITHOUT_CENTS = frozenset({"CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF"})


def price_unit(currency: str) -> str:
    """
    >>> price_unit("EUR"), price_unit("JPY")
    ('EUR cent/kWh', 'JPY/kWh')
    """
    return f"{currency}/kWh" if currency in CURRENCIES_WITHOUT_CENTS else f"{currency} cent/kWh"


def format_cents(price: float, currency: str) -> str:
    """A price [currency/kWh] in cents, to a hundredth of one.

    >>> format_cents(0.08124, "EUR"), format_cents(31.2, "JPY")
    ('8.12', '31.20')
    """
    return f"{price if currency in CURRENCIES_WITHOUT_CENTS else 100 * price:.2f}"


def format_local(at_s: float, time_zone: ZoneInfo) -> str:
    """
    >>> format_local(1_794_658_500, ZoneInfo("Europe/Zurich"))
    'Sat 13:15'
    """
    return datetime.fromtimestamp(int(at_s), UTC).astimezone(time_zone).strftime("%a %H:%M")
