"""What a zone file says about occupancy models that were learned from a consented sample (`[learned.NAME]`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from murmurate.errors import ModelError, PrivacyError
from murmurate.habits.transition_counts import name_estimates
from murmurate.toml_reader import TomlReader
from murmurate.units import parse_fraction

_LEARNED_KEYS = {"epsilon", "households", "confidence", "bound", "proven"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedHabits:
    """An occupancy model that was learned, and what that cost each household of the sample."""

    name: str  # of the occupancy model
    bound: str  # name of the model that leaks at least as much as each model within the noise
    epsilon: Fraction  # spent by each household of the sample
    households: int  # of the sample
    confidence: float  # probability that the habits of the sample lie within the noise
    proven: bool  # whether the bound has a proof, or tests only

    def to_document(self) -> dict[str, Any]:
        """Return the entry of `plan.json`."""
        return {
            "name": self.name,
            "bound": self.bound,
            "epsilon": str(self.epsilon),
            "households": self.households,
            "confidence": self.confidence,
            "proven": self.proven,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LearnedHabits:
        """Return an entry of `plan.json`. Raises KeyError, TypeError or ValueError if it is none."""
        return cls(**{**document, "epsilon": Fraction(document["epsilon"])})


def read_learned_habits(reader: TomlReader, top: Mapping[str, Any]) -> tuple[LearnedHabits, ...]:
    """Read `[learned.NAME]` for each learned model, in the order of the file.

    Raises ZoneFileError if a kind of household uses an estimate, of any type of day, without the bound: an estimate
    alone is not covered.
    """
    return tuple(_read_one(reader, ("learned", name), top) for name in reader.get(top, (), "learned", dict, {}))


def _read_one(reader: TomlReader, path: tuple[str, str], top: Mapping[str, Any]) -> LearnedHabits:
    table = reader.read_table(path, _LEARNED_KEYS)
    with reader.locate_errors(path, "epsilon"):
        epsilon = parse_fraction(reader.require(table, path, "epsilon", (str, int, float)), "epsilon", PrivacyError)
        if epsilon <= 0:
            raise PrivacyError("epsilon", epsilon, "must be positive: what each household of the sample has spent")
    households = reader.require(table, path, "households", int)
    confidence = float(reader.require(table, path, "confidence", (int, float)))
    bound, proven = reader.require(table, path, "bound", str), reader.require(table, path, "proven", bool)
    with reader.locate_errors(path, "confidence"):
        if households < 1 or not 0 < confidence < 1:
            raise PrivacyError(
                "learned", f"{households}, {confidence}", "must have households and a confidence below 1"
            )
    with reader.locate_errors(path, "bound"):
        if bound == path[1] or bound not in top.get("occupancy", {}):
            raise ModelError("bound", repr(bound), "must be another occupancy model of the file")
        for kind in top["households"]:
            used = [kind["occupancy"]] if isinstance(kind["occupancy"], str) else kind["occupancy"]
            estimates = [name for name in used if name in name_estimates(path[1])]
            if estimates and bound not in used:
                raise ModelError("occupancy", used, f"must name {bound} too: {estimates[0]} is an estimate with noise")
    return LearnedHabits(
        name=path[1], bound=bound, epsilon=epsilon, households=households, confidence=confidence, proven=proven
    )
