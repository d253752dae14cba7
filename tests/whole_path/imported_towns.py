"""Files of a utility, imported and planned: a plan hides whole households, and counts those of its zone and kind."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from murmurate.commands.import_readings import import_readings
from murmurate.operations import plan_files
from murmurate.planning.zone_file import parse_zone
from murmurate.readings.columns import ColumnNames
from murmurate.readings.file_import import ImportOptions
from tests.whole_path.simulated_history import SHARED_MEMORY

METER_BOUND_WH = 500
ROUNDING = 0.05  # of the number of households in a plan, from 100 on; below that it is a multiple of 5


class TownHousehold(NamedTuple):
    """A household of a utility's file."""

    zone: str
    kind: str
    meters: int


class Town(NamedTuple):
    """What a utility exports: each meter with its customer."""

    households: tuple[TownHousehold, ...]
    has_zones: bool  # whether a column names the zone
    has_kinds: bool


def random_town(rng: Random) -> Town:
    has_zones, has_kinds = rng.random() < 0.7, rng.random() < 0.5
    zones = ["east", "west"] if has_zones else ["town"]
    kinds = ["flat", "shop"] if has_kinds else ["home"]
    households = [
        TownHousehold(zone, kind, rng.choice([1, 1, 2, 3]))
        for zone in zones
        for kind in kinds
        for _ in range(rng.randint(1, 30))
    ]
    rng.shuffle(households)
    return Town(tuple(households), has_zones, has_kinds)


def broken_counts(town: Town, seen: Counter[str]) -> Iterator[str]:
    """Yield each kind of a plan that does not cover its households."""
    seen["imported towns"] += 1
    seen["imported households with several meters"] += sum(household.meters > 1 for household in town.households)
    seen["imported towns with several zones"] += town.has_zones
    with tempfile.TemporaryDirectory(prefix="murmurate-", dir=SHARED_MEMORY) as name:
        folder = Path(name)
        (folder / "export.csv").write_text("\n".join(_rows(town)) + "\n", encoding="utf-8")
        names = ColumnNames(zone="area" if town.has_zones else None, kind="tariff" if town.has_kinds else None)
        options = ImportOptions(folder, "town", METER_BOUND_WH, interval_s=3600, time_zone=None, names=names)
        summary = import_readings([folder / "export.csv"], options)
        texts = [(folder / file).read_text(encoding="utf-8") for file in summary.zone_files]
        zones = [
            parse_zone(text, lambda file, *of: plan_files.read_meter_summary(folder / file, *of)) for text in texts
        ]
    planned = {(zone.name, kind.name): kind for zone in zones for kind in zone.kinds}
    if planned.keys() != {(household.zone, household.kind) for household in town.households}:
        yield f"plans for {sorted(planned)}"
    for (zone, kind), found in planned.items():
        meters = [household.meters for household in town.households if (household.zone, household.kind) == (zone, kind)]
        if found.bound_wh < METER_BOUND_WH * max(meters, default=0):
            yield f"a household with {max(meters)} meters is hidden up to {found.bound_wh} Wh"
        if abs(found.count - len(meters)) > max(4, ROUNDING * len(meters)):
            yield f"a plan for {found.count} households where {len(meters)} are"


def _rows(town: Town) -> Iterator[str]:
    yield "meter,customer,area,tariff,timestamp,kwh"
    for customer, household in enumerate(town.households):
        for number in range(household.meters):
            place = f"{customer}-{number},c{customer},{household.zone},{household.kind}"
            yield from (f"{place},2026-01-05T{hour:02d}:00:00Z,0.2" for hour in range(2))
