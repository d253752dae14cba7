"""What commands print: results on standard output, progress and problems on standard error.

`--json` prints one document on standard output, and nothing else there. Keys are in docs/reference/json-output.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sized
from datetime import UTC, datetime
from itertools import islice

from rich.console import Console

MAX_BLOCKED_SHOWN = 20
CURRENCIES_WITHOUT_CENTS = frozenset({"CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF"})

stdout = Console(highlight=False, soft_wrap=True, markup=False)
stderr = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


def print_json(document: Mapping[str, object]) -> None:
    """Print the result of a command for a script. Names stay as they are, also those beyond ASCII."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def format_utc(at_s: float) -> str:
    """A moment in UTC, to the second.

    >>> format_utc(1_794_658_500)
    '2026-11-14T12:15:00Z'
    """
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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


def print_first(lines: Iterable[str], console: Console = stderr, indent: str = "", unlisted: int = 0) -> None:
    """Print the first lines, and how many more there are, with those that are not in the list."""
    rest = iter(lines)
    for line in islice(rest, MAX_BLOCKED_SHOWN):
        console.print(f"{indent}{line}")
    if more := sum(1 for _ in rest) + unlisted:
        console.print(f"{indent}and {more:,} more.")


def print_blocked(reasons: Mapping[str, str]) -> None:
    """Print the zones or shards that are blocked, each with its reason."""
    print_first(f"{name}: blocked: {reason}" for name, reason in sorted(reasons.items()))


def zones_word(zones: Sized) -> str:
    return "zone" if len(zones) == 1 else "zones"
