"""Which households the noise of a plan hides, by kind and bound.

The noise of an interval is measured by the kinds whose hours are not public then, not by the largest bound of the plan.
So a household is hidden if the plan has a kind with its bound, its public hours and its habits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from murmurate.quantities import UNPROTECTED

_REMEDY = "lower its bound_wh, or change to a plan with such households"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenHouseholds:
    """The largest bound of a household that a plan hides, at every interval of the day [Wh]."""

    by_kind: Mapping[str, int]  # of a household whose kind is said
    unnamed_wh: int  # of a protected household whose kind is not said: 0 where none is hidden
    public_wh: int  # of a household whose occupancy is public always: 0 where the plan has none

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> HiddenHouseholds:
        """Read from the document of a plan.

        A household whose kind is not said may be of any kind that is not public always. Kinds that differ in their
        bound alone are one class: the largest of them hides the others. So the smallest class decides.
        """
        by_kind: dict[str, int] = {}
        classes: dict[tuple[Any, ...], int] = {}
        public_wh = 0
        for kind in document["households"]:
            name, bound_wh = str(kind["name"]), int(kind["bound_wh"])
            by_kind[name] = min(bound_wh, by_kind.get(name, bound_wh))
            if all(kind["public"]):
                public_wh = max(bound_wh, public_wh)
                continue
            laws = None if document["calibration"] == "range" else kind["laws_sha256"]
            alike = (tuple(kind["public"]), kind["models_sha256"], laws)
            classes[alike] = max(bound_wh, classes.get(alike, 0))
        return cls(by_kind=by_kind, unnamed_wh=min(classes.values(), default=0), public_wh=public_wh)

    def refusal(self, bounds: Mapping[str, int] | None) -> str | None:
        """Why households with these bounds are not hidden; None where all are. See `curator.bounds`."""
        if not bounds:
            return "its household bounds are not known; gather it again under its meter table"
        return next((why for kind, wh in sorted(bounds.items()) if (why := self._refusal(kind, wh))), None)

    def _refusal(self, kind: str, bound_wh: int) -> str | None:
        if kind == UNPROTECTED:
            hidden_wh, who, remedy = self.public_wh, "that is not protected", _REMEDY
        elif not kind:
            hidden_wh, who, remedy = self.unnamed_wh, "without a kind", f"say its kind, {_REMEDY}"
        elif kind in self.by_kind:
            hidden_wh, who, remedy = self.by_kind[kind], f"of kind {kind!r}", _REMEDY
        else:
            known = ", ".join(map(repr, sorted(self.by_kind)))
            return f"has a household of kind {kind!r}; the kinds of its plan are {known}: say one of these"
        if bound_wh <= hidden_wh:
            return None
        return f"has a household {who} with bound_wh {bound_wh}; its plan hides up to {hidden_wh} there: {remedy}"
