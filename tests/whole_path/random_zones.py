"""Small random sample zones: zone files, plans, times of opening and change, households and meters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from hypothesis import strategies as st

from murmurate.time_zones import utc_offset_min

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
    """A kind of household with one household."""

    name: str
    bound_wh: int
    consumption: tuple[str, str]  # away and home, as in the zone file
    habits: tuple[int, ...]
    public: str  # "", "always" or hours


@dataclass(frozen=True, slots=True)
class SampleFile:
    """The contents of a zone file, and the noise of its plan."""

    intervals_per_day: int
    time_zone: str
    promises: tuple[str, ...]
    calibration: str
    habits: tuple[tuple[tuple[float, float], ...], ...]  # [model, period] probabilities to arrive and to leave
    kinds: tuple[SampleKind, ...]
    custom_noise: tuple[str, float, float] | None = (
        None  # distribution, factor on the least noise, factor where all are public
    )

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
calibration = "{self.calibration}"
[tariff]
alpha = "1"
beta = "0"
tick = "0.001"
{models}
{"".join(_kind(kind) for kind in self.kinds)}"""


def _model(number: int, chances: tuple[tuple[float, float], ...], noon: int) -> str:
    names = ("night", "day")[: len(chances)]
    starts = {"night": "00:00", "day": f"{noon // 60:02d}:{noon % 60:02d}"}
    periods, arrive, leave = (
        ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
        for values in ([f'"{starts[name]}"' for name in names], *zip(*chances, strict=True))
    )
    return f"[occupancy.m{number}]\nperiods = {{ {periods} }}\narrive = {{ {arrive} }}\nleave = {{ {leave} }}\n"


def _kind(kind: SampleKind) -> str:
    public = {"": "", "always": 'public = "always"'}.get(kind.public, f'public = ["{kind.public}"]')
    away, home = kind.consumption
    return f"""
[[households]]
name = "{kind.name}"
count = 1
bound_wh = {kind.bound_wh}
away = {away}
home = {home}
occupancy = [{", ".join(f'"m{number}"' for number in kind.habits)}]
{public}
"""


@dataclass(frozen=True, slots=True)
class SampleMeter:
    """One meter of the household of this kind."""

    kind: int
    bound_wh: int


@dataclass(frozen=True, slots=True)
class SampleZone:
    """A zone that is opened and perhaps changes its plan, with its households and meters."""

    files: tuple[SampleFile, ...]  # one, or two in succession
    first: int  # the interval of UTC that is released first
    intervals_per_plan: tuple[int, ...]
    without_demand: tuple[int, ...]  # the intervals for which no demand is submitted
    target: int  # the kind of the attacked household, under the first plan
    meters: tuple[SampleMeter, ...]
    names_kinds: bool  # whether the meter table names the kinds
    neighbour_wh: int  # the consumption of every other meter


@st.composite
def kinds(
    draw: st.DrawFn, day: int, number_of_habits: int, moment: bool, names: tuple[str, ...], targeted: bool
) -> tuple[SampleKind, ...]:
    minutes = 1440 // day
    hours = [f"{a * minutes // 60:02d}:00-{b * minutes // 60:02d}:00" for a in range(day) for b in range(day) if a != b]
    publics = ["", "", "always"] if moment else ["", "always", *hours]
    if targeted and not moment and draw(st.booleans()):  # a home and a larger shop with public hours
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
        sample_kinds.append(
            SampleKind(name, bound, (away, f"{{ uniform_to = {top} }}"), habits, draw(st.sampled_from(publics)))
        )
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


DELTA_PROMISES = tuple(named for named in PROMISES if all("delta" in promise for promise in named))
WEAK_PROMISES = (
    ("any moment: 9",),
    ("any moment: 9",),
    ("any moment: 3",),
)  # a plan change to one of these must be refused for a time


