"""An ingestor for five meters in two zones, and the demand that its landing gives."""

from __future__ import annotations

from pathlib import Path

from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.interval_manifest import close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table

STEP_S, GRACE_S = 900, 60
NOW_S = 1_794_658_500 + 30  # half a minute after the interval has ended
OPEN_S = NOW_S - 30 - STEP_S
BOUND_WH, IMPUTED_WH = 1000, 200
ZONES = {0: "harbour", 1: "harbour", 2: "harbour", 5: "quay", 7: "quay"}


def new_ingestor(
    root: Path, now_s: float = NOW_S, zones: dict[int, str] = ZONES, meter_table: str = ""
) -> ReadingIngestor:
    rows = [f"{meter},{zone},{BOUND_WH},{IMPUTED_WH}" for meter, zone in zones.items()]
    text = meter_table or "\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n"
    (root / "meters.csv").write_text(text)
    landing = Landing.create(root / "landing")
    return ReadingIngestor(
        landing=landing,
        registry=MeterRegistry.from_meter_table(root / "meters.csv"),
        now=lambda: now_s,
        grace_s=GRACE_S,
    )


def demand_of(ingestor: ReadingIngestor, root: Path, start_s: int = OPEN_S) -> dict[str, tuple[int, int]]:
    """Close the interval. Return the energy [Wh] and the number of meters that reported, by zone."""
    table = pin_table(ingestor.landing, root / "meters.csv")
    manifest = close_interval(ingestor.landing, start_s, table.version)
    found = aggregate_landing(ingestor.landing, table, [manifest])[start_s]
    return {
        zone: (energy, reported)
        for zone, energy, reported in zip(found.zones, found.energy_wh.tolist(), found.reported.tolist(), strict=True)
    }
