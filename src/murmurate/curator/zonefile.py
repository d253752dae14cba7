"""Zone files: a tariff, households and a promise in TOML, read with the line of every mistake.

`docs/how-to/zone-file.md` describes the format; `EXAMPLE` is one that works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.curator.local_hours import LocalHours
from murmurate.curator.toml_reader import TomlReader
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.errors import MeterError, ModelError, MurmurateError, ZoneFileError
from murmurate.household.occupancy import Chains, per_interval
from murmurate.pricing.rate import RateCurve, Segment
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.divergence import Secret
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import Promise, parse_promise
from murmurate.quantities import FloatArray
from murmurate.time_zones import LocalClock, local_clock

EXAMPLE = """\
name = "harbour"
currency = "EUR"
interval_minutes = 15
time_zone = "Europe/Lisbon"                 # whose clocks the hours below are read on
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
    | {"households", "forecast", "filter", "time_zone", "budget"},
    "tariff": {"alpha", "beta", "tick", "floor", "cap", "segments", "knots"},
    "occupancy": {"periods", "arrive", "leave"},
    "households": {"name", "count", "meters", "bound_wh", "away", "home", "occupancy", "public"},
    "forecast": {"profile_kwh"},
}


def _no_files(name: str) -> MeterSummary:
    raise MeterError("meters", repr(name), "this reader has no files; give count and bound_wh instead")


def parse_zone(
    text: str,
    read_meters: ReadMeters = _no_files,
    *,
    tested: bool = False,
    read_clock: Callable[[str], LocalClock] = local_clock,
) -> Zone:
    """Read a zone file. Raises ZoneFileError with the line of the first mistake.

    Hours are read on the clocks of `time_zone`, which `read_clock` knows.

    >>> parse_zone(EXAMPLE).households
    801
    """
    reader = TomlReader(text)
    top = reader.table((), _TABLES[""])
    hours = _hours(reader, top, read_clock)
    models = reader.get(top, (), "occupancy", dict, {})
    occupancy = {name: _chains(reader, ("occupancy", name), hours) for name in models}
    kinds = [
        _kind(reader, n, hours, occupancy, read_meters) for n, _ in enumerate(reader.need(top, (), "households", list))
    ]
    promises = _promises(reader, top, hours.day)
    calibration, eta, law = _noise(reader, top)
    with reader.at((), "name"):
        return Zone(
            name=reader.need(top, (), "name", str),
            currency=reader.need(top, (), "currency", str),
            intervals_per_day=hours.day,
            curve=_curve(reader),
            kinds=tuple(kinds),
            promises=tuple(promises),
            calibration=calibration,
            eta=eta,
            law=law,
            profile_wh=_profile(reader, top, hours),
            filtered=reader.get(top, (), "filter", bool, False),
            tested=tested,
            clock=hours.clock,
            uneven=_budget(reader, top),
            source=text,
        )


def _hours(reader: TomlReader, top: Mapping[str, Any], read_clock: Callable[[str], LocalClock]) -> LocalHours:
    minutes = reader.get(top, (), "interval_minutes", int, 15)
    with reader.at((), "interval_minutes"):
        if minutes < 1 or 1440 % minutes:
            raise MurmurateError("interval_minutes", minutes, "must divide a day of 1440 minutes, for example 15")
    with reader.at((), "time_zone"):
        clock = read_clock(reader.get(top, (), "time_zone", str, "UTC"))
    return LocalHours(1440 // minutes, clock, "time_zone" in top)


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


def _budget(reader: TomlReader, top: Mapping[str, Any]) -> bool:
    with reader.at((), "budget"):
        wanted = reader.get(top, (), "budget", str, "even")
        if wanted not in {"even", "uneven"}:
            raise MurmurateError("budget", repr(wanted), "must be even or uneven")
    return bool(wanted == "uneven")


def _chains(reader: TomlReader, path: tuple[Any, ...], hours: LocalHours) -> Chains:
    """One household's day: periods by their start, and the chance to arrive or leave at some point during each."""
    table = reader.table(path, _TABLES["occupancy"])
    starts = reader.need(table, path, "periods", dict)
    with reader.at(path, "periods"):
        begins = {name: hours.slot("periods", str(words)) for name, words in starts.items()}
        if len(set(begins.values())) != len(begins) or not begins:
            raise ModelError("periods", sorted(begins.values()), "must be at least one, each with a start of its own")
    names = sorted(begins, key=begins.__getitem__)
    local = np.searchsorted([begins[name] for name in names], np.arange(hours.day), side="right") - 1
    calendar = hours.standard(local % len(names))
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
    reader: TomlReader, number: int, hours: LocalHours, occupancy: Mapping[str, Chains], read_meters: ReadMeters
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
        public = _public(table.get("public", []), hours)
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


def _public(words: Any, hours: LocalHours) -> tuple[bool, ...]:
    """The word always, or local hours such as ["08:00-20:00"] at which anybody may know the occupancy.

    An interval of UTC is public only if all of it lies within the hours under every offset of the time zone: where
    clocks change, an hour on either side stays protected all year.
    """
    if words == "always":
        return (True,) * hours.day
    known = np.zeros(hours.day, np.bool_)
    for stretch in [words] if isinstance(words, str) else words:
        begin, _, end = str(stretch).partition("-")
        first, last = hours.slot("public", begin), hours.slot("public", end)
        if first == last:
            raise ModelError("public", repr(stretch), 'must be hours such as "08:00-20:00", or "always"')
        length = last - first if last > first else last - first + hours.day
        known |= (np.arange(hours.day) - first) % hours.day < length
    if known.any() and not hours.named:
        raise ModelError("public", "hours", 'need time_zone at the top of the file, such as "Europe/Zurich"')
    return hours.at_all_offsets(known)


def _profile(reader: TomlReader, top: Mapping[str, Any], hours: LocalHours) -> tuple[int, ...] | None:
    if "forecast" not in top:
        return None
    table = reader.table(("forecast",), _TABLES["forecast"])
    kwh = reader.need(table, ("forecast",), "profile_kwh", list)
    with reader.at(("forecast",), "profile_kwh"):
        if len(kwh) != hours.day:
            raise MurmurateError("profile_kwh", f"{len(kwh)} numbers", f"must be one for each of {hours.day} intervals")
        return tuple(hours.standard([round(1000 * float(value)) for value in kwh]).tolist())