@st.composite
def files(draw: st.DrawFn, targeted: bool, gaussian: bool, like: SampleFile | None = None) -> SampleFile:
    choices = DELTA_PROMISES if gaussian else (*PROMISES, *WEAK_PROMISES) if targeted and like is not None else PROMISES
    promises = draw(st.sampled_from(choices))
    moment = any("moment" in promise for promise in promises)
    if like is None:
        day, time_zone = draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from(TIME_ZONES))
        probability = st.sampled_from(PROBABILITIES)
        habits = tuple(
            tuple((draw(probability), draw(probability)) for _ in range(draw(st.integers(1, 2))))
            for _ in range(draw(st.integers(1, 2)))
        )
    else:
        day, time_zone, habits = like.intervals_per_day, like.time_zone, like.habits
    copied = like is not None and draw(st.integers(0, 3)) > 0
    if like is not None and copied and not (moment and any(":" in kind.public for kind in like.kinds)):
        renamed = draw(st.booleans())
        sample_kinds = tuple(
            SampleKind(f"{k.name}s" if renamed else k.name, k.bound_wh, k.consumption, k.habits, k.public)
            for k in like.kinds
        )
    else:
        sample_kinds = draw(kinds(day, len(habits), moment, ("flat", "shop"), targeted))
    calibration = draw(st.sampled_from(["range", "range", "shift", "exact"]))
    custom_noise = draw(GAUSSIAN_NOISE if gaussian else st.none() | st.none() | CUSTOM_NOISE)
    return SampleFile(day, time_zone, promises, calibration, habits, sample_kinds, custom_noise)


FACTORS = (st.sampled_from([0.9, 1.0, 3.0, 30.0]), st.sampled_from([1.0, 1e-4]))
CUSTOM_NOISE = st.tuples(st.sampled_from(["laplace", "gaussian"]), *FACTORS)
GAUSSIAN_NOISE = st.tuples(st.just("gaussian"), *FACTORS)


@st.composite
def sample_zones(draw: st.DrawFn, targeted: bool = False, gaussian: bool = False) -> SampleZone:
    """Draw a sample zone. Targeted ones have more homes with shops, weaker second plans and renamed kinds.

    Gaussian ones have only promises that Gaussian noise can keep, and that noise.
    """
    first_file = draw(files(targeted, gaussian))
    single = draw(st.integers(0, 2)) == 0 if targeted else draw(st.booleans())
    zone_files = (first_file,) if single else (first_file, draw(files(targeted, gaussian, first_file)))
    renamed = {kind.name for kind in zone_files[-1].kinds}.isdisjoint(kind.name for kind in first_file.kinds)
    interval_s = 86_400 // first_file.intervals_per_day
    changes = [at for at in CLOCK_CHANGES.get(first_file.time_zone, ()) for _ in range(2)]
    near = draw(st.sampled_from([NORMAL_DAY, *changes]))
    target = draw(st.integers(0, len(first_file.kinds) - 1))
    intervals_per_plan = (
        (draw(st.integers(2, 6)),) if len(zone_files) == 1 else tuple(draw(st.integers(1, 3)) for _ in zone_files)
    )
    return SampleZone(
        files=zone_files,
        first=near // interval_s - draw(st.integers(0, 4)),
        intervals_per_plan=intervals_per_plan,
        without_demand=tuple(draw(st.sets(st.integers(0, sum(intervals_per_plan) - 1), max_size=1))),
        target=target,
        meters=draw(meters(first_file, targeted)),
        names_kinds=draw(st.booleans()) and not (targeted and renamed),
        neighbour_wh=draw(st.integers(0, 1)),
    )


@st.composite
def meters(draw: st.DrawFn, file: SampleFile, targeted: bool) -> tuple[SampleMeter, ...]:
    """Draw one or two meters for each household. Their bounds add up to the plan's bound, or are too large."""
    sample_meters = []
    for number, kind in enumerate(file.kinds):
        allowed = [kind.bound_wh] * (1 if targeted else 2)
        bound = draw(st.sampled_from([*allowed, max(each.bound_wh for each in file.kinds)]))
        first = draw(st.integers(1, bound))
        sample_meters += [SampleMeter(number, first)] + ([SampleMeter(number, bound - first)] if bound > first else [])
    return tuple(sample_meters)
