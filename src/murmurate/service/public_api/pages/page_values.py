"""What the templates of all public pages share: texts, languages, addresses."""

from __future__ import annotations

from urllib.parse import quote

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.pages.language import LANGUAGES, Language


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


def language_values(language: Language) -> dict[str, object]:
    others = [other for other in LANGUAGES.values() if other.code != language.code]
    return {"t": language.text, "lang": language.code, "other_languages": others}
