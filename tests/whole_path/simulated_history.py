"""Run a sample zone through the product: plan, open, ingest readings, change the plan, release.

Each value that the target's meters may show is a variant: a zone of its own with the same households. One landing, one
manifest, one shard and one tile writer serve all variants. The noise is replaced by zeros, and each request for it is
kept.
What a row shows is then the demand that the noise would have hidden.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from murmurate.errors import MurmurateError, PrivacyError
from murmurate.planning.plan import Plan, make_plan, prove_plan
from murmurate.planning.plan_change import PlanHistory, check_plan_change
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.public_inputs import Inputs, InputValue
from murmurate.privacy.noise import NoiseDistribution, NoiseSampler
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import RowKind, TileHeader
from murmurate.public_log.tile_chain import ShardHead, check_follows
from murmurate.publisher.desired_state import (
    UNTIL_NO_INTERVAL,
    DesiredState,
    PlanChange,
    ShardOpening,
    ZoneOpening,
    find_next_tile,
)
from murmurate.publisher.tile_writer import TileWriter
from murmurate.readings.text_lines import parse_csv
from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.aggregation.submit_demand import releasable_demand
from murmurate.service.ingest.ingestor import ReadingIngestor, Receipt
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.interval_manifest import close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.types import Demand
from tests.whole_path.random_zones import SampleFile, SampleZone

KEY = Ed25519Signer(bytes(32))
QUORUM = 0.9
HUBER_CORE = 8  # of custom noise, as a multiple of its scale
LOW, HIGH = -1000, 1000  # what a meter shows that was manipulated [Wh]


class NoiseRequest(NamedTuple):
    """The noise of one release."""

    distribution: NoiseDistribution
    scale_wh: float
    core_wh: int

    @classmethod
    def from_document(cls, distribution: str, scale_wh: float, core_wh: int) -> NoiseRequest:
        """Return the noise that a plan states."""
        return cls(NoiseDistribution(distribution), float(scale_wh), int(core_wh))


class ZeroNoise:
    """Returns zeros instead of noise and keeps the requests."""

    test_only = False

    def __init__(self) -> None:
        self.requests: set[NoiseRequest] = set()

    def draw(self, distribution, scale_wh, core_wh=None):
        cores = np.zeros(scale_wh.shape, np.int64) if core_wh is None else np.broadcast_to(core_wh, scale_wh.shape)
        self.requests |= {NoiseRequest(distribution, float(s), int(c)) for s, c in zip(scale_wh, cores, strict=True)}
        return np.zeros(scale_wh.shape, np.int64)


@dataclass(frozen=True)
class SimulatedInterval:
    """One interval: its plan, and what each variant publishes."""

    interval: int
    plan: int  # index of the plan in force
    noise_request: NoiseRequest | None  # None: no reading was used
    kinds: frozenset[str]  # of row, over all variants
    demand_wh: tuple[int | None, ...]  # [variant] the demand that the price gives without noise


@dataclass(frozen=True)
class SimulatedHistory:
    """All intervals of a sample zone."""

    plans: tuple[Plan, ...]
    shown_wh: tuple[int, ...]  # [variant] LOW, -export bound, .., bound, HIGH
    intervals: tuple[SimulatedInterval, ...]


@lru_cache(maxsize=4096)
def make_sample_plan(file: SampleFile) -> Plan | None:
    """Return the plan that the product makes, or accepts, from a zone file; None if it refuses."""
    try:
        zone = parse_zone(file.text())
        if file.custom_noise is None:
            return make_plan(zone)
        plan = make_sample_plan(replace(file, custom_noise=None, forecast=""))
        if plan is None:
            return None
        distribution, factor, public_factor = file.custom_noise
        all_public = np.array([all(kind.public[t] for kind in zone.kinds) for t in range(zone.intervals_per_day)])
        scale_wh = plan.scale_wh * factor * np.where(all_public, public_factor, 1.0)
        core_wh = np.ceil(HUBER_CORE * scale_wh).astype(np.int64) if distribution == "huber" else None
        return prove_plan(zone, NoiseDistribution(distribution), scale_wh, core_wh)
    except MurmurateError:
        return None


@lru_cache(maxsize=4096)
def sample_terms(file: SampleFile) -> tuple[Plan, str, ReleaseTerms] | None:
    """Return the plan of a zone file, its plan.json and its terms; None if the product refuses."""
    plan = make_sample_plan(file)
    return None if plan is None else (plan, plan.to_json(), ReleaseTerms.from_json(plan.to_json()))


def simulate(sample: SampleZone) -> SimulatedHistory | None:
    """Return the history of a sample; None where the product refuses its first plan."""
    planned = list(takewhile(lambda each: each is not None, map(sample_terms, sample.files)))
    if not planned:
        return None
    plans, _, terms = map(list, zip(*planned, strict=True))
    target = [m for m in sample.meters if (m.kind, m.household) == (sample.target, 0)]
    lowest_wh, highest_wh = -sum(m.export_bound_wh for m in target), sum(m.bound_wh for m in target)
    shown_wh = (LOW, *range(lowest_wh, highest_wh + 1), HIGH)
    with _demands(sample, shown_wh) as demands:
        noise = ZeroNoise()
        by_digest = {at.plan_digest: at for at in terms}
        return _release(sample, plans, terms, make_writer(by_digest, noise), noise, demands, shown_wh)


def make_writer(terms_by_plan: dict[str, ReleaseTerms], noise: NoiseSampler) -> TileWriter:
    """Return a tile writer that finds public values for two of three intervals."""

    def find_inputs(series: Collection[str], header: TileHeader, interval: int) -> Inputs:
        now, ahead = (None if at % 3 == 0 else at % 7 * 50 - 150 for at in (interval, interval + header.lead))
        return dict.fromkeys(series, InputValue(now, ahead))

    signers = {KEY.public_key: KEY}
    return TileWriter(terms_for_plan=terms_by_plan.get, signers=signers, noise=noise, find_inputs=find_inputs)


def _release(sample, plans, terms, writer, noise, demands, shown_wh) -> SimulatedHistory:
    zones = [f"w{number:04d}" for number in range(len(shown_wh))]
    first = terms[0]
    opening = ZoneOpening(plan=first.plan_digest, currency=first.currency, tick=first.tick, first=sample.first)
    desired = DesiredState(
        until=UNTIL_NO_INTERVAL,
        opening=ShardOpening(key=KEY.public_key, interval_s=first.interval_s),
        zones=dict.fromkeys(zones, opening),
    )
    head = write_next_tile(writer, None, desired, None)
    in_force, intervals, releases = 0, [], []
    change_at = dict(zip(accumulate(sample.intervals_per_plan), range(1, len(plans)), strict=False))
    for n in range(sum(sample.intervals_per_plan)):
        after = change_at.get(n, in_force)
        change = plan_change(terms[in_force], terms[after])
        if change.before != change.after and is_change_accepted(tuple(releases), sample.first, plans[after]):
            changes = dict.fromkeys(zones, change)
            head = write_next_tile(writer, head, DesiredState(until=UNTIL_NO_INTERVAL, plan_changes=changes), None)
            in_force = after
        noise.requests = set()
        demand = (
            None
            if n in sample.without_demand
            else releasable_demand(
                demands[n], dict.fromkeys(zones, terms[in_force]), 86_400 // sample.files[0].intervals_per_day, QUORUM
            )[0]
        )
        head = write_next_tile(writer, head, DesiredState(until=sample.first + n), demand)
        rows = head.tile.rows[[head.table.position[zone] for zone in zones]]
        shown = "noisy_wh" if "noisy_wh" in rows.dtype.names else "price_ticks"
        measured = [
            int(wh) if kind == RowKind.MEASURED else None for kind, wh in zip(rows["kind"], rows[shown], strict=True)
        ]
        assert len(noise.requests) <= 1, "one plan, one interval, one noise"
        noise_request = next(iter(noise.requests), None)
        kinds = frozenset(RowKind(kind).name.lower() for kind in rows["kind"].tolist())
        intervals.append(SimulatedInterval(sample.first + n, in_force, noise_request, kinds, tuple(measured)))
        releases.append((plans[in_force], noise_request is not None))
    return SimulatedHistory(tuple(plans), shown_wh, tuple(intervals))


@lru_cache(maxsize=64)
def is_change_accepted(releases: tuple[tuple[Plan, bool], ...], first: int, after: Plan) -> bool:
    """Return whether the product puts another plan in force after these releases."""
    try:
        check_plan_change(PlanHistory(releases, first=first, complete=True), after)
    except PrivacyError:
        return False
    return True


def plan_change(before: ReleaseTerms, after: ReleaseTerms) -> PlanChange:
    return PlanChange(before.plan_digest, after.plan_digest, after.currency, after.tick)


def write_next_tile(
    writer: TileWriter, head: ShardHead | None, desired: DesiredState, demand: Demand | None
) -> ShardHead:
    next_tile = find_next_tile(head, desired, set(desired.zones))
    drafts = writer.write_tiles({"shard": next_tile}, demand if demand is not None else NO_DEMAND)
    assert not drafts.refused, drafts.refused
    assert not drafts.withheld, drafts.withheld
    return check_follows(head, drafts.written["shard"], next_tile.table)


NO_DEMAND = Demand(
    zones=(), energy_wh=np.zeros(0, np.int64), reported=np.zeros(0, np.int64), imputed=np.zeros(0, np.int64)
)


SHARED_MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108  faster than a disk


class _demands:  # noqa: N801  used as a function
    """The demand of each interval, aggregated from a landing that the ingestor has filled."""

    def __init__(self, sample: SampleZone, shown_wh: tuple[int, ...]) -> None:
        self._sample, self._shown_wh = sample, shown_wh
        self._directory = Path(tempfile.mkdtemp(prefix="murmurate-", dir=SHARED_MEMORY))

    def __enter__(self) -> list[Demand]:
        sample, interval_s = self._sample, 86_400 // self._sample.files[0].intervals_per_day
        landing = Landing.create(self._directory / "landing", interval_s=interval_s)
        table = self._directory / "meters.csv"
        table.write_text("\n".join(_meter_rows(sample, self._shown_wh)) + "\n", encoding="utf-8")
        starts = [(sample.first + n) * interval_s for n in range(sum(sample.intervals_per_plan))]
        ingestor = ReadingIngestor(
            landing=landing,
            registry=MeterRegistry.from_meter_table(table),
            now=lambda: starts[-1] + interval_s,
            grace_s=10**9,
        )
        rows = "meter_id,interval_start,energy_wh\n" + "".join(_reading_rows(sample, self._shown_wh, starts))
        batch, refused = parse_csv(rows.encode(), interval_s=interval_s)
        ingestor.ingest_batch(batch, None, Receipt(refused=refused))
        pinned = pin_table(landing, table)
        manifests = [close_interval(landing, start, pinned.version) for start in starts]
        return list(aggregate_landing(landing, pinned, manifests).values())

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._directory)


def _meter_rows(sample: SampleZone, shown_wh: tuple[int, ...]) -> Iterator[str]:
    yield "meter,zone,bound_wh,household,kind,protected,export_bound_wh"
    number = 0
    for zone in range(len(shown_wh)):
        for meter in sample.meters:
            kind = sample.files[0].kinds[meter.kind]
            name = kind.name if sample.names_kinds else ""
            protected = "false" if kind.public == "always" and not name else "true"
            household = f"{zone}-{meter.kind}-{meter.household}"
            place = f"{number},w{zone:04d},{meter.bound_wh},{household},{name},{protected}"
            yield f"{place},{meter.export_bound_wh}"
            number += 1


def _reading_rows(sample: SampleZone, shown_wh: tuple[int, ...], starts: list[int]) -> Iterator[str]:
    number = 0
    for value in shown_wh:
        left = value
        for meter in sample.meters:
            energy = sample.neighbour_wh
            if (meter.kind, meter.household) == (sample.target, 0):
                within = min(max(left, -meter.export_bound_wh), meter.bound_wh)
                energy = value if value in {LOW, HIGH} else within
                left -= energy
            yield from (f"{number},{start},{energy}\n" for start in starts)
            number += 1
