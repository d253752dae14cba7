"""Zone files: a tariff, households and promises in TOML. An error names the line of the mistake.

`docs/how-to/zone-file.md` describes the format. `EXAMPLE_ZONE_FILE` is a valid example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.errors import MeterError, ModelError, MurmurateError, TariffError, ZoneFileError
from murmurate.household.occupancy import OccupancyChains, per_interval_probability
from murmurate.planning.household_values import MAX_BOUND_WH, read_consumption_pmf, read_public_hours
from murmurate.planning.learned_habits import read_learned_habits
from murmurate.planning.local_hours import LocalHours
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.planning.zone_forecast import (
    ReadForecast,
    names_forecast_file,
    read_predicted_demand,
    reject_forecast_file,
)
from murmurate.planning.zone_name import check_zone_name
from murmurate.pricing.rate import RateCurve, Segment
from murmurate.privacy.divergence import SecretPair
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import Promise, parse_promise
from murmurate.time_zones import LocalClock, local_clock
from murmurate.toml_reader import TomlReader

EXAMPLE_ZONE_FILE = """\
name = "harbour"
currency = "EUR"
interval_minutes = 15
time_zone = "Europe/Lisbon"                 # whose clocks the hours below are read on
promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]

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
    """The number of households in a meter file and their largest bound [Wh]."""

    count: int
    bound_wh: int
    is_of_kind: bool = True  # false: the file names no kinds, and these are all households of the zone


ReadMeters = Callable[[str, str, str], MeterSummary]  # name of the file, zone, kind
CHOOSE = "choose"  # in place of a bound: murmurate plan chooses it

_ALLOWED_KEYS: dict[str, set[str]] = {
    "": {"name", "currency", "interval_minutes", "promise", "noise", "tariff", "occupancy"}
    | {"households", "forecast", "time_zone", "learned"},
    "tariff": {"alpha", "beta", "tick", "floor", "cap", "segments", "knots"},
    "occupancy": {"periods", "arrive", "leave"},
    "households": {"name", "count", "meters", "bound_wh", "away", "home", "occupancy", "public"},
}


def _reject_meters_file(name: str, _zone: str, _kind: str) -> MeterSummary:
    raise MeterError("meters", repr(name), "meter files cannot be read here; set count and bound_wh instead")


def parse_zone(
    text: str,
    read_meters: ReadMeters = _reject_meters_file,
    *,
    read_forecast: ReadForecast = reject_forecast_file,
    read_clock: Callable[[str], LocalClock] = local_clock,
) -> Zone:
    """Return the zone that a zone file describes: a tariff, households and promises in TOML.

    `docs/how-to/zone-file.md` describes the format; `EXAMPLE_ZONE_FILE` is an example. No file is opened and no clock
    is read.

    Args:
        text: The zone file.
        read_meters: Returns the number of households and their largest bound [Wh] for the name of a file of meters, a
            zone and a kind. Without it, a zone file that names such a file is refused.
        read_forecast: Returns the public forecast for the name of a forecast file. Without it, a zone file that names
            one is refused.
        read_clock: Returns the clock for the name of a time zone. The default reads the time zone database.

    Returns:
        The zone.

    Raises:
        ZoneFileError: The text is not TOML, or a value is missing or not allowed. It names the line of the first error.

    Example:
        >>> import murmurate as mm
        >>> zone = mm.parse_zone(mm.EXAMPLE_ZONE_FILE)
        >>> zone.name, zone.household_count, [str(promise) for promise in zone.promises]
        ('harbour', 801, ['any 24 h: epsilon 1, delta 1e-06', 'any moment, habits known: 1'])
    """
    reader = TomlReader(text)
    top = reader.read_table((), _ALLOWED_KEYS[""])
    hours = _read_hours(reader, top, read_clock)
    models = reader.get(top, (), "occupancy", dict, {})
    occupancy = {name: _read_chains(reader, ("occupancy", name), hours) for name in models}
    clipped = names_forecast_file(reader, top)
    kinds = [
        _read_household_kind(reader, n, hours, occupancy, read_meters, clipped=clipped)
        for n, _ in enumerate(reader.require(top, (), "households", list))
    ]
    promises = _read_promises(reader, top, hours.intervals_per_day)
    with reader.locate_errors((), "name"):
        return Zone(
            name=check_zone_name(reader.require(top, (), "name", str)),
            currency=reader.require(top, (), "currency", str),
            intervals_per_day=hours.intervals_per_day,
            curve=_read_rate_curve(reader),
            kinds=tuple(kinds),
            promises=tuple(promises),
            distribution=_read_noise(reader, top),
            predicted=read_predicted_demand(reader, top, hours, read_forecast, kinds),
            clock=hours.clock,
            learned=read_learned_habits(reader, top),
            source_text=text,
        )


