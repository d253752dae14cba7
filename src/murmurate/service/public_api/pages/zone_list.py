"""The list of zones with their prices now. `web/templates/zones.html` holds the markup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.pages.formatting import KIND_WORDS, PriceFormat, TimeLabel, local_datetime
from murmurate.service.public_api.pages.page_values import language_values, zone_url
from murmurate.service.web.html import render_page
from murmurate.translations.language import ENGLISH, Language

MAX_LISTED_ZONES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneListing:
    """A line of the list of zones."""

    title: str
    url: str
    unit: str
    price: str | None  # none: there is no price now
    is_closed: bool
    kind: str
    end: TimeLabel


def zones_page(
    views: Iterable[ZoneView],
    now_s: float,
    base_url: str,
    more_zones: int = 0,
    language: Language = ENGLISH,
    after: str = "",
) -> str:
    """Return a list of zones with their prices now, those after `after`. `more_zones` come after it."""
    views = list(views)
    rows = [_zone_row(view, view.interval_at(now_s), base_url, language) for view in views]
    return render_page(
        "zones.html",
        **language_values(language),
        base_url=base_url,
        zones=rows,
        after=f"after={quote(after, safe='')}&" if after else "",
        more_zones=language.whole(more_zones) if more_zones else None,
        next_after=quote(views[-1].zone, safe="") if more_zones else None,
    )


def _zone_row(view: ZoneView, at: int, base_url: str, language: Language) -> ZoneListing:
    price, end_s, unit = view.prices.get(at), view.start_s(at + 1), PriceFormat.of_zone(view, language)
    return ZoneListing(
        title=view.display.title or view.zone,
        url=zone_url(view, base_url),
        unit=unit.short_unit,
        price=unit.exact(price),
        is_closed=view.closed is not None,
        kind="" if price is None else KIND_WORDS[price.kind],
        end=TimeLabel(end_s, local_datetime(view, end_s).strftime("%H:%M")),
    )
