"""Which households the noise of a plan hides, by kind and bound.

The noise of an interval is calibrated to the kinds whose occupancy is secret in that interval. The largest bound of the
plan is irrelevant. So a household is hidden if the plan has a kind with its bound, its public hours and its habits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from murmurate.types import UNPROTECTED_KIND

_REMEDY = "lower its bound_wh, or change to a plan with such households"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenHouseholds:
    """The largest bound of a household that a plan hides, at every interval of the day [Wh]."""

    by_kind: Mapping[str, int]  # for a household whose kind is known
    unknown_kind_wh: int  # for a protected household whose kind is not known; 0 if the plan hides none
    public_wh: int  # for a household whose occupancy is always public; 0 if the plan has none

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HiddenHouseholds:
        """Compute the bounds from the document of a plan.

        A household whose kind is not known may be of any kind that is not always public. Kinds that differ only in
        their bound form one class, and the largest bound of a class hides the others. The bound for an unknown kind is
        the smallest over the classes.
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
            kind_class = (tuple(kind["public"]), kind["models_sha256"])
            classes[kind_class] = max(bound_wh, classes.get(kind_class, 0))
        return cls(by_kind=by_kind, unknown_kind_wh=min(classes.values(), default=0), public_wh=public_wh)

    def not_hidden_reason(self, bounds: Mapping[str, int] | None) -> str | None:
        """Return why households with these bounds are not hidden, or None if all are. See `household_bounds`."""
        if not bounds:
            return "its household bounds are not known; aggregate it again under its meter table"
        return next(
            (reason for kind, wh in sorted(bounds.items()) if (reason := self._kind_not_hidden_reason(kind, wh))), None
        )

    def _kind_not_hidden_reason(self, kind: str, bound_wh: int) -> str | None:
        if kind == UNPROTECTED_KIND:
            hidden_wh, description, remedy = self.public_wh, "that is not protected", _REMEDY
        elif not kind:
            hidden_wh, description, remedy = self.unknown_kind_wh, "without a kind", f"state its kind, {_REMEDY}"
        elif kind in self.by_kind:
            hidden_wh, description, remedy = self.by_kind[kind], f"of kind {kind!r}", _REMEDY
        else:
            plan_kinds = ", ".join(map(repr, sorted(self.by_kind)))
            return f"has a household of kind {kind!r}; the kinds of its plan are {plan_kinds}: state one of these"
        if bound_wh <= hidden_wh:
            return None
        return (
            f"has a household {description} with bound_wh {bound_wh}; its plan hides up to {hidden_wh} there: {remedy}"
        )