def _read_hours(reader: TomlReader, top: Mapping[str, Any], read_clock: Callable[[str], LocalClock]) -> LocalHours:
    minutes = reader.get(top, (), "interval_minutes", int, 15)
    with reader.locate_errors((), "interval_minutes"):
        if minutes < 1 or 1440 % minutes:
            raise MurmurateError("interval_minutes", minutes, "must divide a day of 1440 minutes, for example 15")
    with reader.locate_errors((), "time_zone"):
        clock = read_clock(reader.get(top, (), "time_zone", str, "UTC"))
    return LocalHours(1440 // minutes, clock, "time_zone" in top)


def _read_promises(reader: TomlReader, top: Mapping[str, Any], day: int) -> list[Promise]:
    with reader.locate_errors((), "promise"):
        promises = [parse_promise(str(entry), day) for entry in reader.require(top, (), "promise", list)]
        if not promises:
            raise MurmurateError("promise", "empty", "must have at least one promise")
    return promises


def _read_noise(reader: TomlReader, top: Mapping[str, Any]) -> NoiseDistribution | None:
    with reader.locate_errors((), "noise"):
        noise = reader.get(top, (), "noise", str, "best")
        names = [each.value for each in NoiseDistribution]
        if noise not in {"best", *names}:
            raise MurmurateError("noise", repr(noise), f"must be best, or one of {', '.join(names)}")
        return None if noise == "best" else NoiseDistribution(noise)


def _read_rate_curve(reader: TomlReader) -> RateCurve:
    path = ("tariff",)
    if "tariff" not in reader.document:
        raise ZoneFileError(1, "tariff", "missing", "must be given as a table [tariff]")
    tariff = reader.read_table(path, _ALLOWED_KEYS["tariff"])
    limits = {"tick": reader.require(tariff, path, "tick", (str, int, float))}
    limits |= {key: tariff[key] for key in ("floor", "cap") if key in tariff}
    shapes = [key for key in ("segments", "knots", "alpha") if key in tariff]
    with reader.locate_errors(path, shapes[-1] if shapes else "tick"):
        curve = _make_rate_curve(reader, tariff, shapes, limits)
        if curve.falls:
            raise TariffError("tariff", "falling", "must not fall where demand rises: it would reward a peak")
        return curve


def _make_rate_curve(
    reader: TomlReader, tariff: Mapping[str, Any], shapes: Sequence[str], limits: Mapping[str, Any]
) -> RateCurve:
    if len(shapes) > 1:
        raise MurmurateError("tariff", " and ".join(shapes), "must be given in one of these ways")
    if "segments" in tariff:
        return RateCurve.from_segments([Segment(*segment) for segment in tariff["segments"]], **limits)
    if "knots" in tariff:
        return RateCurve.from_knots([(wh, price) for wh, price in tariff["knots"]], **limits)
    alpha, beta = (reader.require(tariff, ("tariff",), key, (str, int, float)) for key in ("alpha", "beta"))
    return RateCurve.affine(alpha=alpha, beta=beta, **limits)


def _read_chains(reader: TomlReader, path: tuple[Any, ...], hours: LocalHours) -> OccupancyChains:
    """Read the occupancy chain of a household: periods by start, and the chance to arrive or leave in each."""
    table = reader.read_table(path, _ALLOWED_KEYS["occupancy"])
    starts = reader.require(table, path, "periods", dict)
    with reader.locate_errors(path, "periods"):
        begins = {name: hours.parse_slot("periods", str(start)) for name, start in starts.items()}
        if len(set(begins.values())) != len(begins) or not begins:
            raise ModelError("periods", sorted(begins.values()), "must be at least one, each with a different start")
    names = sorted(begins, key=begins.__getitem__)
    local = np.searchsorted([begins[name] for name in names], np.arange(hours.intervals_per_day), side="right") - 1
    calendar = hours.to_standard_time(local % len(names))
    chances = {}
    for key in ("arrive", "leave"):
        by_period = reader.require(table, path, key, dict)
        with reader.locate_errors(path, key):
            if set(by_period) != set(names):
                raise ModelError(key, sorted(by_period), f"must name each period once: {', '.join(names)}")
            per_period = np.array([float(by_period[name]) for name in names])
            if not ((per_period >= 0) & (per_period < 1)).all():
                raise ModelError(key, per_period.tolist(), "must be chances, 0 or more and below 1")
            chances[key] = per_interval_probability(per_period, np.bincount(calendar))
    with reader.locate_errors(path, "arrive"):
        return OccupancyChains.independent(
            initial=[0.5], arrive=chances["arrive"][:, None], leave=chances["leave"][:, None], period=calendar
        )


def _read_count_and_bound(
    reader: TomlReader, path: tuple[Any, ...], table: Mapping[str, Any], read_meters: ReadMeters
) -> MeterSummary:
    if "meters" in table:
        with reader.locate_errors(path, "meters"):
            zone, kind = reader.get(reader.document, (), "name", str, ""), reader.get(table, path, "name", str, "")
            file = reader.get(table, path, "meters", str, "")
            found = read_meters(file, zone, kind)
            if not found.is_of_kind and sum(each.get("meters") == file for each in reader.document["households"]) > 1:
                allowed = (
                    "must have a column kind: several kinds of households name it, and each would count all of them"
                )
                raise MeterError("meters", repr(file), allowed)
    with reader.locate_errors(path, "bound_wh"):
        if "meters" not in table:
            if table.get("bound_wh") == CHOOSE:
                allowed = "must be a number here; murmurate plan without --noise-of chooses one"
                raise MeterError("bound_wh", repr(CHOOSE), allowed)
            found = MeterSummary(*(reader.require(table, path, key, int) for key in ("count", "bound_wh")))
        if not 1 <= found.bound_wh <= MAX_BOUND_WH:
            raise MeterError("bound_wh", found.bound_wh, f"must be at least 1 Wh and at most {MAX_BOUND_WH:,}")
    return found


def _read_household_kind(
    reader: TomlReader,
    number: int,
    hours: LocalHours,
    occupancy: Mapping[str, OccupancyChains],
    read_meters: ReadMeters,
    *,
    clipped: bool,
) -> HouseholdKind:
    path = ("households", number)
    table = reader.read_table(path, _ALLOWED_KEYS["households"])
    meters = _read_count_and_bound(reader, path, table, read_meters)
    distributions = {}
    for key in ("away", "home"):
        with reader.locate_errors(path, key):
            law = reader.require(table, path, key, dict)
            distributions[key] = read_consumption_pmf(key, law, meters.bound_wh, clipped=clipped)
    named = table.get("occupancy", [])
    names = [named] if isinstance(named, str) else list(named)
    with reader.locate_errors(path, "occupancy"):
        if not names or not set(names) <= set(occupancy):
            raise ModelError(
                "occupancy", names, f"must name one or more of {', '.join(occupancy) or '[occupancy.NAME]'}"
            )
    with reader.locate_errors(path, "public"):
        public = read_public_hours(table.get("public", []), hours)
    with reader.locate_errors(path, "count"):
        return HouseholdKind(
            name=reader.require(table, path, "name", str),
            count=meters.count,
            secret_pair=SecretPair(away=distributions["away"], home=distributions["home"]),
            models=tuple(occupancy[name] for name in names),
            public=public,
            meters_file=table.get("meters", ""),
        )
