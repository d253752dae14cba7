"""The operator's page: what was released, what it cost, what needs a person. Never a demand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from math import inf

from murmurate.publication.record import Kind
from murmurate.service.access import Client, scope_of
from murmurate.service.board.page import cost_words
from murmurate.service.board.shell import document, section, table
from murmurate.service.operator.facts import OperatorFacts, ZoneFacts

_ZONES = ("Zone", "State", "Decided until", "Measured", "Forecast", "No price", "Cost so far", "Plan", "Key")
_MOST_SCOPES = 5
_MOST_REASONS = 100
_STALE_S = 10.0


def operator_page(facts: OperatorFacts) -> str:
    """The page of one moment."""
    body = (
        f'<h1>Operator</h1>\n<p class="soft">{_moment(facts.now_s)}{_stale(facts.stale_s)}</p>\n{_tiles(facts)}'
        f"{_reasons(facts)}{_zones(facts)}{_clients(facts)}"
        "<footer>This page knows no demand and no reading. Readings are counted since this door was opened; what is "
        "said about zones comes from the public log.</footer>\n"
    )
    return document("murmurate: operator", body, top='<a href="/metrics">Metrics</a>', wide=True)


def span_words(seconds: float) -> str:
    """
    >>> span_words(42.4), span_words(238), span_words(7300), span_words(200_000)
    ('42 s', '4 min', '2 h', '2 days')
    """
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 36 * 3600 else f"{seconds / 86_400:.0f} days"


def _moment(at_s: float) -> str:
    return f"{datetime.fromtimestamp(int(at_s), UTC):%Y-%m-%d %H:%M} UTC"


def _until(at_s: float, now_s: float) -> str:
    """The hour alone where the day goes without saying."""
    return f"{_moment(at_s)[11:]}" if abs(at_s - now_s) < 43_200 else _moment(at_s)


def _stale(seconds: float) -> str:
    if seconds == inf:
        return '. <span class="bad">The log is not read yet.</span>'
    return "" if seconds < _STALE_S else f'. <span class="bad">The log was last read {span_words(seconds)} ago.</span>'


def _tiles(facts: OperatorFacts) -> str:
    fine = facts.zone_count == facts.fine_count
    due = facts.next_deadline_s
    said = {} if facts.beat is None else facts.beat[1]
    tiles = [
        ("Zones up to date", f"{facts.fine_count:,} of {facts.zone_count:,}", "" if fine else "bad"),
        ("Last release", "none yet" if facts.beat is None else f"{span_words(facts.beat[0])} ago", ""),
        ("Next deadline", "none" if due is None else f"in {span_words(due - facts.now_s)}", ""),
        ("Set aside", _whole(said, "aside"), "bad" if said.get("aside") else ""),
        ("Not finished in time", _whole(said, "unfinished"), "bad" if said.get("unfinished") else ""),
    ]
    words = {"accepted": "Readings accepted", "late": "Readings late", "refused": "Readings refused"}
    tiles += [(words[fate], f"{facts.counts.get(fate, 0):,}", "") for fate in words]
    return '<div class="tiles">\n' + "".join(map(_tile, tiles)) + "</div>\n"


def _tile(tile: tuple[str, str, str]) -> str:
    name, value, style = tile
    return f'<div class="tile"><span>{name}</span><b class="value {style}">{escape(value)}</b></div>\n'


def _whole(said: Mapping[str, object], key: str) -> str:
    number = said.get(key, 0)
    return f"{number:,}" if isinstance(number, int) else "unknown"


def _reasons(facts: OperatorFacts) -> str:
    """What needs a person, by zone; the road names the first few."""
    why = {} if facts.beat is None else facts.beat[1].get("why")
    reasons = {str(zone): str(reason) for zone, reason in why.items()} if isinstance(why, Mapping) else {}
    reasons |= facts.broken
    if not reasons:
        return ""
    rows = [(f"<b>{escape(zone)}</b>", escape(reason)) for zone, reason in sorted(reasons.items())[:_MOST_REASONS]]
    return section("Needs a person", table(("Zone", "Why"), rows, "links"))


def _zones(facts: OperatorFacts) -> str:
    if not facts.zones:
        return section("Zones", "<p>No zone is open yet: murmurate open plan.json opens one.</p>\n")
    more = facts.zone_count - len(facts.zones)
    rest = f'<p class="soft">And {more:,} zones more, all of them up to date or later in the alphabet.</p>\n'
    words = '<p class="soft">Kinds are of the prices of the last 24 hours: what is measured met its deadline.</p>\n'
    rows = [_zone(zone, facts.now_s) for zone in facts.zones]
    return section("Zones", words, table(_ZONES, rows, "stack", numbers=(3, 4, 5)), rest if more > 0 else "")


def _zone(zone: ZoneFacts, now_s: float) -> tuple[str, ...]:
    name = escape(zone.zone) if not zone.title else f"{escape(zone.title)} <small>{escape(zone.zone)}</small>"
    if zone.is_broken:
        state = '<span class="bad">log broken</span>'
    elif zone.behind:
        state = f'<span class="bad">{zone.behind:,} behind</span>'
    else:
        state = '<span class="good">up to date</span>'
    counts = (f"{zone.kinds.get(kind, 0):,}" for kind in (Kind.MEASURED, Kind.FORECAST, Kind.WITHHELD))
    cost = cost_words(zone.epsilon_micro, zone.rho_micro)
    digests = (f'<code title="{escape(text)}">{escape(text[:8])}</code>' for text in (zone.plan, zone.key))
    return f"<b>{name}</b>", state, _until(zone.decided_end_s, now_s), *counts, cost, *digests


def _clients(facts: OperatorFacts) -> str:
    rows = [(f"<b>{escape(client.id)}</b>", _may(client)) for client in facts.clients]
    none = "<p>Nobody may bring readings by HTTP yet: murmurate client adds one.</p>\n"
    return section("Clients", table(("Name", "May"), rows, "links") if rows else none)


def _may(client: Client) -> str:
    """Scopes, never secrets."""
    some = sorted(client.zones)[:_MOST_SCOPES]
    more = len(client.zones) - len(some)
    words = [f"<code>{escape(scope_of(some))}</code>"] if some else []
    words += [f"and {more:,} zones more"] if more else []
    words += ["see this page and the metrics"] if client.operator else []
    return "; ".join(words) or "nothing"
