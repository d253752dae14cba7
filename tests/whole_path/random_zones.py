"""Small random sample zones: zone files, plans, times of opening and change, households and meters."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hypothesis import strategies as st

from murmurate.time_zones import utc_offset_min
from tests.whole_path.habit_votes import LEARNED_MODELS, learned_text

TIME_ZONES = ("UTC", "Europe/Zurich", "America/New_York", "Asia/Kathmandu", "Pacific/Auckland")
NORMAL_DAY = 1_780_012_800  # 2026-05-29 [s of UTC], without a clock change


def _clock_changes(name: str) -> tuple[int, ...]:
    """Return the hours of 2026 in which the UTC offset changes [s of UTC]."""
    new_year = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    hours = range(new_year, new_year + 365 * 86_400, 3600)
    return tuple(at for at in hours if utc_offset_min(name, at) != utc_offset_min(name, at - 1))


CLOCK_CHANGES = {name: _clock_changes(name) for name in TIME_ZONES}
PROBABILITIES = (0.001, 0.02, 0.3, 0.9, 0.999)
CONSUMPTIONS = (("{ uniform_to = 0 }", "top"), ("{ uniform_to = 1 }", "top"), ("{ uniform_to = 0 }", "spread"))


@dataclass(frozen=True, slots=True)
class SampleKind:
    """A kind of household."""

    name: str
    bound_wh: int
    consumption: tuple[str, str]  # away and home, as in the zone file
    habits: tuple[int, ...]
    public: str  # "", "always" or hours
    count: int = 1  # of households
    export_bound_wh: int = 0

    @property
    def range_wh(self) -> int:
        return self.bound_wh + self.export_bound_wh


@dataclass(frozen=True, slots=True)
class SampleFile:
    """The contents of a zone file, and the noise of its plan."""

    intervals_per_day: int
    time_zone: str
    promises: tuple[str, ...]
    habits: tuple[tuple[tuple[float, float], ...], ...]  # [model, period] probabilities to arrive and to leave
    kinds: tuple[SampleKind, ...]
    custom_noise: tuple[str, float, float] | None = (
        None  # distribution, factor on the least noise, factor where all are public
    )
    forecast: str = ""  # the table [forecast] of a zone whose prices are predicted
    learned: str = ""  # what `murmurate habits` wrote for it

    def text(self) -> str:
        minutes = 1440 // self.intervals_per_day
        models = "".join(
            _model(number, model, minutes * (self.intervals_per_day // 2)) for number, model in enumerate(self.habits)
        )
        return f"""
name = "quay"
currency = "EUR"
interval_minutes = {minutes}
time_zone = "{self.time_zone}"
promise = [{", ".join(f'"{promise}"' for promise in self.promises)}]
[tariff]
alpha = "1"
beta = "0"
tick = "0.001"
{models}
{self.learned}
{self.forecast}
{"".join(_kind(kind, learned=bool(self.learned)) for kind in self.kinds)}"""


def _model(number: int, chances: tuple[tuple[float, float], ...], noon: int) -> str:
    names = ("night", "day")[: len(chances)]
    starts = {"night": "00:00", "day": f"{noon // 60:02d}:{noon % 60:02d}"}
    periods, arrive, leave = (
        ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
        for values in ([f'"{starts[name]}"' for name in names], *zip(*chances, strict=True))
    )
    return f"[occupancy.m{number}]\nperiods = {{ {periods} }}\narrive = {{ {arrive} }}\nleave = {{ {leave} }}\n"


def _kind(kind: SampleKind, *, learned: bool) -> str:
    public = {"": "", "always": 'public = "always"'}.get(kind.public, f'public = ["{kind.public}"]')
    away, home = kind.consumption
    models = LEARNED_MODELS if learned else [f"m{number}" for number in kind.habits]
    return f"""
