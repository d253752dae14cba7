"""The zone tables at hand, by digest. Each is parsed when a tile names it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from murmurate.errors import ChainError
from murmurate.public_log.canonical import compute_digest
from murmurate.public_log.zone_table import ZoneTable

_MAX_PARSED = 256


@dataclass(slots=True)
class TableStore:
    """Texts of zone tables, and the last ones that were parsed."""

    _texts: dict[str, str] = field(default_factory=dict)
    _parsed: OrderedDict[str, ZoneTable | str] = field(default_factory=OrderedDict)

    def add_document(self, text: str) -> None:
        self._texts[compute_digest(text)] = text

    def find_table(self, digest: str) -> ZoneTable | str:
        """Return the table with this digest, or why there is none."""
        if digest not in self._parsed:
            self._parsed[digest] = self._parse(digest)
            if len(self._parsed) > _MAX_PARSED:
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(digest)
        return self._parsed[digest]

    def _parse(self, digest: str) -> ZoneTable | str:
        if digest not in self._texts:
            return "is missing or was changed"
        try:
            return ZoneTable.from_json(self._texts[digest])
        except (ChainError, RecursionError, ValueError, OverflowError) as error:
            return str(error) if isinstance(error, ChainError) else "cannot be read"
