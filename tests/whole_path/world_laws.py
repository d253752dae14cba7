"""What must hold in every world: each measured row has a draw of its own, and the public learns nothing else.

The demand is computed here from the readings, in plain Python; scale, core and distribution are read from plan.json.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import ceil, exp
from typing import Any

import numpy as np

from murmurate.privacy.noise import SystemNoise
from murmurate.privacy.promise import WindowPromise, parse_promise
from murmurate.public_log.tile import RowKind
from tests.whole_path.exact_loss import log_pmf
from tests.whole_path.public_bytes import public_bytes
from tests.whole_path.random_worlds import VARIANTS, World, WorldMeter, WorldZone
from tests.whole_path.simulated_history import NoiseRequest
from tests.whole_path.simulated_world import WorldRelease, WorldRun, ZoneRelease, aggregate_world, simulate_world

MAX_CHANCE_OF_ZERO = 0.9  # of a draw: beyond that a row shows the exact demand most of the time
SAMPLES, FALSE_ALARM = 6000, 1e-9  # of a test of the sampler
MAX_SAMPLED = 2  # tests of each distribution in a part of the run


def broken_laws(world: World, seen: Counter[str]) -> Iterator[str]:
    """Yield what is wrong in a world. The second variant gets the draws with which its noised demand is the same."""
    demands = aggregate_world(world)
    first = simulate_world(world, demands[0])
    seen["worlds"] += 1
    if first is None:
        seen["worlds refused"] += 1
        return
    _count_contents(world, first, seen)
    shifts = []  # [draw] by how much less the second variant uses
    for release in first.releases:
        yield from _broken_draws(world, first, release, 0)
        used = {
            variant: [true_demand_wh(world, zone, release.number, variant) for zone in range(len(world.zones))]
            for variant in VARIANTS
        }
        zone_of_draw = {
            _noised_wh(zone) - used[0][zone.zone] - fill: zone.zone
            for zone in _measured(release)
            for fill in silent_range_wh(world, zone.zone, release.number)
        }
        shifts += [used[0][zone_of_draw[drawn]] - used[1][zone_of_draw[drawn]] for _, drawn in release.draws]
    seen["draws that differ between variants"] += sum(shift != 0 for shift in shifts)
    one = public_bytes(world, first)
    second = simulate_world(world, demands[1], shifts)
    for release in second.releases:
        yield from _broken_draws(world, second, release, 1)
    other = public_bytes(world, second)
    yield from (f"{name} depends on more than the noised demand" for name in one if one[name] != other.get(name))
    seen["tiles, lines and tables compared"] += sum(not name.startswith("/") for name in one)
    seen["pages and answers compared"] += sum(name.startswith("/") for name in one)
    yield from _broken_claims(world, first, one, seen)
    yield from _broken_samples(first, seen)


def _measured(release: WorldRelease) -> list[ZoneRelease]:
    return [zone for zone in release.zones if zone.row["kind"] == RowKind.MEASURED]


@cache
def chance_of_zero(request: NoiseRequest) -> float:
    return float(np.exp(log_pmf(request, np.array([0]))[0]))


def _broken_samples(run: WorldRun, seen: Counter[str]) -> Iterator[str]:
    """Yield a distribution that `SystemNoise` does not sample as requested, for the first requests of each.

    By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, right samples are further off than the limit with
    a probability of at most `FALSE_ALARM`.
    """
    limit = np.sqrt(np.log(2 / FALSE_ALARM) / (2 * SAMPLES))
    for request in dict.fromkeys(request for release in run.releases for request, _ in release.draws):
        name = f"{request.distribution.value} distributions sampled"
        if seen[name] < MAX_SAMPLED:
            seen[name] += 1
            size = int(40 * request.scale_wh + request.core_wh)
            cores = np.full(SAMPLES, request.core_wh) if request.core_wh else None
            drawn = SystemNoise().draw(request.distribution, np.full(SAMPLES, request.scale_wh), cores)
            at_most = np.searchsorted(np.sort(drawn), np.arange(-size, size + 1), side="right") / SAMPLES
            off = np.abs(at_most - np.cumsum(np.exp(log_pmf(request, np.arange(-size, size + 1))))).max()
            if off > limit:
                yield f"samples of {_describe(request)} are off by {off:.4f}; at most {limit:.4f} is chance"


def _broken_draws(world: World, run: WorldRun, release: WorldRelease, variant: int) -> Iterator[str]:
    """Yield each row that is measured without a fresh draw of the noise that its plan proves."""
    measured = _measured(release)
    if len(measured) != len(release.draws):
        yield f"{len(release.draws)} draws for {len(measured)} measured rows"
    unused = list(release.draws)
    for zone in measured:
        described = world.zones[zone.zone]
        if (reason := not_hidden_reason(world, described, run, zone, release.number)) is not None:
            yield f"a row is measured although {reason}"
        demand = true_demand_wh(world, zone.zone, release.number, variant)
        needed = _proven_noise(world, run, zone, release.number)
        fills = silent_range_wh(world, zone.zone, release.number)
        possible = [(needed, _noised_wh(zone) - demand - fill) for fill in fills]
        draw = next((each for each in possible if each in unused), possible[-fills[0]])
        if draw in unused:
            unused.remove(draw)
        elif draw in release.draws:
            yield "two rows share a draw"
        elif drawn := [request for request, drawn in release.draws if drawn == draw[1]]:
            yield f"noise is {_describe(drawn[0])}, and the plan proves {_describe(needed)}"
        else:
            yield "a row does not show its demand with a fresh draw"
        if chance_of_zero(needed) > MAX_CHANCE_OF_ZERO:
            yield "the noise of a row is most often 0"
        if (float(zone.row["scale_wh"]), int(zone.row["core_wh"])) != (needed.scale_wh, needed.core_wh):
            yield "a row states other noise than its plan"


def _broken_claims(world: World, run: WorldRun, public: dict[str, bytes], seen: Counter[str]) -> Iterator[str]:
    """Yield a page that states only the stronger promise for a stretch of time across a change of plan.

    Under one plan a page states what its noise gives, which is less than epsilon allows.
    """
    plans = [json.loads(text) for text in run.plans[0]]
    windows = [parse_promise(plan["promises"][0]["promise"], world.intervals_per_day) for plan in plans]
    in_force = windows[run.releases[-1].zones[0].plan]
    if not isinstance(in_force, WindowPromise) or not world.has_readers:
        return
    oldest = run.head.interval + world.lead - in_force.intervals + 1  # of the stretch that ends now
    current = run.releases[-1].zones[0].plan
    recent = {each.zones[0].plan for each in run.releases if world.first + each.number >= oldest} | {current}
    recent = {number for number in recent if _reads_meters(plans[number])}  # others cost nothing
    if not recent:
        return  # the page states that no meter is read
    weakest = max(windows[number].epsilon for number in recent)
    seen["pages after a change to a stronger promise"] += weakest > in_force.epsilon
    right = ceil(100 / (1 + exp(-float(weakest))))
    if len(recent) == 1:
        right = min(right, ceil(100 * plans[recent.pop()]["promises"][0]["right_guesses"]))
    for path in ("", "?lang=de", "/plan", "/plan?lang=de"):
        if f"{right}:{100 - right}" not in public[f"/zones/{world.zones[0].name}{path}"].decode():
            yield f"a page states a stronger promise than {weakest} for a stretch across a change: {path}"


def _describe(request: NoiseRequest) -> str:
    return f"{request.distribution.value} of scale {request.scale_wh:.4g} and core {request.core_wh}"


def _reads_meters(plan: dict[str, Any]) -> bool:
    return bool(plan.get("prediction", {}).get("read_meters", True))


def _noised_wh(zone: ZoneRelease) -> int:
    """Return what a row shows: without a forecast a tick of the price is a watt-hour."""
    return int(zone.row["noisy_wh" if "noisy_wh" in (zone.row.dtype.names or ()) else "price_ticks"])


def _proven_noise(world: World, run: WorldRun, zone: ZoneRelease, number: int) -> NoiseRequest:
    """Return the noise that plan.json states for the interval, whose slot counts from midnight of UTC."""
    plan = json.loads(run.plans[zone.zone][zone.plan])
    slot = (world.first + number) * world.interval_s % 86_400 // world.interval_s
    return NoiseRequest.from_document(plan["noise"], plan["scale_wh"][slot], plan["core_wh"][slot])


def not_hidden_reason(world: World, described: WorldZone, run: WorldRun, zone: ZoneRelease, number: int) -> str | None:
    """Return why a demand must not be measured: too few meters report, or a household may show more than is hidden."""
    table = world.table_in_force(number)
    present = [meter for meter in described.meters if meter.bounds_wh[table] is not None]
    reported = [meter for meter in present if reading_wh(world, meter, number, 0) is not None]
    if len(reported) < world.quorum * len(present):
        return f"{len(reported)} of {len(present)} meters report"
    if number in described.without_demand:
        return "no demand was submitted"
    plan = json.loads(run.plans[zone.zone][zone.plan])
    if not _reads_meters(plan):
        return "its plan reads no meter"
    kinds = plan["households"]
    for kind, household in {(meter.kind, meter.household) for meter in present}:
        range_wh = described.household_range_wh(kind, household, table)
        alike = [kinds[kind]] if described.names_kinds else [k for k in kinds if k["public"] == kinds[kind]["public"]]
        # kinds that differ in their range alone hide each other
        hidden_wh = max(each["bound_wh"] + each.get("export_bound_wh", 0) for each in alike)
        if range_wh > hidden_wh:
            return f"readings of a household may span {range_wh} Wh, and its kind is hidden up to {hidden_wh}"
    return None


def true_demand_wh(world: World, zone: int, number: int, variant: int) -> int:
    """Return the demand of a zone, from what its meters show."""
    table, demand = world.table_in_force(number), 0
    for meter in world.zones[zone].meters:
        bound = meter.bounds_wh[table]
        if bound is not None:
            reading = reading_wh(world, meter, number, variant)
            silent_wh = meter.imputed_wh if world.has_constants else 0
            counted = silent_wh if reading is None else max(reading, -meter.export_bound_wh)
            demand += min(counted, bound)
    return demand


def silent_range_wh(world: World, zone: int, number: int) -> range:
    """Return what silent meters may add to the demand where no meter table states it: up to their bounds, both ways."""
    table = world.table_in_force(number)
    bounds = [
        (meter.bounds_wh[table] or 0, meter.export_bound_wh)
        for meter in world.zones[zone].meters
        if meter.bounds_wh[table] is not None and reading_wh(world, meter, number, 0) is None
    ]
    most, least = (0, 0) if world.has_constants or not bounds else map(sum, zip(*bounds, strict=True))
    return range(-least, most + 1)


def reading_wh(world: World, meter: WorldMeter, number: int, variant: int) -> int | None:
    """Return what a meter shows in an interval, as far as that arrives in time; None: it is silent."""
    arrival, shown = meter.arrivals[number], meter.shown_wh[variant][number]
    if not meter.is_register:
        return shown if arrival in {"once", "repeated"} else None
    was_here = meter.bounds_wh[world.table_in_force(max(number - 1, 0))] is not None
    if arrival == "silent" or not was_here:
        return None
    drawn_wh, fed_in_wh = meter.register_rises_wh(shown)
    return max(drawn_wh, 0) * 10 // 8 - fed_in_wh * 10 // 8  # two points lie eight tenths of an interval apart


def _count_contents(world: World, run: WorldRun, seen: Counter[str]) -> None:
    """Count what the generator has made, so that nothing that it should make is missing for ever."""
    rows = [zone for release in run.releases for zone in release.zones]
    measured = [zone for release in run.releases for zone in _measured(release)]
    seen["measured rows"] += len(measured)
    public = [zone for zone in rows if not _reads_meters(json.loads(run.plans[zone.zone][zone.plan]))]
    seen["public rows"] += len(public)
    seen["fallback rows"] += len(rows) - len(measured) - len(public)
    predicted = [zone for zone in measured if "prediction" in json.loads(run.plans[zone.zone][zone.plan])]
    seen["predicted rows"] += len(predicted)
    for release in run.releases:
        own = [zone for zone in predicted if any(zone is each for each in release.zones)]
        seen["tiles with two and more predicted zones"] += len(own) > 1
        for zone, described in enumerate(world.zones):
            table = world.table_in_force(release.number)
            present = [meter for meter in described.meters if meter.bounds_wh[table] is not None]
            silent = [meter for meter in present if reading_wh(world, meter, release.number, 0) is None]
            fed_in = [meter for meter in present if meter.export_bound_wh and meter not in silent]
            is_measured = release.zones[zone].row["kind"] == RowKind.MEASURED
            seen["silent meters in measured rows"] += len(silent) if is_measured else 0
            shared = len(silent) if is_measured and not world.has_constants else 0
            seen["silent meters at a public share in measured rows"] += shared
            seen["meters that may feed in in measured rows"] += len(fed_in) if is_measured else 0
            seen["missed quorums"] += len(present) - len(silent) < world.quorum * len(present)
            arrivals = Counter(meter.arrivals[release.number] for meter in present if not meter.is_register)
            seen["late readings"] += arrivals["late"]
            seen["repeated readings"] += arrivals["repeated"]
            seen["meters with two registers in measured rows"] += is_measured * sum(each.is_register for each in fed_in)
            seen["register readings"] += sum(meter.is_register and meter not in silent for meter in present)
    in_force = [len({release.zones[zone].plan for release in run.releases}) for zone in range(len(world.zones))]
    seen["zones with two plans"] += sum(plans == 2 for plans in in_force)
    seen["zones with three plans"] += sum(plans == 3 for plans in in_force)
    seen["second meter tables"] += world.second_table < world.intervals
    seen["clock changes"] += world.spans_clock_change
    households = Counter((at, m.kind, m.household) for at, zone in enumerate(world.zones) for m in zone.meters)
    seen["households with several meters"] += sum(meters > 1 for meters in households.values())
    seen["zones with learned habits"] += sum(bool(zone.files[0].learned) for zone in world.zones)
    seen["Huber draws"] += sum(bool(request.core_wh) for release in run.releases for request, _ in release.draws)
