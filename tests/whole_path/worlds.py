"""Small random worlds: zone files, how their plans are made, when they open and change, who lives there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from hypothesis import strategies as st

from murmurate.time_zones import offset_min

ZONES = ("UTC", "Europe/Zurich", "America/New_York", "Asia/Kathmandu", "Pacific/Auckland")
SOME_DAY = 1_780_012_800  # 2026-05-29, [s of UTC]


def _clock_changes(name: str) -> tuple[int, ...]:
    """The hours of 2026, UTC, after which clocks show another offset [s of UTC]."""
    new_year = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    hours = range(new_year, new_year + 365 * 86_400, 3600)
    return tuple(at for at in hours if offset_min(name, at) != offset_min(name, at - 1))


CLOCK_CHANGES = {name: _clock_changes(name) for name in ZONES}
CHANCES = (0.001, 0.02, 0.3, 0.9, 0.999)
LAWS = (("{ uniform_to = 0 }", "top"), ("{ uniform_to = 1 }", "top"), ("{ uniform_to = 0 }", "spread"))


@dataclass(frozen=True, slots=True)
class Kind:
    """One household of its kind."""

    name: str
    bound_wh: int
    laws: tuple[str, str]  # as in the zone file
    habits: tuple[int, ...]
    public: str  # "", "always" or hours


@dataclass(frozen=True, slots=True)
class File:
    """A zone file, and how a plan is made from it."""

    day: int  # intervals
    time_zone: str
    promises: tuple[str, ...]
    calibration: str
    habits: tuple[tuple[tuple[float, float], ...], ...]  # [model, period] chances to arrive and to leave
    kinds: tuple[Kind, ...]
    by_hand: tuple[str, float, float] | None = None  # law, factor on the least noise, factor where all are public

    def text(self) -> str:
        minutes = 1440 // self.day
        models = "".join(_model(number, model, minutes * (self.day // 2)) for number, model in enumerate(self.habits))
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


def _kind(kind: Kind) -> str:
    public = {"": "", "always": 'public = "always"'}.get(kind.public, f'public = ["{kind.public}"]')
    away, home = kind.laws
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
class Meter:
    """One meter of the household of a kind."""

    kind: int
    bound_wh: int


@dataclass(frozen=True, slots=True)
class World:
    """A life: a zone is opened, perhaps put under another plan, and a household lives in it."""

    files: tuple[File, ...]  # one, or two in succession
    first: int  # the interval of UTC that is released first
    lived: tuple[int, ...]  # intervals under each plan
    silent: tuple[int, ...]  # of these, those in which no demand is handed over
    target: int  # the kind whose household is attacked, under the first plan
    meters: tuple[Meter, ...]
    names_kinds: bool  # whether the meter table says which kind a household is
    neighbour_wh: int  # what everybody else uses


@st.composite
def kinds(
    draw: st.DrawFn, day: int, number_of_habits: int, moment: bool, names: tuple[str, ...], sharp: bool
) -> tuple[Kind, ...]:
    minutes = 1440 // day
    hours = [f"{a * minutes // 60:02d}:00-{b * minutes // 60:02d}:00" for a in range(day) for b in range(day) if a != b]
    publics = ["", "", "always"] if moment else ["", "always", *hours]
    if sharp and not moment and draw(st.booleans()):  # a home beside a larger shop with hours
        laws, habits = ("{ uniform_to = 1 }", "{ uniform_to = 2 }"), (0,)
        return (
            Kind(names[0], 2, laws, habits, ""),
            Kind(names[1], 8, ("{ uniform_to = 1 }", "{ uniform_to = 8 }"), habits, draw(st.sampled_from(hours))),
        )
    found = []
    for name in names[: draw(st.sampled_from([1, 2, 2]))]:
        bound = draw(st.sampled_from([1, 2, 8]))
        away, home = draw(st.sampled_from(LAWS))
        top = {"top": bound, "spread": max(1, bound // 2)}[home]
        habits = draw(st.sampled_from([(0,), tuple(range(number_of_habits))]))
        found.append(Kind(name, bound, (away, f"{{ uniform_to = {top} }}"), habits, draw(st.sampled_from(publics))))
    return tuple(found)


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


LOUD = (("any moment: 9",), ("any moment: 9",), ("any moment: 3",))  # what a second plan may not follow with at once


@st.composite
def files(draw: st.DrawFn, sharp: bool, like: File | None = None) -> File:
    promises = draw(st.sampled_from((*PROMISES, *LOUD) if sharp and like is not None else PROMISES))
    moment = any("moment" in promise for promise in promises)
    if like is None:
        day, time_zone = draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from(ZONES))
        chance = st.sampled_from(CHANCES)
        habits = tuple(
            tuple((draw(chance), draw(chance)) for _ in range(draw(st.integers(1, 2))))
            for _ in range(draw(st.integers(1, 2)))
        )
    else:
        day, time_zone, habits = like.day, like.time_zone, like.habits
    copied = like is not None and draw(st.integers(0, 3)) > 0
    if like is not None and copied and not (moment and any(":" in kind.public for kind in like.kinds)):
        renamed = draw(st.booleans())
        some = tuple(
            Kind(f"{k.name}s" if renamed else k.name, k.bound_wh, k.laws, k.habits, k.public) for k in like.kinds
        )
    else:
        some = draw(kinds(day, len(habits), moment, ("flat", "shop"), sharp))
    calibration = draw(st.sampled_from(["range", "range", "shift", "exact"]))
    by_hand = draw(st.none() | st.none() | HANDS)
    return File(day, time_zone, promises, calibration, habits, some, by_hand)


HANDS = st.tuples(
    st.sampled_from(["laplace", "gaussian"]), st.sampled_from([0.9, 1.0, 3.0, 30.0]), st.sampled_from([1.0, 1e-4])
)


@st.composite
def worlds(draw: st.DrawFn, sharp: bool = False) -> World:
    """Any world; the sharp ones have more homes beside shops, louder plans that follow, and kinds renamed."""
    one = draw(files(sharp))
    alone = draw(st.integers(0, 2)) == 0 if sharp else draw(st.booleans())
    some = (one,) if alone else (one, draw(files(sharp, one)))
    renamed = {kind.name for kind in some[-1].kinds}.isdisjoint(kind.name for kind in one.kinds)
    step = 86_400 // one.day
    changes = [at for at in CLOCK_CHANGES.get(one.time_zone, ()) for _ in range(2)]
    near = draw(st.sampled_from([SOME_DAY, *changes]))
    target = draw(st.integers(0, len(one.kinds) - 1))
    lived = (draw(st.integers(2, 6)),) if len(some) == 1 else tuple(draw(st.integers(1, 3)) for _ in some)
    return World(
        files=some,
        first=near // step - draw(st.integers(0, 4)),
        lived=lived,
        silent=tuple(draw(st.sets(st.integers(0, sum(lived) - 1), max_size=1))),
        target=target,
        meters=draw(meters(one, sharp)),
        names_kinds=draw(st.booleans()) and not (sharp and renamed),
        neighbour_wh=draw(st.integers(0, 1)),
    )


@st.composite
def meters(draw: st.DrawFn, file: File, sharp: bool) -> tuple[Meter, ...]:
    """One or two meters for each household; their bounds are those of the plan, together, or one is too large."""
    found = []
    for number, kind in enumerate(file.kinds):
        own = [kind.bound_wh] * (1 if sharp else 2)
        bound = draw(st.sampled_from([*own, max(each.bound_wh for each in file.kinds)]))
        first = draw(st.integers(1, bound))
        found += [Meter(number, first)] + ([Meter(number, bound - first)] if bound > first else [])
    return tuple(found)
