"""A world lived through the product: planned, opened, fed with readings, put under another plan, released.

Each thing that the target's meters may show is a zone of its own with the same households, so that one landing, one
closing and one desk serve all of them. The noise is replaced by zeros that remember what was asked for: prices then
tell the demand that the product would have hidden, and the noise that it would have hidden it with.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from murmurate.curator.change import refuse_change
from murmurate.curator.history import History
from murmurate.curator.plan import Plan, make_plan, prove
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import parse_zone
from murmurate.errors import MurmurateError, PrivacyError
from murmurate.privacy.noise import NoiseLaw
from murmurate.publication.desk import Desk
from murmurate.publication.record import Entry, Kind
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Change, Opening, Wish, next_task
from murmurate.quantities import Demand
from murmurate.service.doors.formats import csv_rows
from murmurate.service.doors.intake import Intake
from murmurate.service.doors.roster import Roster
from murmurate.service.doors.slip import Receipt
from murmurate.service.gathering.closing import close
from murmurate.service.gathering.handover import fit_for_release
from murmurate.service.gathering.job import gather
from murmurate.service.gathering.layout import Landing
from murmurate.service.gathering.metertable import pin
from tests.whole_path.worlds import File, World

KEY = Ed25519Signer(bytes(32))
QUORUM = 0.9
LOW, HIGH = -3, 1000  # what a meter shows that feeds in, or that was tampered with [Wh]


class Asked(NamedTuple):
    """The noise of one release."""

    law: NoiseLaw
    scale_wh: float
    core_wh: int


class NoNoise:
    """Zeros instead of noise, and what was asked for."""

    rehearsal = False

    def __init__(self) -> None:
        self.asked: set[Asked] = set()

    def draw(self, law, scale_wh, core_wh=None):
        cores = np.zeros(scale_wh.shape, np.int64) if core_wh is None else np.broadcast_to(core_wh, scale_wh.shape)
        self.asked |= {Asked(law, float(s), int(c)) for s, c in zip(scale_wh, cores, strict=True)}
        return np.zeros(scale_wh.shape, np.int64)


@dataclass(frozen=True)
class Step:
    """One interval: its plan, and what each world (what the target's meters show) makes public."""

    interval: int
    plan: int  # which of the life's plans was in force
    asked: Asked | None  # none: no reading was used
    kinds: frozenset[str]  # of record, over all worlds
    demand_wh: tuple[int | None, ...]  # [world] what the price tells without noise


@dataclass(frozen=True)
class Life:
    plans: tuple[Plan, ...]
    shown_wh: tuple[int, ...]  # [world] LOW, 0, 1, .., HIGH
    steps: tuple[Step, ...]


@lru_cache(maxsize=4096)
def plan_of(file: File) -> Plan | None:
    """The plan that the product makes, or accepts, from a zone file; None if it refuses."""
    try:
        zone = parse_zone(file.text(), tested=True)
        made = make_plan(zone)
        if file.by_hand is None:
            return made
        law, factor, where_public = file.by_hand
        nobody = np.array([all(kind.public[t] for kind in zone.kinds) for t in range(zone.intervals_per_day)])
        scale_wh = made.scale_wh * factor * np.where(nobody, where_public, 1.0)
        return prove(zone, NoiseLaw(law), scale_wh)
    except MurmurateError:
        return None


def live(world: World) -> Life | None:
    """None where the product refuses a plan of this world."""
    plans = [plan_of(file) for file in world.files]
    if plans[0] is None:
        return None
    terms = {plan: Terms.of(plan.to_json()) for plan in plans if plan is not None}
    most = sum(meter.bound_wh for meter in world.meters if meter.kind == world.target)
    shown = (LOW, *range(1 + most), HIGH)
    with _demands(world, shown) as demands:
        noise = NoNoise()
        by_digest = {at.plan: at for at in terms.values()}
        desk = Desk(terms=by_digest.get, signers={KEY.public: KEY}, noise=noise)
        return _release(world, [plan for plan in plans if plan is not None], terms, desk, noise, demands, shown)


def _release(world, plans, terms, desk, noise, demands, shown) -> Life:
    zones = [f"w{number}" for number in range(len(shown))]
    opening = Opening(plan=terms[plans[0]].plan, key=KEY.public, first=world.first)
    heads: dict[str, Entry] = _write(desk, dict.fromkeys(zones), Wish(until=0, opening=opening), None)
    in_force, steps, releases = 0, [], []
    for n in range(sum(world.lived)):
        if n == world.lived[0] and len({terms[plan].plan for plan in plans}) > 1:
            try:
                refuse_change(History.of(releases, first=world.first, complete=True), plans[1])
            except PrivacyError:
                pass
            else:
                change = Change(terms[plans[0]].plan, terms[plans[1]].plan)
                heads = _write(desk, heads, Wish(until=0, plan=change), None)
                in_force = 1
        noise.asked = set()
        demand = (
            None
            if n in world.silent
            else fit_for_release(
                demands[n], dict.fromkeys(zones, terms[plans[in_force]]), 86_400 // world.files[0].day, QUORUM
            )[0]
        )
        heads = _write(desk, heads, Wish(until=world.first + n), demand)
        records = [heads[zone].record for zone in zones]
        measured = [record.price_ticks if record.kind is Kind.MEASURED else None for record in records]
        assert len(noise.asked) <= 1, "one plan, one interval, one noise"
        asked = next(iter(noise.asked), None)
        kinds = frozenset(record.kind.value for record in records)
        steps.append(Step(world.first + n, in_force, asked, kinds, tuple(measured)))
        releases.append((plans[in_force], asked is not None))
    return Life(tuple(plans), shown, tuple(steps))


def _write(desk, heads, wish, demand) -> dict[str, Entry]:
    tasks = {zone: (head, next_task(head, wish)) for zone, head in heads.items()}
    drafts = desk.write(tasks, demand if demand is not None else NO_DEMAND)
    assert not drafts.refused, drafts.refused
    return drafts.written


NO_DEMAND = Demand(
    zones=(), energy_wh=np.zeros(0, np.int64), reported=np.zeros(0, np.int64), imputed=np.zeros(0, np.int64)
)


_MEMORY = Path("/dev/shm")  # noqa: S108  where the disk need not be waited for


class _demands:  # noqa: N801  used as a function
    """The demand of each interval, gathered from a landing that the doors have filled."""

    def __init__(self, world: World, shown: tuple[int, ...]) -> None:
        self._world, self._shown = world, shown
        self._folder = Path(tempfile.mkdtemp(prefix="murmurate-", dir=_MEMORY if _MEMORY.is_dir() else None))

    def __enter__(self) -> list[Demand]:
        world, step = self._world, 86_400 // self._world.files[0].day
        landing = Landing.create(self._folder / "landing", interval_s=step)
        table = self._folder / "meters.csv"
        table.write_text("\n".join(_meter_rows(world, self._shown)) + "\n", encoding="utf-8")
        starts = [(world.first + n) * step for n in range(sum(world.lived))]
        intake = Intake(landing=landing, roster=Roster.of(table), now=lambda: starts[-1] + step, grace_s=10**9)
        rows = "meter_id,interval_start,energy_wh\n" + "".join(_reading_rows(world, self._shown, starts))
        slip, refused = csv_rows(rows.encode(), interval_s=step)
        intake.take(slip, None, Receipt(refused=refused))
        pinned = pin(landing, table)
        closings = [close(landing, start, pinned.version, sharded=pinned.sharded) for start in starts]
        return [found.demand for found in gather(landing, pinned, closings)]

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)


def _meter_rows(world: World, shown: tuple[int, ...]) -> Iterator[str]:
    yield "meter,zone,bound_wh,household,kind,protected"
    number = 0
    for zone in range(len(shown)):
        for meter in world.meters:
            kind = world.files[0].kinds[meter.kind]
            name = kind.name if world.names_kinds else ""
            protected = "false" if kind.public == "always" and not name else "true"
            yield f"{number},w{zone},{meter.bound_wh},{zone}-{meter.kind},{name},{protected}"
            number += 1


def _reading_rows(world: World, shown: tuple[int, ...], starts: list[int]) -> Iterator[str]:
    number = 0
    for value in shown:
        left = value
        for meter in world.meters:
            energy = world.neighbour_wh
            if meter.kind == world.target:
                energy = value if value in {LOW, HIGH} else min(left, meter.bound_wh)
                left -= energy
            yield from (f"{number},{start},{energy}\n" for start in starts)
            number += 1
