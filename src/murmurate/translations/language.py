"""The languages of pages and terminal: texts in `*.toml` next to this file, and which one a browser asks for.

A text has `{placeholders}`. Those of the tables `promise`, `basis`, `limits` and `attention` are plain; the others
may be HTML.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

_MAX_HEADER_LENGTH = 200  # [characters] of Accept-Language that are read
_DEFAULT_CODE = "en"


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """The texts of one language, by table and key: `zone.title`. Numbers are written as in a country."""

    code: str  # ISO 639-1
    texts: Mapping[str, str]
    country: str | None = None  # ISO 3166-1

    def in_country(self, country: str | None) -> Language:
        return replace(self, country=country)

    def plain(self, key: str, /, **values: object) -> str:
        """Return a text that is not HTML, such as a name, a date or a promise."""
        return self.texts[key].format(**values)

    def find(self, key: str) -> str | None:
        return self.texts.get(key)

    def decimal(self, digits: str) -> str:
        """Return a number that was written with a point as the language writes it.

        >>> GERMAN.decimal("8.120"), GERMAN.in_country("CH").decimal("8.120"), ENGLISH.decimal("8.120")
        ('8,120', '8.120', '8.120')
        """
        return digits.replace(".", self._mark("decimal"))

    def whole(self, number: int) -> str:
        """Return a whole number in groups of three digits.

        >>> GERMAN.whole(12_345), GERMAN.in_country("CH").whole(12_345), ENGLISH.whole(801)
        ('12.345', '12’345', '801')
        """
        return f"{number:,}".replace(",", self._mark("thousands"))

    def _mark(self, name: str) -> str:
        return self.texts.get(f"number.{name}_{self.country}", self.texts[f"number.{name}"])


def _load_language(code: str) -> Language:
    text = files("murmurate.translations").joinpath(f"{code}.toml").read_text("utf-8")
    tables = tomllib.loads(text)
    flat = {f"{table}.{key}": value for table, entries in tables.items() for key, value in entries.items()}
    return Language(code, MappingProxyType(flat))


ENGLISH = _load_language("en")
GERMAN = _load_language("de")
LANGUAGES: Mapping[str, Language] = {language.code: language for language in (ENGLISH, GERMAN)}


@lru_cache(maxsize=1024)
def preferred_language(accept_language: str) -> Language:
    """Return the language that a browser's `Accept-Language` ranks first of those that there are.

    >>> [preferred_language(header).code for header in ("de-CH, en;q=0.8", "fr, en;q=0.5, de;q=0.7", "", "*", "de;q=0")]
    ['de', 'de', 'en', 'en', 'en']
    """
    best, best_weight = LANGUAGES[_DEFAULT_CODE], 0.0
    for entry in accept_language[:_MAX_HEADER_LENGTH].split(","):
        name, _, parameters = entry.strip().partition(";")
        found = LANGUAGES.get(name.strip().lower().partition("-")[0])
        parameter, _, value = parameters.strip().partition("=")
        digits, is_weight = value.strip(), parameter.strip() == "q"
        is_number = digits.isascii() and digits.replace(".", "", 1).isdecimal()
        weight = 1.0 if not parameter else float(digits) if is_weight and is_number else 0.0
        if found is not None and weight > best_weight:
            best, best_weight = found, weight
    return best
