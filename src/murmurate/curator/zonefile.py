"""Zone files: a tariff, households and a promise in TOML, read with the line of every mistake.

`docs/how-to/zone-file.md` describes the format; `EXAMPLE` is one that works.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.curator.toml_reader import TomlReader
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.errors import MeterError, ModelError, MurmurateError, ZoneFileError
from murmurate.household.independence import IndependenceTest
from murmurate.household.occupancy import Chains, per_interval
from murmurate.pricing.rate import RateCurve, Segment
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.divergence import Secret
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import Promise, parse_promise
from murmurate.quantities import FloatArray

EXAMPLE = """\
name = "harbour"
currency = "EUR"
interval_minutes = 15
promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]
calibration = "range"                       # range | shift | robust | exact

[tariff]                                    # money/kWh: alpha per kWh of demand, on top of beta
alpha = "0.0002"
beta = "0.08"
tick = "0.00001"
floor = "0"
cap = "2"

[occupancy.resident]                        # chances to arrive or leave at some point during a period
periods = { morning = "07:00", noon = "08:00", evening = "16:00", night = "23:00" }
arrive = { morning = 0.98, noon = 0.05, evening = 0.99, night = 0.01 }
leave = { morning = 0.05, noon = 0.95, evening = 0.05, night = 0.995 }

[[households]]
name = "flat"
count = 800
bound_wh = 1000
away = { uniform_to = 300 }
home = { uniform_to = 600 }
occupancy = "resident"

