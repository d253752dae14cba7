"""Zone files: a tariff, households and promises in TOML. An error names the line of the mistake.

`docs/how-to/zone-file.md` describes the format. `EXAMPLE_ZONE_FILE` is a valid example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from murmurate.errors import MeterError, ModelError, MurmurateError, PrivacyError, TariffError, ZoneFileError
from murmurate.files import read_text
from murmurate.habits.private_counts import name_estimates
from murmurate.household.occupancy import OccupancyChains
from murmurate.planning.household_bounds import MeterSummary
from murmurate.planning.zone import HouseholdKind, LearnedHabits, PredictedDemand, Zone, forecast_from_occupancy
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.public_inputs import InputSeries
from murmurate.pricing.rate import RateCurve, Segment
from murmurate.privacy.divergence import SecretPair
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import parse_promise
from murmurate.time_zones import LocalClock, local_clock, parse_slot
from murmurate.toml_reader import TomlReader
from murmurate.types import check_zone_name
from murmurate.units import FloatArray, parse_fraction

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


EXAMPLE_FORECAST = """
[forecast]                                  # prices are predicted for the interval that pays
from = "occupancy"                          # expected demand of the models above; file = "forecast.json" is better
"""

ReadForecast = Callable[[str], PublicForecast]
MIN_LEVEL, MAX_LEVEL = 0.01, 100
_FORECAST = ("forecast",)
_MIN_INTERVALS_PER_DAY = 24  # each hour has a correction
ReadMeters = Callable[[str, str, str], MeterSummary]  # name of the file, zone, kind
CHOOSE = "choose"  # in place of a bound: murmurate plan chooses it
MAX_BOUND_WH = 1_000_000  # of a household in an interval: 4 MW over a quarter hour; its laws have as many numbers

_ALLOWED_KEYS: dict[str, set[str]] = {
    "": {"name", "currency", "interval_minutes", "promise", "noise", "tariff", "occupancy"}
    | {"households", "forecast", "time_zone", "learned"},
    "tariff": {"alpha", "beta", "tick", "floor", "cap", "segments", "knots"},
    "occupancy": {"periods", "arrive", "leave"},
    "households": {"name", "count", "meters", "bound_wh", "export_bound_wh", "away", "home", "occupancy", "public"},
    "forecast": {"file", "from", "level", "elasticity", "reference_price", "read_meters", *InputSeries._fields},
    "learned": {"epsilon", "households", "confidence", "bound", "proven"},
}


def _reject_meters_file(name: str, _zone: str, _kind: str) -> MeterSummary:
    raise MeterError("meters", repr(name), "meter files cannot be read here; set count and bound_wh instead")


def _reject_forecast_file(name: str) -> PublicForecast:
    """Refuse a zone file that names a forecast file, where files cannot be read."""
    raise ModelError("file", repr(name), "forecast files cannot be read here")


def parse_zone(
    text: str | PathLike[str],
    read_meters: ReadMeters = _reject_meters_file,
    *,
    read_forecast: ReadForecast = _reject_forecast_file,
    read_clock: Callable[[str], LocalClock] = local_clock,
) -> Zone:
    """Return the zone that a zone file describes: a tariff, households and promises in TOML.

    `docs/how-to/zone-file.md` describes the format; `EXAMPLE_ZONE_FILE` is an example. No other file is opened and no
    clock is read.

    Args:
        text: The text of the zone file, or its path, such as `Path("zone.toml")`.
        read_meters: Returns the number of households and their largest bound [Wh] for the name of a file of meters, a
            zone and a kind. Without it, a zone file that names such a file is refused.
        read_forecast: Returns the public forecast for the name of a forecast file. Without it, a zone file that names
            one is refused.
        read_clock: Returns the clock for the name of a time zone. The default reads the time zone database.

    Returns:
        The zone.

    Raises:
        ZoneFileError: The text is not TOML, or a value is missing or not allowed. It names the line of the first error.
        OSError: The file of this path cannot be read.

    Example:
        >>> import murmurate as mm
        >>> zone = mm.parse_zone(mm.EXAMPLE_ZONE_FILE)
        >>> zone.name, zone.household_count, [str(promise) for promise in zone.promises]
        ('harbour', 801, ['any 24 h: epsilon 1, delta 1e-06', 'any moment, habits known: 1'])
    """
    if isinstance(text, PathLike):
        try:
            return parse_zone(read_text(text), read_meters, read_forecast=read_forecast, read_clock=read_clock)
        except ZoneFileError as error:
            error.file = fspath(text)
            raise
    reader = TomlReader(text)
    top = reader.read_table((), _ALLOWED_KEYS[""])
    minutes = reader.get(top, (), "interval_minutes", int, 15)
    with reader.locate_errors((), "interval_minutes"):
        if minutes < 1 or 1440 % minutes:
            raise MurmurateError("interval_minutes", minutes, "must divide a day of 1440 minutes, for example 15")
    with reader.locate_errors((), "time_zone"):
        clock = read_clock(reader.get(top, (), "time_zone", str, "UTC"))
    day = 1440 // minutes
    models = reader.get(top, (), "occupancy", dict, {})
    occupancy = {name: _read_chains(reader, ("occupancy", name), day, clock) for name in models}
    clipped = "forecast" in top and "file" in reader.read_table(_FORECAST, _ALLOWED_KEYS["forecast"])
    kinds = [
        _read_household_kind(reader, ("households", n), day, clock, occupancy, read_meters, clipped=clipped)
        for n, _ in enumerate(reader.require(top, (), "households", list))
    ]
    with reader.locate_errors((), "promise"):
        promises = [parse_promise(str(entry), day) for entry in reader.require(top, (), "promise", list)]
        if not promises:
            raise MurmurateError("promise", "empty", "must have at least one promise")
    with reader.locate_errors((), "noise"):
        noise, known = reader.get(top, (), "noise", str, "best"), [each.value for each in NoiseDistribution]
        if noise not in {"best", *known}:
            raise MurmurateError("noise", repr(noise), f"must be best, or one of {', '.join(known)}")
    with reader.locate_errors((), "name"):
        return Zone(
            name=check_zone_name(reader.require(top, (), "name", str)),
            currency=reader.require(top, (), "currency", str),
            intervals_per_day=day,
            curve=_read_rate_curve(reader),
            kinds=tuple(kinds),
            promises=tuple(promises),
            distribution=None if noise == "best" else NoiseDistribution(noise),
            predicted=_read_predicted_demand(reader, top, day, clock, read_forecast, kinds),
            clock=clock,
            learned=tuple(_read_learned(reader, top, name) for name in reader.get(top, (), "learned", dict, {})),
            source_text=text,
        )


def _read_rate_curve(reader: TomlReader) -> RateCurve:
    path = ("tariff",)
    if "tariff" not in reader.document:
        raise ZoneFileError(1, "tariff", "missing", "must be given as a table [tariff]")
    tariff = reader.read_table(path, _ALLOWED_KEYS["tariff"])
    limits = {"tick": reader.require(tariff, path, "tick", (str, int, float))}
    limits |= {key: tariff[key] for key in ("floor", "cap") if key in tariff}
    shapes = [key for key in ("segments", "knots", "alpha") if key in tariff]
    with reader.locate_errors(path, shapes[-1] if shapes else "tick"):
        if len(shapes) > 1:
            raise MurmurateError("tariff", " and ".join(shapes), "must be given in one of these ways")
        if "segments" in tariff:
            curve = RateCurve.from_segments([Segment(*segment) for segment in tariff["segments"]], **limits)
        elif "knots" in tariff:
            curve = RateCurve.from_knots([(wh, price) for wh, price in tariff["knots"]], **limits)
        else:
            alpha, beta = (reader.require(tariff, path, key, (str, int, float)) for key in ("alpha", "beta"))
            curve = RateCurve.affine(alpha=alpha, beta=beta, **limits)
        if curve.falls:
            raise TariffError("tariff", "falling", "must not fall where demand rises: it would reward a peak")
        return curve


def _read_chains(reader: TomlReader, path: tuple[Any, ...], day: int, clock: LocalClock) -> OccupancyChains:
    """Read the occupancy chain of a household: periods by start, and the chance to arrive or leave in each."""
    table = reader.read_table(path, _ALLOWED_KEYS["occupancy"])
    given = {key: reader.require(table, path, key, dict) for key in ("periods", "arrive", "leave")}
    try:
        return OccupancyChains.from_periods(**given, time_zone=clock, intervals_per_day=day)
    except ModelError as error:
        with reader.locate_errors(path, error.field):
            raise


def _read_household_kind(
    reader: TomlReader,
    path: tuple[str, int],
    day: int,
    clock: LocalClock,
    occupancy: Mapping[str, OccupancyChains],
    read_meters: ReadMeters,
    *,
    clipped: bool,
) -> HouseholdKind:
    table = reader.read_table(path, _ALLOWED_KEYS["households"])
    meters = _read_count_and_bound(reader, path, table, read_meters)
    distributions = {}
    for key in ("away", "home"):
        with reader.locate_errors(path, key):
            law = reader.require(table, path, key, dict)
            distributions[key] = read_consumption_pmf(key, law, meters, clipped=clipped)
    named = table.get("occupancy", [])
    names = [named] if isinstance(named, str) else list(named)
    with reader.locate_errors(path, "occupancy"):
        if not names or not set(names) <= set(occupancy):
            known = ", ".join(occupancy) or "[occupancy.NAME]"
            raise ModelError("occupancy", names, f"must name one or more of {known}")
    with reader.locate_errors(path, "public"):
        public = _read_public_hours(table.get("public", []), day, clock, has_time_zone="time_zone" in reader.document)
    with reader.locate_errors(path, "count"):
        return HouseholdKind(
            name=reader.require(table, path, "name", str),
            count=meters.count,
            secret_pair=SecretPair(**distributions, export_bound_wh=meters.export_bound_wh),
            models=tuple(occupancy[name] for name in names),
            public=public,
            meters_file=table.get("meters", ""),
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
                allowed = "must have a column kind: several kinds name it, and each would count all of its households"
                raise MeterError("meters", repr(file), allowed)
    with reader.locate_errors(path, "bound_wh"):
        if "meters" not in table:
            if table.get("bound_wh") == CHOOSE:
                raise MeterError("bound_wh", repr(CHOOSE), "must be a number; plan without --noise-of chooses one")
            count, bound_wh = (reader.require(table, path, key, int) for key in ("count", "bound_wh"))
            found = MeterSummary(count, bound_wh, reader.get(table, path, "export_bound_wh", int, 0))
        if not 1 <= found.bound_wh <= MAX_BOUND_WH:
            raise MeterError("bound_wh", found.bound_wh, f"must be at least 1 Wh and at most {MAX_BOUND_WH:,}")
    with reader.locate_errors(path, "export_bound_wh" if "export_bound_wh" in table else "bound_wh"):
        if {"meters", "export_bound_wh"} <= set(table):
            allowed = "cannot stand with meters: give that table a column export_bound_wh"
            raise MeterError("export_bound_wh", table["export_bound_wh"], allowed)
        if not 0 <= found.export_bound_wh <= MAX_BOUND_WH - found.bound_wh:
            allowed = f"must be at least 0 Wh, and at most {MAX_BOUND_WH:,} together with bound_wh"
            raise MeterError("export_bound_wh", found.export_bound_wh, allowed)
    return found


def read_consumption_pmf(field: str, table: Mapping[str, Any], meters: MeterSummary, *, clipped: bool) -> FloatArray:
    """A law on -export bound, .., bound from { uniform_to = .. } or { histogram = [..], step_wh = .. }.

    It begins at 0, or at `uniform_from` or `from_wh`. A law that reaches beyond a bound is refused, or, if `clipped`,
    what lies beyond counts as the bound.

    >>> read_consumption_pmf("", {"uniform_to": 3}, MeterSummary(1, 2), clipped=True).tolist()
    [0.25, 0.25, 0.5]
    >>> read_consumption_pmf("", {"uniform_from": -3, "uniform_to": 0}, MeterSummary(1, 1, 2), clipped=True).tolist()
    [0.5, 0.25, 0.25, 0.0]
    """
    low, top = -meters.export_bound_wh, meters.bound_wh
    if {"uniform_to"} <= set(table) <= {"uniform_from", "uniform_to"}:
        first, last = int(table.get("uniform_from", 0)), int(table["uniform_to"])
        if first > last or ((first < low or last > top) and not clipped):
            if "uniform_from" in table:
                allowed = f"must rise from uniform_from, {low} (-export_bound_wh) or more, to bound_wh, {top}, or less"
                raise ModelError(field, f"{first} to {last} Wh", allowed)
            raise ModelError(field, last, f"uniform_to must lie between 0 and bound_wh, {top}")
        return _law_of_bins(np.ones(1), first, last + 1 - first, meters)
    if {"histogram", "step_wh"} <= set(table) <= {"histogram", "step_wh", "from_wh"}:
        first, step = int(table.get("from_wh", 0)), int(table["step_wh"])
        weights = np.array(table["histogram"], np.float64)
        beyond = (first < low or first + len(weights) * step > top + 1) and not clipped
        if step < 1 or beyond or not (weights >= 0).all() or weights.sum() <= 0:
            allowed = f"must be weights of bins of step_wh that end at bound_wh, {top}, or below"
            if first:
                allowed += f", and begin at {low} (-export_bound_wh) or above"
            raise ModelError(field, f"{len(weights)} bins of {step} Wh", allowed)
        return _law_of_bins(weights, first, step, meters)
    raise ModelError(field, sorted(table), "must be { uniform_to = 600 } or { histogram = [3, 2, 1], step_wh = 200 }")


def _law_of_bins(weights: FloatArray, first_wh: int, step_wh: int, meters: MeterSummary) -> FloatArray:
    """A law that is even in each bin of `step_wh` from `first_wh` on; what lies beyond a bound counts as the bound."""
    law = np.zeros(meters.export_bound_wh + meters.bound_wh + 1)
    each, begin = weights / (weights.sum() * step_wh), first_wh + meters.export_bound_wh
    inside = np.arange(max(begin, 0), min(begin + len(weights) * step_wh, len(law)))
    law[inside] = each[(inside - begin) // step_wh]
    if begin < 0:
        law[0] += each @ np.clip(-begin - step_wh * np.arange(len(weights)), 0, step_wh)
    if begin + len(weights) * step_wh > len(law):
        law[-1] = 1 - law[:-1].sum()
    return law


def _read_public_hours(hours: Any, day: int, clock: LocalClock, *, has_time_zone: bool) -> tuple[bool, ...]:
    """Return in which intervals of UTC the occupancy is public: "always", or at local hours ["08:00-20:00"].

    An interval is public only if all of it lies within the hours under every offset of the time zone: where clocks
    change, an hour on either side stays protected all year.
    """
    if hours == "always":
        return (True,) * day
    known = np.zeros(day, np.bool_)
    for stretch in [hours] if isinstance(hours, str) else hours:
        begin, _, end = str(stretch).partition("-")
        first, last = parse_slot("public", begin, day), parse_slot("public", end, day)
        if first == last:
            raise ModelError("public", repr(stretch), 'must be hours such as "08:00-20:00", or "always"')
        known |= (np.arange(day) - first) % day < (last - first if last > first else last - first + day)
    if known.any() and not has_time_zone:
        raise ModelError("public", "hours", 'need time_zone at the top of the file, such as "Europe/Zurich"')
    return clock.holds_at_all_offsets(known.tolist())


def _read_learned(reader: TomlReader, top: Mapping[str, Any], name: str) -> LearnedHabits:
    """Read `[learned.NAME]`: what an occupancy model that was learned from a consented sample has spent.

    Raises ZoneFileError if a kind of household uses an estimate, of any type of day, without the bound: an estimate
    alone is not covered.
    """
    path = ("learned", name)
    table = reader.read_table(path, _ALLOWED_KEYS["learned"])
    with reader.locate_errors(path, "epsilon"):
        epsilon = parse_fraction(reader.require(table, path, "epsilon", (str, int, float)), "epsilon", PrivacyError)
        if epsilon <= 0:
            raise PrivacyError("epsilon", epsilon, "must be positive: what each household of the sample has spent")
    households = reader.require(table, path, "households", int)
    confidence = float(reader.require(table, path, "confidence", (int, float)))
    bound, proven = reader.require(table, path, "bound", str), reader.require(table, path, "proven", bool)
    with reader.locate_errors(path, "confidence"):
        if households < 1 or not 0 < confidence < 1:
            allowed = "must have households and a confidence below 1"
            raise PrivacyError("learned", f"{households}, {confidence}", allowed)
    with reader.locate_errors(path, "bound"):
        if bound == name or bound not in top.get("occupancy", {}):
            raise ModelError("bound", repr(bound), "must be another occupancy model of the file")
        for kind in top["households"]:
            used = [kind["occupancy"]] if isinstance(kind["occupancy"], str) else kind["occupancy"]
            estimates = [model for model in used if model in name_estimates(name)]
            if estimates and bound not in used:
                raise ModelError("occupancy", used, f"must name {bound} too: {estimates[0]} is an estimate with noise")
    return LearnedHabits(name, bound, epsilon, households, confidence, proven)


def _read_predicted_demand(
    reader: TomlReader,
    top: Mapping[str, Any],
    day: int,
    clock: LocalClock,
    read_forecast: ReadForecast,
    kinds: Sequence[HouseholdKind],
) -> PredictedDemand | None:
    """Return the forecast by which prices are predicted, if the zone file has one."""
    if "forecast" not in top:
        return None
    table = reader.read_table(_FORECAST, _ALLOWED_KEYS["forecast"])
    source = "from" if "from" in table else "file"
    with reader.locate_errors((), "interval_minutes"):
        if day < _MIN_INTERVALS_PER_DAY:
            raise MurmurateError("interval_minutes", 1440 // day, "must be 60 or less where prices are predicted")
    with reader.locate_errors(_FORECAST, source):
        forecast = _read_source(reader, table, day, clock, read_forecast, kinds)
    with reader.locate_errors(_FORECAST, "level" if "level" in table else source):
        level = float(reader.get(table, _FORECAST, "level", (int, float), 1.0))
        if not MIN_LEVEL <= level <= MAX_LEVEL:
            allowed = f"must be what a household uses, relative to the forecast's: {MIN_LEVEL} to {MAX_LEVEL}"
            raise ModelError("level", level, allowed)
    with reader.locate_errors(_FORECAST, "elasticity" if "elasticity" in table else source):
        elasticity = float(reader.get(table, _FORECAST, "elasticity", (int, float), 0.0))
        if not 0 <= elasticity < 1:
            raise ModelError("elasticity", elasticity, "must be 0 or more and below 1, for example 0.1")
    with reader.locate_errors(_FORECAST, "reference_price" if "reference_price" in table else source):
        reference = None
        if "reference_price" in table:
            price = reader.require(table, _FORECAST, "reference_price", (int, float, str))
            reference = parse_fraction(price, "reference_price", TariffError)
            if reference <= 0:
                raise TariffError("reference_price", price, "must be above 0: the price at which demand is as forecast")
    read_meters = reader.get(table, _FORECAST, "read_meters", bool, True)
    given = [role for role in InputSeries._fields if role in table]
    with reader.locate_errors(_FORECAST, given[-1] if given else source):
        series = InputSeries(**{role: reader.require(table, _FORECAST, role, str) for role in given})
        return PredictedDemand(forecast, level, elasticity, reference, series, read_meters)


def _read_source(
    reader: TomlReader,
    table: Mapping[str, Any],
    day: int,
    clock: LocalClock,
    read_forecast: ReadForecast,
    kinds: Sequence[HouseholdKind],
) -> PublicForecast:
    """Return the forecast of a file, or what the occupancy models expect of a household, the same every day."""
    if {"file", "from"} <= set(table):
        raise MurmurateError("forecast", "file and from", "must be given in one of these ways")
    if "from" in table:
        if table["from"] != "occupancy":
            raise MurmurateError("from", repr(table["from"]), "must be 'occupancy', or give a file instead")
        return forecast_from_occupancy(kinds, clock)
    forecast = read_forecast(reader.require(table, _FORECAST, "file", str))
    if forecast.demand.slots_per_day != day or forecast.time_zone != clock.name:
        found = f"of {forecast.demand.slots_per_day} intervals a day, on clocks of {forecast.time_zone}"
        raise ModelError("forecast", found, f"must have {day}, on those of {clock.name}")
    return forecast
