"""The households of a meter table: read from its columns, and compared with the table that was pinned before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from murmurate.errors import MeterError
from murmurate.planning.household_bounds import UNKNOWN_KIND, Households, count_households, household_bounds
from murmurate.types import Meters
from murmurate.units import BoolArray, IntArray

_KEEP_HINT = "must stay: a plan proves its promises for households that keep their kind and their protection"


class MeterAttributes(NamedTuple):
    """What a table says of each meter beside its bound. A meter keeps both in every later table."""

    number: IntArray  # ascending
    protected: BoolArray  # [meter]
    kind: IntArray  # [meter] position in `kinds`
    kinds: tuple[str, ...]  # the first is "": not said

    def to_table(self) -> pa.Table:
        """As `described` reads it."""
        kind = pa.DictionaryArray.from_arrays(pa.array(self.kind, pa.int32()), pa.array(self.kinds, pa.string()))
        return pa.table({"meter": self.number, "protected": self.protected, "kind": kind})


def read_attributes(table: pa.Table) -> MeterAttributes:
    """From a table in the order of the meters' numbers: the operator's, or one that was kept."""
    everyone = np.ones(len(table), np.bool_)
    protected = table["protected"].to_numpy() if "protected" in table.column_names else everyone
    if "kind" not in table.column_names:
        return MeterAttributes(table["meter"].to_numpy(), protected, np.full(len(table), UNKNOWN_KIND), ("",))
    named = pc.dictionary_encode(pc.fill_null(table["kind"].cast(pa.large_string()), "")).combine_chunks()
    names = named.dictionary.to_pylist()
    kinds = ("", *sorted(set(names) - {""}))
    position = {name: at for at, name in enumerate(kinds)}
    code = np.array([position[name] for name in names], np.int64)[named.indices.to_numpy()]
    return MeterAttributes(table["meter"].to_numpy(), protected, code, kinds)


class ZoneHouseholds(NamedTuple):
    """The households of a zone."""

    number: int  # how many
    bounds: Mapping[str, int]  # the largest bound of a household by kind [Wh]: see `household_bounds`


def read_zone_households(table: pa.Table, meters: Meters, attributes: MeterAttributes) -> tuple[ZoneHouseholds, ...]:
    """The households of each zone. Raises MeterError where the meters of one differ in zone, kind or protection."""
    named = None
    if "household" in table.column_names:
        named = pc.dictionary_encode(table["household"]).combine_chunks()
    households = Households(
        zone=meters.zone,
        bound_wh=meters.bound_wh,
        protected=attributes.protected,
        kind=attributes.kind,
        kinds=attributes.kinds,
        household=None if named is None else named.indices.to_numpy().astype(np.int64),
    )

    def name(household: int) -> str:
        return str(household if named is None else named.dictionary[household].as_py())

    bounds = household_bounds(households, len(meters.zones), name)
    counts = count_households(households, len(meters.zones)).tolist()
    return tuple(ZoneHouseholds(*each) for each in zip(counts, bounds, strict=True))


def check_unchanged(before: MeterAttributes, after: MeterAttributes) -> None:
    """Raise MeterError naming a meter that had a kind and has another now, or whose protection has changed."""
    _, was, now = np.intersect1d(before.number, after.number, assume_unique=True, return_indices=True)
    position = {name: at for at, name in enumerate(after.kinds)}
    renamed = np.array([position.get(name, -1) for name in before.kinds], np.int64)
    kind = before.kind[was]
    kind_changed = (kind != UNKNOWN_KIND) & (renamed[kind] != after.kind[now])
    if kind_changed.any():
        at = int(kind_changed.argmax())
        old, new = before.kinds[int(kind[at])], after.kinds[int(after.kind[now[at]])]
        raise MeterError(f"kind of meter {after.number[now[at]]}", f"{new!r}, was {old!r}", _KEEP_HINT)
    protection_changed = before.protected[was] != after.protected[now]
    if protection_changed.any():
        at = int(protection_changed.argmax())
        protected = bool(after.protected[now[at]])
        value = f"{protected}, was {not protected}".lower()
        raise MeterError(f"protected of meter {after.number[now[at]]}", value, _KEEP_HINT)


def merge_attributes(before: MeterAttributes, after: MeterAttributes) -> MeterAttributes:
    """What both say, where `after` is not refused: of a meter in both what `after` says."""
    kinds = ("", *sorted({*before.kinds, *after.kinds} - {""}))
    position = {name: at for at, name in enumerate(kinds)}
    gone = ~np.isin(before.number, after.number, assume_unique=True)
    codes = [
        np.array([position[name] for name in attributes.kinds], np.int64)[attributes.kind]
        for attributes in (before, after)
    ]
    number = np.concatenate([before.number[gone], after.number])
    order = np.argsort(number)
    protected = np.concatenate([before.protected[gone], after.protected])[order]
    return MeterAttributes(number[order], protected, np.concatenate([codes[0][gone], codes[1]])[order], kinds)