[[households]]
name = "fish market"
count = 1
bound_wh = 20000
away = { uniform_to = 5000 }
home = { uniform_to = 20000 }
occupancy = "resident"
public = "always"                           # its hours hang on the door
"""


@dataclass(frozen=True, slots=True)
class MeterSummary:
    """What a plan needs to know of a file of meters."""

    count: int
    bound_wh: int


ReadMeters = Callable[[str], MeterSummary]

_TABLES: dict[str, set[str]] = {
    "": {"name", "currency", "interval_minutes", "promise", "calibration", "eta", "noise", "tariff", "occupancy"}
    | {"households", "forecast", "filter"},
    "tariff": {"alpha", "beta", "tick", "floor", "cap", "segments", "knots"},
    "occupancy": {"periods", "arrive", "leave"},
    "households": {"name", "count", "meters", "bound_wh", "away", "home", "occupancy", "public"},
    "forecast": {"profile_kwh"},
}


def _no_files(name: str) -> MeterSummary:
    raise MeterError("meters", repr(name), "this reader has no files; give count and bound_wh instead")


def parse_zone(text: str, read_meters: ReadMeters = _no_files, independence: IndependenceTest | None = None) -> Zone:
    """Read a zone file. Raises ZoneFileError with the line of the first mistake.

    >>> parse_zone(EXAMPLE).households
    801
    """
    reader = TomlReader(text)
    top = reader.table((), _TABLES[""])
    minutes = reader.get(top, (), "interval_minutes", int, 15)
    with reader.at((), "interval_minutes"):
        if minutes < 1 or 1440 % minutes:
            raise MurmurateError("interval_minutes", minutes, "must divide a day of 1440 minutes, for example 15")
    day = 1440 // minutes
    occupancy = {name: _chains(reader, ("occupancy", name), day) for name in reader.get(top, (), "occupancy", dict, {})}
    kinds = [
        _kind(reader, n, day, occupancy, read_meters) for n, _ in enumerate(reader.need(top, (), "households", list))
    ]
    promises = _promises(reader, top, day)
    calibration, eta, law = _noise(reader, top)
    with reader.at((), "name"):
        return Zone(
            name=reader.need(top, (), "name", str),
            currency=reader.need(top, (), "currency", str),
            intervals_per_day=day,
            curve=_curve(reader),
            kinds=tuple(kinds),
            promises=tuple(promises),
            calibration=calibration,
            eta=eta,
            law=law,
            profile_wh=_profile(reader, top, day),
            filtered=reader.get(top, (), "filter", bool, False),
            independence=independence,
            source=text,
        )


def _promises(reader: TomlReader, top: Mapping[str, Any], day: int) -> list[Promise]:
    with reader.at((), "promise"):
        found = [parse_promise(str(words), day) for words in reader.need(top, (), "promise", list)]
        if not found:
            raise MurmurateError("promise", "empty", "must promise something, or there is nothing to plan")
    return found


def _noise(reader: TomlReader, top: Mapping[str, Any]) -> tuple[Calibration, float, NoiseLaw | None]:
    with reader.at((), "calibration"):
        calibration = _choice("calibration", reader.get(top, (), "calibration", str, "range"), Calibration)
    with reader.at((), "eta"):
        eta = float(reader.get(top, (), "eta", (int, float), 0.0))
        if calibration is Calibration.ROBUST and not 0 < eta < 1:
            raise ModelError("eta", eta, "must lie between 0 (exact) and 1 (range) for robust, for example 0.05")
    with reader.at((), "noise"):
        wanted = reader.get(top, (), "noise", str, "best")
        return calibration, eta, None if wanted == "best" else _choice("noise", wanted, NoiseLaw)


def _choice(field: str, value: str, kinds: Any) -> Any:
    names = [kind.value for kind in kinds]
    if value not in names:
        raise MurmurateError(field, repr(value), f"must be one of {', '.join(names)}")
    return kinds(value)


def _curve(reader: TomlReader) -> RateCurve:
    path = ("tariff",)
    if "tariff" not in reader.document:
        raise ZoneFileError(1, "tariff", "missing", "must be given as a table [tariff]")
    tariff = reader.table(path, _TABLES["tariff"])
    limits = {"tick": reader.need(tariff, path, "tick", (str, int, float))}
    limits |= {key: tariff[key] for key in ("floor", "cap") if key in tariff}
    shapes = [key for key in ("segments", "knots", "alpha") if key in tariff]
    with reader.at(path, shapes[-1] if shapes else "tick"):
        if len(shapes) > 1:
            raise MurmurateError("tariff", " and ".join(shapes), "must be given in one of these ways")
        if "segments" in tariff:
            return RateCurve.through([Segment(*segment) for segment in tariff["segments"]], **limits)
        if "knots" in tariff:
            return RateCurve.between([(wh, price) for wh, price in tariff["knots"]], **limits)
        alpha, beta = (reader.need(tariff, path, key, (str, int, float)) for key in ("alpha", "beta"))
        return RateCurve.affine(alpha=alpha, beta=beta, **limits)


def _clock(field: str, words: str, day: int) -> int:
    """The interval of the day that begins at "HH:MM"."""
    found = re.fullmatch(r"(\d\d):(\d\d)", words)
    minutes = int(found[1]) * 60 + int(found[2]) if found else -1
    if not 0 <= minutes <= 1440 or minutes * day % 1440:
        raise ModelError(field, repr(words), 'must be the start of an interval, such as "07:00"')
    return minutes * day // 1440


def _chains(reader: TomlReader, path: tuple[Any, ...], day: int) -> Chains:
    """One household's day: periods by their start, and the chance to arrive or leave at some point during each."""
    table = reader.table(path, _TABLES["occupancy"])
    starts = reader.need(table, path, "periods", dict)
    with reader.at(path, "periods"):
        begins = {name: _clock("periods", str(words), day) for name, words in starts.items()}
        if len(set(begins.values())) != len(begins) or not begins:
            raise ModelError("periods", sorted(begins.values()), "must be at least one, each with a start of its own")
    names = sorted(begins, key=begins.__getitem__)
    calendar = (np.searchsorted([begins[name] for name in names], np.arange(day), side="right") - 1) % len(names)
    chances = {}
    for key in ("arrive", "leave"):
        given = reader.need(table, path, key, dict)
        with reader.at(path, key):
            if set(given) != set(names):
                raise ModelError(key, sorted(given), f"must name each period once: {', '.join(names)}")
            told = np.array([float(given[name]) for name in names])
            if not ((told >= 0) & (told < 1)).all():
                raise ModelError(key, told.tolist(), "must be chances, 0 or more and below 1")
            chances[key] = per_interval(told, np.bincount(calendar))
    with reader.at(path, "arrive"):
        return Chains.independent(
            initial=[0.5], arrive=chances["arrive"][:, None], leave=chances["leave"][:, None], period=calendar
        )


