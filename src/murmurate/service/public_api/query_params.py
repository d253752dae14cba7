"""The parameters of a query, checked. The answer to a wrong one names what is allowed."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date, datetime, timedelta
from datetime import time as clock_time
from zoneinfo import ZoneInfo

from starlette.exceptions import HTTPException
from starlette.requests import Request

from murmurate.service.log_reader.zone_view import ZoneView, ZoneViews
from murmurate.service.public_api.local_days import day_start_s
from murmurate.types import ZONE_NAME_RULE, is_zone_name

_MILLISECONDS = re.compile(r"[0-9]{13}")
_CLOCK_TIME = re.compile(r"[0-9]{2}:[0-9]{2}")
REPEATABLE_PARAMS = {"targets"}


def check_query_params(request: Request, allowed: Collection[str]) -> None:
    """Raise HTTP 400 for an unknown parameter: a response that ignored it would answer another question.

    A parameter that is there twice is refused as well, but for lists.
    """
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in allowed:
            names = ", ".join(allowed) or "none"
            raise HTTPException(400, f"the query parameter {name[:40]!r} is unknown; there is {names}")
        if name in seen - REPEATABLE_PARAMS:
            raise HTTPException(400, f"the query parameter {name} must be there once")
        seen.add(name)


def pattern_param(request: Request, name: str, pattern: re.Pattern[str]) -> str | None:
    """A word of some form."""
    text = request.query_params.get(name)
    if text is not None and not pattern.fullmatch(text):
        raise HTTPException(400, f"{name} must be of the form {pattern.pattern}")
    return text


def int_param(request: Request, name: str, max_value: int) -> int | None:
    """Return a whole number from 0 to `max_value`."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > max_value:
        raise HTTPException(400, f"{name} must be a whole number from 0 to {max_value}")
    return int(text)


def bool_param(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in {"true", "false"}:
        raise HTTPException(400, f"{name} must be true or false")
    return text == "true"


def time_param(request: Request, name: str, timezone: ZoneInfo, now_s: float | None = None) -> float | None:
    """A time with its zone, milliseconds since 1970, or a day, which is its first moment there [s of UTC].

    Where it is known what the time is, a time of the clock there is the next one.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        if (day := find_day(text)) is not None:
            return day_start_s(day, timezone)
        if _MILLISECONDS.fullmatch(text):
            return int(text) / 1000
        if now_s is not None and _CLOCK_TIME.fullmatch(text):
            return _next_clock_time_s(clock_time.fromisoformat(text), timezone, now_s)
        time = datetime.fromisoformat(text.replace(" ", "+"))  # a plus that was not escaped
        at_s = None if time.tzinfo is None else time.timestamp()
    except (ValueError, OverflowError):
        at_s = None
    if at_s is None:
        raise HTTPException(400, f"{name} must be a time such as 2026-11-14T00:00:00Z, or a day such as 2026-11-14")
    return at_s


def has_clock_time(request: Request, names: Collection[str | None]) -> bool:
    """Whether one of these parameters is a time of the clock, which names another moment once it is over."""
    return any(name is not None and _CLOCK_TIME.fullmatch(request.query_params.get(name, "")) for name in names)


def _next_clock_time_s(clock: clock_time, timezone: ZoneInfo, now_s: float) -> float:
    """The first moment after now at which a clock there shows this time [s of UTC]."""
    today = datetime.fromtimestamp(now_s, timezone).date()
    days = (datetime.combine(today + timedelta(days=n), clock, timezone) for n in range(4))
    moments = (day.replace(fold=fold).timestamp() for day in days for fold in (0, 1))
    shown = (at_s for at_s in moments if datetime.fromtimestamp(at_s, timezone).time() == clock)
    return min(at_s for at_s in shown if at_s > now_s)


def find_day(text: str) -> date | None:
    """Return the day of a text such as 2026-11-14, or None for any other text."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if day.isoformat() == text and 1970 < day.year < 9000 else None


def parse_day(text: str) -> date:
    day = find_day(text)
    if day is None:
        raise HTTPException(404, "must be a day such as 2026-11-14")
    return day


def client_address(request: Request) -> str:
    """The address that limits count; empty where the socket has none."""
    return "" if request.client is None else request.client.host


def zone_param(request: Request, views: ZoneViews) -> ZoneView:
    """The zone that the path names."""
    name = request.path_params["zone"]
    view = views.get(name)
    if view is None and not is_zone_name(name):
        raise HTTPException(404, f"no zone has this name: it {ZONE_NAME_RULE}")
    if view is None:
        raise HTTPException(404, "there is no such zone here; /zones lists them")
    return view
