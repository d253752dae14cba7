"""HTML pages: one Jinja environment that escapes every value, the style sheet, and the security headers."""

from __future__ import annotations

from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

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


def render_page(template: str, **values: object) -> str:
    """Return a page. Every value is text: a character that means something in HTML is escaped."""
    return _ENVIRONMENT.get_template(template).render(**values)