[[households]]
name = "{kind.name}"
count = {kind.count}
bound_wh = {kind.bound_wh}
{f"export_bound_wh = {kind.export_bound_wh}" if kind.export_bound_wh else ""}
away = {away}
home = {home}
occupancy = {json.dumps(models)}
{public}
"""


@dataclass(frozen=True, slots=True)
class SampleMeter:
    """One meter of a household of this kind."""

    kind: int
    bound_wh: int
    household: int = 0  # among those of its kind; the first is the target
    export_bound_wh: int = 0


@dataclass(frozen=True, slots=True)
class SampleZone:
    """A zone that is opened and perhaps changes its plan, with its households and meters."""

    files: tuple[SampleFile, ...]  # one, two or three in succession
    first: int  # the interval of UTC that is released first
    intervals_per_plan: tuple[int, ...]
    without_demand: tuple[int, ...]  # the intervals for which no demand is submitted
    target: int  # the kind of the attacked household, under the first plan
    meters: tuple[SampleMeter, ...]
    names_kinds: bool  # whether the meter table names the kinds
    neighbour_wh: int  # the consumption of every other meter


@st.composite
def kinds(
    draw: st.DrawFn, day: int, number_of_habits: int, moment: bool, names: tuple[str, ...], focus: str
) -> tuple[SampleKind, ...]:
    begins = [slot * 24 // day for slot in range(0, day, max(1, day // 4))]
    hours = [f"{a:02d}:00-{b:02d}:00" for a in begins for b in begins if a != b]
    publics = [""] if focus == "moments" else ["", "", "always"] if moment else ["", "always", *hours]
    if not moment and (
        focus == "hours" or (focus == "households" and draw(st.booleans()))
    ):  # a home and a larger shop with public hours
        consumption, habits = ("{ uniform_to = 1 }", "{ uniform_to = 2 }"), (0,)
        return (
            SampleKind(names[0], 2, consumption, habits, ""),
            SampleKind(names[1], 8, ("{ uniform_to = 1 }", "{ uniform_to = 8 }"), habits, draw(st.sampled_from(hours))),
        )
    sample_kinds = []
    for name in names[: draw(st.sampled_from([1, 2, 2]))]:
        bound = draw(st.sampled_from([1, 2, 8]))
        away, home = draw(st.sampled_from(CONSUMPTIONS))
        top = {"top": bound, "spread": max(1, bound // 2)}[home]
        habits = draw(st.sampled_from([(0,), tuple(range(number_of_habits))]))
        export = draw(st.sampled_from([0, 0, 1, 5]))
        if export and draw(st.booleans()):
            away = f"{{ uniform_from = -{export}, uniform_to = 0 }}"
        consumption, public = (away, f"{{ uniform_to = {top} }}"), draw(st.sampled_from(publics))
        count = draw(st.integers(1, 2))
        sample_kinds.append(SampleKind(name, bound, consumption, habits, public, count, export))
    return tuple(sample_kinds)


PROMISES = (
    ("interval: 0.5",),
    ("any moment: 1",),
    ("any moment: 0.5",),
    ("any moment: 3",),
    ("any moment: 9",),
    ("any 2 intervals: epsilon 1",),
    ("any 2 intervals: epsilon 2",),
    ("any 2 intervals: epsilon 2, delta 0.01",),
    ("any 3 intervals: epsilon 1, delta 0.01", "any moment: 1"),
    ("any 2 intervals: epsilon 1/2, delta 0.001", "any moment: 2"),
)


MOMENTS = tuple(named for named in PROMISES if all("moment" in promise for promise in named))
NO_MOMENTS = tuple(named for named in PROMISES if not any("moment" in promise for promise in named))
DELTA_PROMISES = tuple(named for named in PROMISES if all("delta" in promise for promise in named))
WEAK_PROMISES = (
    ("any moment: 9",),
    ("any moment: 9",),
    ("any moment: 3",),
)  # a plan change to one of these must be refused for a time


FORECASTS = tuple(
    f'[forecast]\nfrom = "occupancy"\nelasticity = {elasticity}\n{series}'
    for elasticity in (0.0, 0.2)
    for series in ("", 'deviation = "regional load"\n')
)
FORECASTS += (f"{FORECASTS[-1]}read_meters = false\n",)


@st.composite
def files(draw: st.DrawFn, focus: str, like: SampleFile | None = None) -> SampleFile:
    choices = {"gaussian": DELTA_PROMISES, "moments": MOMENTS, "hours": NO_MOMENTS}.get(focus, PROMISES)
    if focus == "households" and like is not None:
        choices = (*PROMISES, *WEAK_PROMISES)
    only_moments = focus == "moments"
    can_predict = like is None and focus in {"", "households"}
    forecast = draw(st.sampled_from([*FORECASTS, *[""] * 12])) if can_predict else "" if like is None else like.forecast
    if forecast:  # an hour is the longest interval with a forecast, and the proof of a moment in 24 of them takes long
        choices = NO_MOMENTS
    promises = draw(st.sampled_from(choices))
    moment = any("moment" in promise for promise in promises)
    if like is None:
        day, time_zone = 24 if forecast else draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from(TIME_ZONES))
        probability = st.sampled_from(PROBABILITIES)
        habits = tuple(
            tuple((draw(probability), draw(probability)) for _ in range(2 if only_moments else draw(st.integers(1, 2))))
            for _ in range(draw(st.integers(1, 2)))
        )
        learned = learned_text(day) if moment and not only_moments and not draw(st.integers(0, 7)) else ""
    else:
        day, time_zone, habits, learned = like.intervals_per_day, like.time_zone, like.habits, like.learned
    copied = like is not None and draw(st.integers(0, 3)) > 0
    if like is not None and copied and not (moment and any(":" in kind.public for kind in like.kinds)):
        renamed = draw(st.booleans())
        sample_kinds = tuple(replace(k, name=f"{k.name}s" if renamed else k.name) for k in like.kinds)
    else:
        sample_kinds = draw(kinds(day, len(habits), moment, ("flat", "shop"), focus))
    own_noise = {"gaussian": GAUSSIAN_NOISE, "moments": st.none()}.get(focus, st.none() | st.none() | CUSTOM_NOISE)
    custom_noise = draw(own_noise)
    return SampleFile(day, time_zone, promises, habits, sample_kinds, custom_noise, forecast, learned)


FACTORS = (st.sampled_from([0.9, 1.0, 3.0, 30.0]), st.sampled_from([1.0, 1e-4]))
CUSTOM_NOISE = st.tuples(st.sampled_from(["laplace", "gaussian"]), *FACTORS)
GAUSSIAN_NOISE = st.tuples(st.just("gaussian"), *FACTORS)


@st.composite
def sample_zones(draw: st.DrawFn, focus: str = "") -> SampleZone:
    """Draw a sample zone. A focus draws more of what finds some bugs sooner.

    households: more homes with shops, weaker second plans and renamed kinds; hours: one plan for a home and a shop with
    public hours; moments: one plan that promises a moment, with the least noise; gaussian: only promises that Gaussian
    noise can keep, and that noise.
    """
    first_file = draw(files(focus))
    single = focus in {"moments", "hours"} or (
        draw(st.integers(0, 2)) == 0 if focus == "households" else draw(st.booleans())
    )
    zone_files = [first_file]
    if not single:
        zone_files.append(draw(files(focus, first_file)))
        if not draw(st.integers(0, 2)):  # and back again, perhaps with other noise
            zone_files.append(draw(st.sampled_from([first_file, replace(first_file, custom_noise=None)])))
    renamed = {kind.name for kind in zone_files[-1].kinds}.isdisjoint(kind.name for kind in first_file.kinds)
    interval_s = 86_400 // first_file.intervals_per_day
    changes = [at for at in CLOCK_CHANGES.get(first_file.time_zone, ()) for _ in range(2)]
    near = draw(st.sampled_from([NORMAL_DAY, *changes]))
    target = draw(st.integers(0, len(first_file.kinds) - 1))
    intervals_per_plan = (
        (draw(st.integers(2, 6)),)
        if len(zone_files) == 1
        else tuple(draw(st.integers(1, 6 // len(zone_files))) for _ in zone_files)
    )
    return SampleZone(
        files=tuple(zone_files),
        first=near // interval_s - draw(st.integers(0, 4)),
        intervals_per_plan=intervals_per_plan,
        without_demand=tuple(draw(st.sets(st.integers(0, sum(intervals_per_plan) - 1), max_size=1))),
        target=target,
        meters=draw(meters(first_file, focus in {"households", "hours"})),
        names_kinds=draw(st.booleans()) and not (focus == "households" and renamed),
        neighbour_wh=draw(st.integers(-1, 1)),
    )


@st.composite
def meters(draw: st.DrawFn, file: SampleFile, targeted: bool) -> tuple[SampleMeter, ...]:
    """Draw one or two meters for each household. Their ranges add up to the plan's range, or are too large.

    How much of the range lies below zero is that of the kind or, if it may feed in, any part of the range.
    """
    sample_meters = []
    for number, kind in enumerate(file.kinds):
        for household in range(kind.count):
            allowed = [kind.range_wh] * (1 if targeted else 2)
            range_wh = draw(st.sampled_from([*allowed, max(each.range_wh for each in file.kinds)]))
            exports = [kind.export_bound_wh, draw(st.integers(0, range_wh - 1))] if kind.export_bound_wh else [0]
            export = draw(st.sampled_from(exports))
            bound = range_wh - export
            first, fed_in = draw(st.integers(1, bound)), draw(st.integers(0, export))
            if bound == first:
                fed_in = export
            sample_meters.append(SampleMeter(number, first, household, fed_in))
            if bound > first:
                sample_meters.append(SampleMeter(number, bound - first, household, export - fed_in))
    return tuple(sample_meters)
