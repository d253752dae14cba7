"""What must hold after any faults, computed from what was measured and acknowledged, without the product's own code.

The landing, the state and the log are read as their operator reads them. Nothing of it is printed: a violation names
intervals, zones and counts of meters, never an energy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S
from murmurate.service.landing.layout import interval_name
from tests.chaos.meters import BARE, BOUND_WH, IMPUTED_WH, METERS, STEP_S, ZONES, TrueEnergy, zone_of

Demand = tuple[int, int, int]  # energy [Wh], meters that reported, meters that did not


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the oracle judges."""

    landing: Path
    truth: TrueEnergy
    last: int  # the last interval that must be decided
    acknowledged: Callable[[int], frozenset[int]]  # meters by interval
    demand: Mapping[tuple[int, str], Demand]  # in the state, by interval and zone
    released: Mapping[str, list[tuple[int, str]]]  # in the log, by zone: interval and kind of row


@dataclass
class Verdict:
    """What is wrong, and what was counted."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def judge(evidence: Evidence) -> Verdict:
    """Check every interval from the first to the last."""
    verdict = Verdict()
    intervals = range(evidence.truth.first, evidence.last + 1)
    kinds = {zone: _check_chain(zone, evidence.released[zone], intervals, verdict) for zone in ZONES}
    for interval in intervals:
        _check_interval(evidence, interval, {zone: kinds[zone].get(interval) for zone in ZONES}, verdict)
    verdict.counts["intervals"] = len(intervals)
    return verdict


def judge_static(folder: Path, tiles: Mapping[str, list[bytes]]) -> list[str]:
    """Check a folder of static files against the tiles of the log, by shard: every tile is there, and listed."""
    try:
        listed = {each["shard"]: each["seq"] + 1 for each in json.loads((folder / "shards").read_bytes())}
    except (OSError, ValueError, KeyError, TypeError):
        return [f"static: {folder.name} has no list of shards"]
    violations = []
    for shard, bodies in tiles.items():
        files = [folder / "tiles" / shard / str(seq) for seq in range(len(bodies))]
        missing = [seq for seq, path in enumerate(files) if not path.exists()]
        wrong = [seq for seq, path in enumerate(files) if path.exists() and path.read_bytes() != bodies[seq]]
        if missing:
            violations.append(f"static: {len(missing)} tiles of {shard} are not in {folder.name}")
        if wrong:
            violations.append(f"static: {len(wrong)} tiles of {shard} in {folder.name} are not those of the log")
        if listed.get(shard) != len(bodies):
            violations.append(f"static: {folder.name} lists {listed.get(shard)} of {len(bodies)} tiles of {shard}")
    return violations


def _check_chain(zone: str, released: list[tuple[int, str]], intervals: range, verdict: Verdict) -> dict[int, str]:
    """Each interval is decided once, one after the other."""
    times = Counter(interval for interval, _ in released)
    verdict.violations += [
        f"gap: interval {interval} of {zone} has no record" for interval in intervals if not times[interval]
    ]
    verdict.violations += [
        f"doubled: interval {interval} of {zone} has {count} records" for interval, count in times.items() if count > 1
    ]
    kinds = dict(released)
    verdict.counts.update(kinds[interval] for interval in intervals if interval in kinds)
    return kinds


def is_late_too_early(late: int, answered_s: float, deadline_s: float) -> bool:
    """Whether readings were called late though their interval was open by every clock that is not wrong [s of UTC]."""
    return late > 0 and answered_s < deadline_s - MAX_CLOCK_DIFFERENCE_S - 1.0


def is_price_of_another_time(start_s: float, end_s: float, asked_s: float, answered_s: float, slack_s: float) -> bool:
    """Whether a price that was shown as that of now is of an interval that does not pay now [s of UTC]."""
    return answered_s + slack_s < start_s or asked_s - slack_s >= end_s


def _check_interval(evidence: Evidence, interval: int, kinds: dict[str, str | None], verdict: Verdict) -> None:
    files, closed = _files(evidence.landing, interval)
    reported, wrong = _reported_meters(evidence, interval, files)
    verdict.counts["readings"] += len(reported)
    verdict.counts["readings of bare registers"] += len(reported.intersection(BARE))
    if wrong:
        verdict.violations.append(f"wrong: {wrong} readings of interval {interval} are not what was measured")
    lost = evidence.acknowledged(interval) - reported
    if lost:
        where = "does not count" if closed else "is not in the landing"
        verdict.violations.append(f"lost: an acknowledged reading of {len(lost)} meters in {interval} {where}")
    expected = _demand(evidence.truth, interval, reported)
    for zone, kind in kinds.items():
        found = evidence.demand.get((interval, zone))
        if kind == "measured" and found is None:
            verdict.violations.append(f"wrong: interval {interval} of {zone} is measured without a demand")
        if found is not None and (not closed or found != expected[zone]):
            what = "without a manifest" if not closed else "not what its readings give"
            verdict.violations.append(f"wrong: the demand of {zone} in interval {interval} is {what}")
        if kind in {"fallback", "withheld"}:
            unused = sum(zone_of(meter) == zone for meter in evidence.acknowledged(interval))
            verdict.counts["acknowledged readings of intervals that were not measured"] += unused


def _files(landing: Path, interval: int) -> tuple[list[Path], bool]:
    """The files that count, and whether the interval is closed; else every file that is in its folder."""
    name = interval_name(interval * STEP_S)
    manifest = landing / "_closed" / f"{name}.json"
    if manifest.exists():
        return [landing / file["path"] for file in json.loads(manifest.read_bytes())["files"]], True
    return [path for path in (landing / f"interval={name}").rglob("*.parquet") if not path.name.startswith(".")], False


def _reported_meters(evidence: Evidence, interval: int, files: Iterable[Path]) -> tuple[frozenset[int], int]:
    """The meters with a reading, and how many readings differ from what was measured."""
    measured = evidence.truth.energy_wh(interval)
    reported: set[int] = set()
    wrong = 0
    for path in files:
        table = pq.read_table(pa.BufferReader(path.read_bytes()), columns=["meter", "interval_start", "energy_wh"])
        meter, energy = table["meter"].to_numpy(), table["energy_wh"].to_numpy()
        start = table["interval_start"].cast(pa.int64()).to_numpy()
        right = (meter >= 0) & (meter < METERS) & (start == interval * STEP_S * 10**6)
        shown, true = np.maximum(energy[right], 0), np.maximum(measured[meter[right]], 0)
        is_bare = np.isin(meter[right], BARE)  # stretched by the times of arrival, and above the bound all the same
        right[right] = np.where(is_bare, np.minimum(shown, BOUND_WH) == np.minimum(true, BOUND_WH), shown == true)
        wrong += int((~right).sum())
        reported.update(meter.tolist())
    return frozenset(reported), wrong


def _demand(truth: TrueEnergy, interval: int, reported: frozenset[int]) -> dict[str, Demand]:
    counted = truth.counted_wh(interval)
    found = {}
    for zone in ZONES:
        meters = [meter for meter in range(METERS) if zone_of(meter) == zone]
        energy = sum(int(counted[meter]) if meter in reported else IMPUTED_WH for meter in meters)
        count = sum(meter in reported for meter in meters)
        found[zone] = (energy, count, len(meters) - count)
    return found
