"""The page of a zone for whoever lives in it: what a kilowatt-hour costs, what that tells, and how to check it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil
from urllib.parse import quote

from murmurate.publication.record import Kind
from murmurate.service.board.band import band, reach_wh
from murmurate.service.board.curve import curve
from murmurate.service.board.grid import day_of, intervals_of
from murmurate.service.board.localtime import clock_of, day_words, local, money, time_tag
from murmurate.service.board.openadr_door import BASE
from murmurate.service.board.shell import bullets, document, facts, section, table
from murmurate.service.board.view import Price, ZoneView

MOST_ZONES = 1000
KINDS = {
    Kind.MEASURED: ("Measured", "From what the whole zone used, with noise added."),
    Kind.FORECAST: ("Forecast", "No reading was used: this price comes from the public plan."),
    Kind.WITHHELD: ("No price", "It would have come too late. Your contract says what is paid instead."),
}
PROMISE = (
    (
        "Prices follow what the whole zone uses. Somebody who watches them might try to find out when you are home. So "
        "before a price is made, a random amount is added to the demand of the zone, so large that the share of one "
        "household is lost in it."
    ),
    (
        "Somebody who watches can still become surer than before. The plan says how much at most, and over which "
        "stretch of time: one price, any day, or all of them. That holds even against somebody who knows what all your "
        "neighbours used. The plan was proven before its first price, and it is public."
    ),
    (
        "A promise about any one moment is for somebody who knows your habits already. Prices may teach your habits "
        "over months: whether you are usually home by day, say. Given your habits, any one moment stays within the "
        "promise."
    ),
)
LIMITS = (
    "The operator sees every reading. The promise is about what is published, not about the operator.",
    "Bills, apps and the radio of the meter are other channels. Noise on the price does nothing for them.",
    "Households that move together, or that have a meter in two zones, are protected less than one alone.",
    "Hours that the plan calls public, such as those on the door of a shop, are not hidden.",
    "Habits, beyond what the plan says about stretches of time: prices teach them over months.",
    (
        "Where the plan promises something about a single moment, that is as right as its model of when people come "
        "and go. It does not cover load that answers to who was home earlier, such as a boiler that reheats."
    ),
    "Who knows other hours of yours, because they saw you leave, may learn more about the hours between.",
    "What is true of people in general stays visible: that most are home in the evening, that it is cold.",
)


def zone_page(view: ZoneView, now_s: float, base_url: str) -> str:
    """The page of one zone. It is the same at all moments of an interval, until the log moves."""
    at = view.at(now_s)
    title = view.sign.title or view.zone
    named = "" if title == view.zone else f'<p class="soft">Zone {escape(view.zone)}</p>\n'
    body = (
        f"<h1>{escape(title)}</h1>\n{named}{_now(view, at)}{_today(view, at)}{_promise(view, at, base_url)}"
        f"{section('What is not promised', bullets(LIMITS))}{_check(view, base_url)}{_devices(view, base_url)}"
        "<footer>Times are local times of the zone. All that this page says is in the public log; it sets no cookies, "
        "runs no scripts and loads nothing from elsewhere.</footer>\n"
    )
    return document(f"{title}: electricity price now", body, top=f'<a href="{escape(base_url)}/">All zones</a>')


def zones_page(views: Sequence[ZoneView], now_s: float, base_url: str) -> str:
    """All zones and what they pay now."""
    names = ("Zone", "Price now", "Until")
    rows = [_zone_row(view, view.at(now_s), base_url) for view in views[:MOST_ZONES]]
    listed = table(names, rows, "zones", numbers=(1,)) if rows else "<p>No zone is open yet.</p>\n"
    more = len(views) - MOST_ZONES
    all_zones = f'<a href="{escape(base_url)}/zones">/zones</a>'
    rest = f"<p>And {more:,} zones more: {all_zones} lists all of them.</p>\n" if more > 0 else ""
    body = (
        "<h1>Electricity prices now</h1>\n"
        '<p class="soft">Real-time rates that do not tell who is home. Choose a zone for its day, for what is promised '
        f"to its residents, and for how to check that.</p>\n{listed}{rest}"
    )
    return document("Electricity prices now", body)


def zone_url(view: ZoneView, base_url: str) -> str:
    return f"{base_url}/zones/{quote(view.zone, safe='')}"


def _zone_row(view: ZoneView, at: int, base_url: str) -> tuple[str, ...]:
    link = f'<a href="{escape(zone_url(view, base_url))}">{escape(view.sign.title or view.zone)}</a>'
    price = view.prices.get(at)
    if price is None or price.ticks is None:
        return link, '<span class="kind withheld">No price</span>', ""
    end = local(view, view.begin_s(at + 1)).strftime("%H:%M")
    kind = f'<br><small class="kind {price.kind.value}">{KINDS[price.kind][0]}</small>'
    cost = f"{money(price.ticks, price.tick)} {escape(view.currency)}/kWh{kind}"
    return link, cost, time_tag(view.begin_s(at + 1), end)


def _now(view: ZoneView, at: int) -> str:
    name = clock_of(view, range(at, at + 2))
    begin, end = (time_tag(view.begin_s(n), name(n)) for n in (at, at + 1))
    price = view.prices.get(at)
    big = "No price" if price is None or price.ticks is None else _amount(view, price.ticks, price)
    kind = f"<p>{_why_none(view, at)}</p>\n" if price is None else f"<p>{_kind(price)}</p>\n"
    return (
        f'<section class="now" aria-label="Price now">\n<p class="big">{big}</p>\n'
        f'<p class="when">Now, from {begin} to {end}. {_next(view, at, end)}</p>\n{kind}</section>\n'
    )


def _amount(view: ZoneView, ticks: int, price: Price) -> str:
    return f"{money(ticks, price.tick)}<small>{escape(view.currency)} per kWh</small>"


def _kind(price: Price) -> str:
    name, words = KINDS[price.kind]
    return f'<span class="kind {price.kind.value}">{name}.</span> <span class="soft">{words}</span>'


def _why_none(view: ZoneView, at: int) -> str:
    if at < view.first:
        begins = local(view, view.begin_s(view.first))
        return f"The zone's first price is paid from {begins:%H:%M} on {day_words(begins.date())}."
    return "The public log has no word about this interval yet."


def _next(view: ZoneView, at: int, when: str) -> str:
    price = view.prices.get(at + 1)
    if price is None:
        return f"After {when} not decided yet; the plan expects about {view.expected(at + 1):.3g}."
    if price.ticks is None:
        return f"After {when} no price."
    return f'Then <b class="number">{money(price.ticks, price.tick)}</b>.'


def _today(view: ZoneView, at: int) -> str:
    day = day_of(view, at)
    intervals = intervals_of(view, day)
    known = [view.prices[n] for n in intervals if n in view.prices]
    edges = {} if view.terms is None else band(view.terms, known)
    name = clock_of(view, intervals)
    drawing = curve(view, intervals, at, edges, lambda n: local(view, view.begin_s(n)).strftime("%H:%M"))
    rows = [(name(price.interval), *_price_cells(price)) for price in known]
    listed = table(("From", f"{view.currency} per kWh", "Kind"), rows, "day", numbers=(1,))
    return section(
        "Today",
        f'<p class="soft">{day_words(day)}, {escape(view.sign.timezone.key)}</p>\n',
        f"<figure>\n{drawing}<figcaption>{_legend(known, has_band=bool(edges))}</figcaption>\n</figure>\n",
        f"<details>\n<summary>All prices of the day, as a table</summary>\n{listed}</details>\n",
    )


def _price_cells(price: Price) -> tuple[str, str]:
    cost = "none" if price.ticks is None else money(price.ticks, price.tick)
    return cost, f'<span class="kind {price.kind.value}">{KINDS[price.kind][0]}</span>'


def _legend(known: list[Price], *, has_band: bool) -> str:
    kinds = {price.kind for price in known}
    keys = [("final", "Final price.", "It never changes again."), ("planned", "Expected.", "The plan; nobody pays it.")]
    if has_band:
        keys.append(("band", "Noise.", "Without it the price would lie in here, 95 times in 100."))
    if Kind.FORECAST in kinds:
        keys.append(("unread", "Forecast.", "No reading was used for this price."))
    if Kind.WITHHELD in kinds:
        keys.append(("gap", "No price.", "It would have come too late."))
    rows = (f'<li><i class="key {style}"></i><span><b>{name}</b> {words}</span></li>\n' for style, name, words in keys)
    return f'<ul class="legend">\n{"".join(rows)}</ul>\n'


def _promise(view: ZoneView, at: int, base_url: str) -> str:
    words = "".join(f"<p>{text}</p>\n" for text in PROMISE)
    plan = f"{base_url}/plans/{view.plan}.json"
    rows = [
        *_promised(view),
        ("The promise in full", f'<a href="{escape(plan)}">plan {escape(view.plan[:12])}…</a>'),
        ("Noise now", _noise(view, at)),
        ("Cost so far", f"{cost_words(view.total_epsilon_micro, view.total_rho_micro)}. {_COST}"),
    ]
    return section("What is promised", words, facts(rows))


def _promised(view: ZoneView) -> list[tuple[str, str]]:
    """The promises of the plan, and what its prices may teach about habits."""
    if view.terms is None:
        return []
    rows = [("Promised", "; ".join(escape(words) for words in view.terms.promises) + ".")]
    if view.terms.habits:
        lengths = {1: "a day", 7: "a week", 365: "a year"}
        taught = ", ".join(
            f"{ceil(100 * each.home_by_day)} after {lengths.get(each.days, f'{each.days} days')}"
            for each in view.terms.habits
        )
        words = "Of 100 guesses from prices whether you are home or away from 08:00 to 16:00, day by day, at most"
        rows.append(("Habits", f"{words} {taught} are right. 50 is guessing."))
    return rows


_COST = (
    "That is the sum of the most that each price since the beginning may tell about one household. It grows with every "
    "measured price; the promise bounds the stretch of time that the plan names."
)


def cost_words(epsilon_micro: int, rho_micro: int) -> str:
    """
    >>> cost_words(1_250_000, 0), cost_words(0, 40), cost_words(0, 0)
    ('ε = 1.250000', 'ρ = 0.000040', 'nothing')
    """
    micro = {"ε": epsilon_micro, "ρ": rho_micro}
    return " and ".join(f"{name} = {value / 1e6:,.6f}" for name, value in micro.items() if value) or "nothing"


def _noise(view: ZoneView, at: int) -> str:
    price = view.prices.get(at)
    if view.terms is None:
        return "See the plan."
    if price is not None and price.scale_wh is None:
        return "None: this price uses no reading."
    slot = view.terms.slot(at - view.lead)
    scale_wh = float(view.terms.scale_wh[slot]) if price is None else price.scale_wh or 0.0
    core_wh = int(view.terms.core_wh[slot]) if price is None else price.core_wh
    reach = reach_wh(view.terms.law, scale_wh, core_wh) / 1000
    return (
        f"{view.terms.law.value.capitalize()}, scale {scale_wh / 1000:,.3g} kWh: the demand of the zone is moved by at "
        f"most {reach:,.3g} kWh, 95 times in 100."
    )


def _check(view: ZoneView, base_url: str) -> str:
    command = f"murmurate verify {zone_url(view, base_url)}/log.jsonl --key {view.opening_key}"
    since = (
        "" if view.key == view.opening_key else f" Records are now signed by {escape(view.key[:8])}…, its successor."
    )
    return section(
        "Check it yourself",
        "<p>Every price is signed and chained to the one before. With the log alone, anybody can check that nothing "
        "was changed, that no interval was released twice, and that the plan keeps its promise:</p>\n",
        f"<pre><code>{escape(command)}</code></pre>\n",
        f"<p>The key begins with <code>{escape(view.opening_key[:8])}</code>. Compare it with the one that the "
        f"operator shows elsewhere, on paper or on a site of its own: a page cannot vouch for itself.{since}</p>\n",
        '<p class="soft">No check shows whether the demand was added up rightly, or whether the noise was drawn at '
        "random.</p>\n",
    )


def _devices(view: ZoneView, base_url: str) -> str:
    zone = zone_url(view, base_url)
    links = [
        ("Home Assistant, REST", f"{zone}/now"),
        ("evcc", f"{zone}/evcc"),
        ("OpenADR 3.1", f"{base_url}{BASE}/programs"),
        ("Live, server-sent events", f"{zone}/stream"),
        ("CSV, last week", f"{zone}/history.csv"),
        ("Parquet, last week", f"{zone}/history.parquet"),
        ("Public log", f"{zone}/log.jsonl"),
        ("OpenAPI", f"{base_url}/openapi.json"),
    ]
    if view.currency == "CHF":
        links.insert(3, ("VSE tariffs, v1", f"{zone}/vse/v1/tariffs"))
    rows = [(name, f'<a href="{escape(url)}"><code>{escape(url)}</code></a>') for name, url in links]
    return section("For devices", table(("Format", "Address"), rows, "links"))