def _kind(
    reader: TomlReader, number: int, day: int, occupancy: Mapping[str, Chains], read_meters: ReadMeters
) -> HouseholdKind:
    path = ("households", number)
    table = reader.table(path, _TABLES["households"])
    if "meters" in table:
        with reader.at(path, "meters"):
            summary = read_meters(reader.get(table, path, "meters", str, ""))
            count, bound_wh = summary.count, summary.bound_wh
    else:
        count, bound_wh = (reader.need(table, path, key, int) for key in ("count", "bound_wh"))
    with reader.at(path, "bound_wh"):
        if bound_wh < 1:
            raise MeterError("bound_wh", bound_wh, "must be at least 1 Wh")
    laws = {}
    for key in ("away", "home"):
        with reader.at(path, key):
            laws[key] = _law(key, reader.need(table, path, key, dict), bound_wh)
    named = table.get("occupancy", [])
    names = [named] if isinstance(named, str) else list(named)
    with reader.at(path, "occupancy"):
        if not names or not set(names) <= set(occupancy):
            raise ModelError(
                "occupancy", names, f"must name one or more of {', '.join(occupancy) or '[occupancy.NAME]'}"
            )
    with reader.at(path, "public"):
        public = _public(table.get("public", []), day)
    with reader.at(path, "count"):
        return HouseholdKind(
            name=reader.need(table, path, "name", str),
            count=count,
            secret=Secret(away=laws["away"], home=laws["home"]),
            models=tuple(occupancy[name] for name in names),
            public=public,
            meters=table.get("meters", ""),
        )


def _law(field: str, table: Mapping[str, Any], bound_wh: int) -> FloatArray:
    """A law on 0, .., bound from { uniform_to = .. } or { histogram = [..], step_wh = .. }."""
    law = np.zeros(bound_wh + 1)
    if set(table) == {"uniform_to"}:
        top = int(table["uniform_to"])
        if not 0 <= top <= bound_wh:
            raise ModelError(field, top, f"uniform_to must lie between 0 and bound_wh, {bound_wh}")
        law[: top + 1] = 1 / (top + 1)
        return law
    if set(table) == {"histogram", "step_wh"}:
        step, weights = int(table["step_wh"]), np.array(table["histogram"], np.float64)
        if step < 1 or len(weights) * step > bound_wh + 1 or not (weights >= 0).all() or weights.sum() <= 0:
            allowed = f"must be weights of bins of step_wh that end at bound_wh, {bound_wh}, or below"
            raise ModelError(field, f"{len(weights)} bins of {step} Wh", allowed)
        law[: len(weights) * step] = np.repeat(weights / (weights.sum() * step), step)
        return law
    raise ModelError(field, sorted(table), "must be { uniform_to = 600 } or { histogram = [3, 2, 1], step_wh = 200 }")


def _public(words: Any, day: int) -> tuple[bool, ...]:
    """The word always, or hours such as ["08:00-20:00"] at which anybody may know the occupancy."""
    if words == "always":
        return (True,) * day
    known = np.zeros(day, np.bool_)
    for hours in [words] if isinstance(words, str) else words:
        begin, _, end = str(hours).partition("-")
        first, last = _clock("public", begin, day), _clock("public", end, day)
        if first == last:
            raise ModelError("public", repr(hours), 'must be hours such as "08:00-20:00", or "always"')
        known |= (np.arange(day) - first) % day < (last - first if last > first else last - first + day)
    return tuple(bool(k) for k in known)


def _profile(reader: TomlReader, top: Mapping[str, Any], day: int) -> tuple[int, ...] | None:
    if "forecast" not in top:
        return None
    table = reader.table(("forecast",), _TABLES["forecast"])
    kwh = reader.need(table, ("forecast",), "profile_kwh", list)
    with reader.at(("forecast",), "profile_kwh"):
        if len(kwh) != day:
            raise MurmurateError("profile_kwh", f"{len(kwh)} numbers", f"must be one for each of {day} intervals")
        return tuple(round(1000 * float(value)) for value in kwh)
