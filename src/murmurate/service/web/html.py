"""HTML pages: one Jinja environment that escapes every value, the style sheet, and the security headers."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request

from murmurate.translations.language import LANGUAGES, Language, preferred_language

HTML_MEDIA_TYPE = "text/html; charset=utf-8"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
HTML_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
}
_LOGO_CIRCLES = (  # cx, cy, r in a square of 24
    (5, 15, 1.5),
    (9, 10, 2),
    (13.5, 13, 1.3),
    (15, 7, 1.8),
    (19.5, 10.5, 1.2),
    (10.5, 17.5, 1.1),
    (20, 5, 1),
)


_ENVIRONMENT = Environment(
    loader=PackageLoader("murmurate.service.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    auto_reload=False,
)
_ENVIRONMENT.globals |= {
    "style_sheet": files("murmurate.service.web").joinpath("style.css").read_text(encoding="utf-8"),
    "logo_circles": _LOGO_CIRCLES,
    "icon_address": f"data:image/svg+xml,{quote(_ENVIRONMENT.get_template('icon.svg').render(circles=_LOGO_CIRCLES))}",
}


def render_page(template: str, language: Language, **values: object) -> str:
    """Return a page. Every value is text: a character that means something in HTML is escaped."""
    others = [other for other in LANGUAGES.values() if other.code != language.code]
    own = {"t": partial(html_text, language), "lang": language.code, "other_languages": others}
    return _ENVIRONMENT.get_template(template).render(own | values)


def html_text(language: Language, key: str, /, **values: object) -> Markup:
    """Return a text as markup, with escaped values in the place of its placeholders."""
    text = Markup(language.texts[key])  # noqa: S704  the files are part of the program
    return text.format(**values) if values else text


def requested_language(request: Request) -> Language:
    """Return the language that the address names, otherwise the one that the browser prefers."""
    code = request.query_params.get("lang")
    if code is None:
        return preferred_language(request.headers.get("accept-language", ""))
    if code not in LANGUAGES:
        raise HTTPException(400, f"lang must be one of {', '.join(LANGUAGES)}")
    return LANGUAGES[code]
