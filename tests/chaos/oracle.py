"""What must hold after any faults, computed from what was measured and acknowledged, without the product's own code.

The landing, the state and the log are read as their operator reads them. Nothing of it is printed: a violation names
intervals, zones and counts of meters, never an energy.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.tile import RowKind
from murmurate.public_log.tile_chain import ShardHead
from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S
from murmurate.service.landing.layout import interval_name
from tests.chaos.meters import (
    BARE,
    BOUND_WH,
    EXPORT_WH,
    FENCE,
    LEAD,
    METERS,
    SERIES,
    STEP_S,
    ZONES,
    TrueEnergy,
    zone_of,
)
from tests.chaos.public_inputs import Posted, possible_values
from tests.simulation import reference_prediction as prediction

MICRO = 10**6
Demand = tuple[int, int, int, int, int]  # energy [Wh], meters that reported, that did not, and their two bounds [Wh]


class PublishedSum(NamedTuple):
    """A noised sum in the log, and what is known of it without a reading."""

    noisy_wh: int
    silent_share_micro: int  # of their bounds, that silent meters count for
    scale_wh: float


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the oracle judges."""

    landing: Path
    truth: TrueEnergy
    last: int  # the last interval that must be decided
    acknowledged: Callable[[int], frozenset[int]]  # meters by interval
    demand: Mapping[tuple[int, str], Demand]  # in the state, by interval and zone
    released: Mapping[str, list[tuple[int, str]]]  # in the log, by zone: interval and kind of row
    published: Mapping[tuple[int, str], PublishedSum]  # in the log, by interval and zone, of measured rows


