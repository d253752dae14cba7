"""Small random worlds: zones beside each other in one shard, their plans, meter tables, and how each reading arrives.

Of one household, the target, each meter shows other values in each of two variants. All else is the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.whole_path.habit_votes import learned_text
from tests.whole_path.random_zones import CLOCK_CHANGES, FORECASTS, NORMAL_DAY, TIME_ZONES, SampleFile, SampleKind

LOW, HIGH = -5, 1000  # what a meter shows that feeds in more than any bound, or that was manipulated [Wh]
BOTH_WAYS_WH = 3  # what a home with two registers draws, and feeds in, besides what its meter shows
VARIANTS = (0, 1)
ARRIVALS = ("once", "silent", "repeated", "late")  # late: after its interval was closed


@dataclass(frozen=True, slots=True)
class WorldMeter:
    """One meter of a zone."""

    kind: int
    household: int  # among those of its kind
    bounds_wh: tuple[int | None, int | None]  # in the first and in the second meter table; None: not in it
    imputed_wh: int  # what it counts while it is silent, where meter tables state that
    is_register: bool
    arrivals: tuple[str, ...]  # [interval]
    shown_wh: tuple[tuple[int, ...], tuple[int, ...]]  # [variant, interval]
    export_bound_wh: int = 0  # in both tables

    def register_rises_wh(self, shown_wh: int) -> tuple[int, int]:
        """Return what its registers of import and export rise. Where it may feed in, it does both in any interval."""
        if not self.export_bound_wh:
            return shown_wh, 0  # it has no register of export
        return max(shown_wh, 0) + BOTH_WAYS_WH, max(-shown_wh, 0) + BOTH_WAYS_WH


@dataclass(frozen=True, slots=True)
class WorldZone:
    """A zone: its plans in succession, and its meters."""

    name: str
    files: tuple[SampleFile, ...]
    changes: tuple[int, ...]  # before which of the intervals it asks for its second and its third plan
    meters: tuple[WorldMeter, ...]
    names_kinds: bool  # whether the meter tables name the kinds
    without_demand: tuple[int, ...]  # the intervals for which no demand is submitted

    def household_range_wh(self, kind: int, household: int, table: int) -> int:
        """Return the range of what the meters of a household may show together, under one of the meter tables."""
        mine = [meter for meter in self.meters if (meter.kind, meter.household) == (kind, household)]
        bounds = [(meter.bounds_wh[table], meter.export_bound_wh) for meter in mine]
        return sum(bound_wh + export_wh for bound_wh, export_wh in bounds if bound_wh is not None)


@dataclass(frozen=True, slots=True)
class World:
    """Zones in one shard, from their opening on."""

    intervals_per_day: int
    time_zone: str
    first: int  # the interval of UTC that is released first
    intervals: int
    lead: int
    quorum: float
    second_table: int  # the interval from which the second meter table is in force; `intervals`: it never is
    sends_json: bool  # instead of CSV
    has_readers: bool  # whether pages and API are asked
    zones: tuple[WorldZone, ...]
    has_constants: bool  # whether the meter tables state what a silent meter counts; else a public share of its bound

    @property
    def interval_s(self) -> int:
        return 86_400 // self.intervals_per_day

    def table_in_force(self, number: int) -> int:
        return int(number >= self.second_table)

    @property
    def spans_clock_change(self) -> bool:
        span = (self.first * self.interval_s, (self.first + self.intervals) * self.interval_s)
        return any(span[0] <= at < span[1] for at in CLOCK_CHANGES[self.time_zone])


def random_world(rng: Random) -> World:
    """Draw a world. Half of them have zones with predicted prices, whose intervals are hours."""
    predicted = rng.random() < 0.5
    day, time_zone = 24 if predicted else rng.choice([2, 3, 4]), TIME_ZONES[1] if predicted else rng.choice(TIME_ZONES)
    near = rng.choice([NORMAL_DAY, *CLOCK_CHANGES[time_zone]])
    intervals = rng.randint(2, 4)
    second_table = rng.randint(1, intervals - 1) if rng.random() < 0.4 else intervals
    base = _random_file(rng, day, time_zone)
    zones = []
    count = rng.choice([1, 2, 2, 3])
    with_target = rng.randrange(count)
    for number in range(count):
        has_forecast = predicted and rng.random() < 0.8
        file = replace(base, forecast=rng.choice(FORECASTS) if has_forecast else "")
        zones.append(_random_zone(rng, f"z{number}", file, intervals, second_table < intervals, number == with_target))
    return World(
        intervals_per_day=day,
        time_zone=time_zone,
        first=near // (86_400 // day) - rng.randint(0, 3),
        intervals=intervals,
        lead=rng.randint(1, 3),
        quorum=rng.choice([0.5, 0.9]),
        second_table=second_table,
        sends_json=rng.random() < 0.5,
        has_readers=rng.random() < 0.3 or len({file.promises for file in zones[0].files}) > 1,
        zones=tuple(zones),
        has_constants=rng.random() < 0.5,
    )


HABITS = (((0.02, 0.3),),)
FLAT = SampleKind("flat", 4, ("{ uniform_to = 1 }", "{ uniform_to = 4 }"), (0,), "", count=2)
SHOP = SampleKind("shop", 8, ("{ uniform_to = 1 }", "{ uniform_to = 8 }"), (0,), "always")
EXPORTS_WH = (0, 0, 2)
WINDOWS = ("any 6 intervals: epsilon 3", "any 6 intervals: epsilon 6")
NOISE = (("laplace", 1.0, 1.0), ("laplace", 3.0, 1.0), ("huber", 2.0, 1.0))


def _random_file(rng: Random, day: int, time_zone: str) -> SampleFile:
    """Draw a zone file from few, so that their plans are made once."""
    if day < 24 and rng.random() < 0.15:
        return SampleFile(day, time_zone, ("any moment: 3",), HABITS, (FLAT,), NOISE[0], learned=learned_text(day))
    opens_at = f"00:00-{24 // day * (day // 2):02d}:00"
    promise, kinds = rng.choice(
        [
            ("interval: 0.5", (FLAT, replace(SHOP, public=opens_at))),
            ("interval: 0.5", (SHOP,)),
            (rng.choice(WINDOWS), (FLAT, SHOP)),
            (rng.choice(WINDOWS), (replace(FLAT, count=3),)),
        ]
    )
    kinds = tuple(replace(kind, export_bound_wh=rng.choice(EXPORTS_WH)) for kind in kinds)
    return SampleFile(day, time_zone, (promise,), HABITS, kinds, rng.choice(NOISE))


def _random_zone(
    rng: Random, name: str, file: SampleFile, intervals: int, has_second_table: bool, has_target: bool
) -> WorldZone:
    files = [file]
    for _ in range(0 if file.learned else rng.choice([0, 0, 1, 2])):
        changed = replace(files[-1], custom_noise=rng.choice(NOISE))
        if all(
            kind.public == "always" for kind in changed.kinds
        ):  # the product refuses to add hardly any noise where all is public
            changed = replace(changed, custom_noise=("laplace", 1.0, rng.choice([1.0, 1e-4])))
        if changed.promises[0] in WINDOWS:
            changed = replace(changed, promises=(rng.choice(WINDOWS),))
        if file.intervals_per_day == 24 and rng.random() < 0.3:
            changed = replace(changed, forecast="" if changed.forecast else rng.choice(FORECASTS))
        files.append(changed)
    is_quiet = rng.random() < 0.2  # other households use nothing
    target = rng.choice([(kind, at) for kind, described in enumerate(file.kinds) for at in range(described.count)])
    meters = []
    for kind, described in enumerate(file.kinds):
        for household in range(described.count):
            bound = described.bound_wh + (rng.random() < 0.05)  # some may show more than the plan hides
            export = described.export_bound_wh + (described.export_bound_wh > 0 and rng.random() < 0.05)
            first = rng.randint(1, bound)
            fed_in = rng.randint(0, export) if bound > first else export
            is_target = has_target and (kind, household) == target
            meters += [
                _random_meter(rng, kind, household, *wh, intervals, has_second_table, is_quiet, is_target=is_target)
                for wh in ((first, fed_in), (bound - first, export - fed_in))
                if wh[0]
            ]
    return WorldZone(
        name=name,
        files=tuple(files),
        changes=tuple(sorted(rng.sample(range(1, intervals), min(len(files), intervals) - 1))),
        meters=tuple(meters),
        names_kinds=rng.random() < 0.5,
        without_demand=(rng.randrange(intervals),) if rng.random() < 0.1 else (),
    )


def _random_meter(
    rng: Random,
    kind: int,
    household: int,
    bound: int,
    export: int,
    intervals: int,
    has_second_table: bool,
    is_quiet: bool,
    *,
    is_target: bool,
) -> WorldMeter:
    bounds: tuple[int | None, int | None] = (bound, bound)
    if has_second_table and not is_target and bound > 1 and rng.random() < 0.3:
        bounds = rng.choice([(bound, None), (None, bound), (bound, bound - 1)])
    values = [0] if is_quiet and not is_target else [LOW, 0, *range(-export, bound + 1), HIGH]
    first, other = (tuple(rng.choice(values) for _ in range(intervals)) for _ in VARIANTS)
    return WorldMeter(
        kind=kind,
        household=household,
        bounds_wh=bounds,
        imputed_wh=0 if is_quiet else rng.randint(-export, bound),
        is_register=rng.random() < 0.3,
        arrivals=tuple(rng.choice(ARRIVALS) if rng.random() < 0.15 else "once" for _ in range(intervals)),
        shown_wh=(first, other if is_target else first),
        export_bound_wh=export,
    )
