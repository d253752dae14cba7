"""What the templates of all public pages share: texts, languages, addresses."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from markupsafe import Markup

from murmurate.planning.promise_text import EarlierPlan, PlanChanges, PromiseText, describe_promises
from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.pages.formatting import format_day, local_datetime
from murmurate.translations.language import LANGUAGES, Language


def zone_url(view: ZoneView, base_url: str) -> str:
    return f"{base_url}/zones/{quote(view.zone, safe='')}"


def page_values(view: ZoneView, base_url: str, opening_key: str, language: Language) -> dict[str, object]:
    """What the templates of a zone's pages share."""
    return {
        **language_values(language),
        "base_url": base_url,
        "zone": view.zone,
        "zone_url": zone_url(view, base_url),
        "title": view.display.title or view.zone,
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


def language_values(language: Language) -> dict[str, object]:
    others = [other for other in LANGUAGES.values() if other.code != language.code]
    return {"t": partial(html_text, language), "lang": language.code, "other_languages": others}


def html_text(language: Language, key: str, /, **values: object) -> Markup:
    """Return a text as markup, with escaped values in the place of its placeholders."""
    text = Markup(language.texts[key])  # noqa: S704  the files are part of the program
    return text.format(**values) if values else text
