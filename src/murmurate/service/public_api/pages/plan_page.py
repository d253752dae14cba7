"""The plan of a zone for people: what is published, what that can reveal, what it costs. Made to be printed.

This module computes what is shown; `web/templates/plan.html` holds the markup, `translations` the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from murmurate.planning.promise_text import format_length
from murmurate.planning.release_terms import PlannedHouseholds
from murmurate.service.log_reader.zone_view import Price, PriceKind, ZoneView
from murmurate.service.public_api.pages.formatting import PriceFormat, format_about, format_day, local_datetime
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.public_api.pages.page_values import page_values, promise_text
from murmurate.service.web.html import render_page
from murmurate.translations.language import ENGLISH, Language


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
    price: str | None  # by which a price moves at most; none: not known, or the tariff falls somewhere
    low: str  # the range of expected prices
    high: str


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
        promise=promise_text(view, now_s, language),
        is_predicted=terms.prediction is not None,
        cost_so_far=_cost_so_far(view, unit),
        households=[_households_row(kind, unit) for kind in terms.households],
        noise=_noise_cost(view, now_s, unit),
        key_groups=[opening_key[at : at + 8] for at in range(0, len(opening_key), 8)],
    )


def _households_row(kind: PlannedHouseholds, unit: PriceFormat) -> HouseholdsRow:
    protection = "secret" if not kind.public_share else "public" if kind.public_share == 1 else "partly"
    bound = unit.decimal(format_about(Fraction(kind.bound_wh, 1000)))
    return HouseholdsRow(kind.kind, unit.language.whole(kind.count), f"{bound} kWh", protection)


def _cost_so_far(view: ZoneView, unit: PriceFormat) -> str | None:
    """Sums of the costs of all releases; None: nothing was released yet."""
    micro = {"ε": view.total_epsilon_micro, "ρ": view.total_rho_micro}
    return ", ".join(f"{name} = {unit.decimal(f'{value / 1e6:.6f}')}" for name, value in micro.items() if value) or None


def _noise_cost(view: ZoneView, now_s: float, unit: PriceFormat) -> NoiseCost:
    terms, slots = view.terms, len(view.terms.scale_wh)
    midnight = view.interval_at(now_s) // slots * slots + view.lead_intervals
    noise = zip(terms.scale_wh.tolist(), terms.core_wh.tolist(), strict=True)
    reach_wh = max(half_width_wh(terms.distribution, scale, core) for scale, core in noise)
    ticks = terms.forecast_ticks
    prices = [
        Price(
            midnight + n,
            PriceKind.MEASURED,
            int(ticks[n]),
            terms.curve.tick,
            float(terms.scale_wh[n]),
            0.0,
            int(terms.core_wh[n]),
        )
        for n in range(len(ticks))
    ]
    band = noise_band(terms, prices, lead=view.lead_intervals, since=0)
    own = {price.interval: float(price.value or 0.0) for price in prices}
    moved = max((max(own[n] - low, high - own[n]) for n, (low, high) in band.items()), default=None)
    return NoiseCost(
        reach=unit.decimal(format_about(Fraction(reach_wh, 1000))),
        price=None if moved is None else unit.about(Fraction(moved)),
        low=unit.about(int(ticks.min()) * terms.curve.tick),
        high=unit.about(int(ticks.max()) * terms.curve.tick),
    )
