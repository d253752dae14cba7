"""The plan of a zone for people: what is published, what that can reveal, what it costs. Made to be printed.

This module computes what is shown; `web/templates/plan.html` holds the markup, `translations` the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from murmurate.planning.release_terms import PlannedHouseholds, ReleaseTerms
from murmurate.privacy.promise import MomentPromise
from murmurate.service.log_reader.zone_view import Price, PriceKind, ZoneView
from murmurate.service.public_api.pages.formatting import PriceFormat, format_about, format_day, local_datetime
from murmurate.service.public_api.pages.language import ENGLISH, Language
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.public_api.pages.page_values import page_values
from murmurate.service.public_api.pages.promise_text import (
    format_length,
    promise_rows,
    promise_sentences,
    stated_promises,
)
from murmurate.service.web.html import render_page


@dataclass(frozen=True, slots=True)
class HouseholdsRow:
    """A line of the table of households."""

    kind: str
    count: str
    bound: str
    protection: str  # key of its words


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseCost:
    """What the noise does to demand and price, 95 times in 100, in the interval in which it does most."""

    reach: str  # [kWh]
    price: str | None  # by which a price moves at most; none: the tariff falls somewhere
    low: str  # the range of expected prices
    high: str
    is_predicted: bool


def plan_page(view: ZoneView, now_s: float, base_url: str, opening_key: str, language: Language = ENGLISH) -> str:
    """Return the page of the plan that is in force. It is the same at all moments of an interval."""
    terms, unit = view.terms, PriceFormat.of_zone(view, language)
    language = unit.language
    begin = local_datetime(view, view.start_s(view.interval_at(now_s)))
    moment = language.plain("date.moment", day=format_day(begin.date(), language), clock=f"{begin:%H:%M}")
    return render_page(
        "plan.html",
        **page_values(view, base_url, opening_key, language),
        unit=unit.unit,
        digest=view.plan_digest,
        moment=moment,
        length=format_length(view.interval_s, language),
        lead=format_length(view.lead_intervals * view.interval_s, language),
        sentences=promise_sentences(terms, language),
        promises=promise_rows(terms, language),
        has_forever=any(isinstance(one.promise, MomentPromise) for one in stated_promises(terms)),
        households=[_households_row(kind, unit) for kind in terms.households],
        noise=_noise_cost(terms, unit),
        key_groups=[opening_key[at : at + 8] for at in range(0, len(opening_key), 8)],
    )


def _households_row(kind: PlannedHouseholds, unit: PriceFormat) -> HouseholdsRow:
    protection = "secret" if not kind.public_share else "public" if kind.public_share == 1 else "partly"
    bound = unit.decimal(format_about(Fraction(kind.bound_wh, 1000)))
    return HouseholdsRow(kind.kind, unit.language.whole(kind.count), f"{bound} kWh", protection)


def _noise_cost(terms: ReleaseTerms, unit: PriceFormat) -> NoiseCost:
    noise = zip(terms.scale_wh.tolist(), terms.core_wh.tolist(), strict=True)
    reach_wh = max(half_width_wh(terms.distribution, scale, core) for scale, core in noise)
    ticks = terms.forecast_ticks
    prices = [
        Price(
            n, PriceKind.MEASURED, int(ticks[n]), terms.curve.tick, float(terms.scale_wh[n]), 0.0, int(terms.core_wh[n])
        )
        for n in range(len(ticks))
    ]
    band = noise_band(terms, prices)
    own = {n: float(price.value or 0.0) for n, price in enumerate(prices)}
    moved = max((max(own[n] - low, high - own[n]) for n, (low, high) in band.items()), default=None)
    return NoiseCost(
        reach=unit.decimal(format_about(Fraction(reach_wh, 1000))),
        price=None if moved is None else unit.about(Fraction(moved)),
        low=unit.about(int(ticks.min()) * terms.curve.tick),
        high=unit.about(int(ticks.max()) * terms.curve.tick),
        is_predicted=terms.prediction is not None,
    )