@dataclass
class Verdict:
    """What is wrong, and what was counted."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def judge(evidence: Evidence) -> Verdict:
    """Check every interval from the first to the last."""
    verdict = Verdict()
    intervals = range(evidence.truth.first, evidence.last + 1)
    kinds = {zone: check_chain(zone, evidence.released[zone], intervals, verdict) for zone in ZONES}
    for interval in intervals:
        _check_interval(evidence, interval, {zone: kinds[zone].get(interval) for zone in ZONES}, verdict)
    for zone in ZONES:
        _check_published(evidence, zone, verdict)
    verdict.counts["intervals"] = len(intervals)
    return verdict


def read_published(heads: Iterable[ShardHead], zone: str, terms: ReleaseTerms) -> dict[tuple[int, str], PublishedSum]:
    """What the log shows of the sums of a zone. The share of silent meters follows from the rows and inputs before."""
    found: dict[tuple[int, str], PublishedSum] = {}
    states, due = (0,) * prediction.STATES, [prediction.NO_PRICE] * LEAD
    for head in heads:
        if head.tile.header.kind != "release":
            continue
        interval, row = head.interval, head.tile.rows[head.table.position[zone]]
        slot, inputs = interval % len(terms.forecast_wh), head.tile.header.extensions.get("inputs", {})
        expected_wh = terms.forecast_wh[slot]
        if terms.prediction is not None:
            expected_wh = round(prediction.expect_sum(terms.prediction, states, due[0], interval, inputs))
        bounds_wh = sum(
            kind.count * (kind.bound_wh if expected_wh >= 0 else kind.export_bound_wh) for kind in terms.households
        )
        share_micro = min(abs(expected_wh) * MICRO // bounds_wh, MICRO) * (1 if expected_wh >= 0 else -1)
        if row["kind"] == RowKind.MEASURED:
            found[interval, zone] = PublishedSum(int(row["noisy_wh"]), share_micro, float(row["scale_wh"]))
        states = tuple(row["states"].tolist())
        due = [
            *row["due"].tolist(),
            prediction.NO_PRICE if row["kind"] == RowKind.WITHHELD else int(row["price_ticks"]),
        ]
    return found


def judge_inputs(
    heads: Iterable[ShardHead], posted: Posted, wall_at: Callable[[float], float], verdict: Verdict
) -> None:
    """Each tile states the public inputs that were posted before, for its own interval and for the one that pays."""
    for head in heads:
        if head.tile.header.kind != "release":
            continue
        stated, end_s = head.tile.header.extensions.get("inputs", {}), wall_at((head.interval + 1) * STEP_S)
        for series in SERIES:
            for moment, at in (("now", head.interval), ("ahead", head.interval + LEAD)):
                value = stated.get(series, {}).get(moment)
                known = posted[series].get(at, (None, 0.0))[0]
                what = (
                    "lost, none" if value is None else "its own" if value == known else "late or lost, an earlier one"
                )
                verdict.counts[f"inputs {moment}: {what}"] += 1
                if value not in possible_values(posted[series], at, end_s):
                    text = f"wrong: the tile of {head.interval} does not state what was posted of {series} for {moment}"
                    verdict.violations.append(text)


def _check_published(evidence: Evidence, zone: str, verdict: Verdict) -> None:
    """What was noised is the demand and the public share of silent meters: neither one draw nor their sum is too large.

    n draws of Laplace noise of scale b together are above t with a probability below 2 (4/3)^n e^(-t/2b), 1e-12 here.
    """
    draws = defaultdict(list)
    for (interval, its_zone), (noisy_wh, share_micro, scale_wh) in evidence.published.items():
        if its_zone != zone or (interval, zone) not in evidence.demand:
            continue
        energy_wh, _, _, silent_wh, silent_export_wh = evidence.demand[interval, zone]
        bound_wh = silent_wh if share_micro >= 0 else silent_export_wh
        share_wh = abs(share_micro) * bound_wh // MICRO * (1 if share_micro >= 0 else -1)
        verdict.counts[f"silent meters count {'above' if share_wh >= 0 else 'below'} zero"] += bool(bound_wh)
        draws[zone].append((noisy_wh - energy_wh - share_wh) / scale_wh)
        if abs(draws[zone][-1]) > 60:
            verdict.violations.append(f"wrong: the sum of {zone} published for {interval} is not its demand")
    if abs(sum(draws[zone])) > 60 + 0.58 * len(draws[zone]):
        verdict.violations.append(f"wrong: the sums published of {zone} are not what its meters give")


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


def check_chain(zone: str, released: list[tuple[int, str]], intervals: range, verdict: Verdict) -> dict[int, str]:
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
    verdict.counts["readings below zero"] += int((evidence.truth.energy_wh(interval)[list(reported)] < 0).sum())
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
    measured, silent = evidence.truth.energy_wh(interval), evidence.truth.is_silent(interval)
    silent[FENCE] = False
    reported: set[int] = set()
    wrong = 0
    for path in files:
        table = pq.read_table(pa.BufferReader(path.read_bytes()), columns=["meter", "interval_start", "energy_wh"])
        meter, energy = table["meter"].to_numpy(), table["energy_wh"].to_numpy()
        start = table["interval_start"].cast(pa.int64()).to_numpy()
        right = (meter >= 0) & (meter < METERS) & (start == interval * STEP_S * 10**6)
        own = meter[right]
        shown, true, is_bare = energy[right], measured[own], np.isin(own, BARE)
        # a bare register is stretched by the times of arrival, and beyond its bounds all the same
        clipped = [np.where(is_bare, wh.clip(-EXPORT_WH[own], BOUND_WH), wh) for wh in (shown, true)]
        right[right] = (clipped[0] == clipped[1]) & ~silent[own]
        wrong += int((~right).sum())
        reported.update(meter.tolist())
    return frozenset(reported), wrong


def _demand(truth: TrueEnergy, interval: int, reported: frozenset[int]) -> dict[str, Demand]:
    counted = truth.counted_wh(interval)
    found = {}
    for zone in ZONES:
        meters = [meter for meter in range(METERS) if zone_of(meter) == zone]
        silent = [meter for meter in meters if meter not in reported]
        energy = sum(int(counted[meter]) for meter in meters if meter in reported)
        bounds = len(silent) * BOUND_WH, int(EXPORT_WH[silent].sum())
        found[zone] = (energy, len(meters) - len(silent), len(silent), *bounds)
    return found
