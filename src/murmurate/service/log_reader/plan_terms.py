"""The terms of published plans: read when they are first needed, and the last ones kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress

from murmurate.errors import ChainError, MurmurateError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.service.log_reader.archive import Archive

MAX_TERMS_KEPT = 20_000


class PlanTerms:
    """Terms by the digest of their plan. Any thread may ask."""

    def __init__(self, archive: Archive, max_kept: int = MAX_TERMS_KEPT) -> None:
        self._archive, self._max_kept = archive, max_kept
        self._terms: OrderedDict[str, ReleaseTerms] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, plan: object) -> bool:
        return plan in self._terms

    def __len__(self) -> int:
        return len(self._terms)

    def get(self, plan: str) -> ReleaseTerms:
        """The terms of a plan. Raises ChainError where the log does not have it, or it is no plan."""
        terms = self._terms.get(plan)
        if terms is None:
            self.load([plan])
            terms = self._terms.get(plan)
        if terms is None:
            raise ChainError("plan", plan, "is not in the log, or is no plan")
        return terms

    def load(self, plans: Iterable[str]) -> None:
        """Read the terms of these plans, as far as the log has them."""
        missing = [plan for plan in dict.fromkeys(plans) if plan not in self._terms]
        if not missing:
            return
        for plan, text in self._archive.read_documents(missing).items():
            with suppress(MurmurateError):
                self.put(plan, ReleaseTerms.from_json(text))

    def put(self, plan: str, terms: ReleaseTerms) -> None:
        """Keep the terms of a plan."""
        with self._lock:
            self._terms[plan] = terms
            while len(self._terms) > self._max_kept:
                self._terms.popitem(last=False)
