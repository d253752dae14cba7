"""Five meters in two zones, the intake that all doors lead to, and what its landing makes of their readings."""

from __future__ import annotations

from pathlib import Path

from murmurate.service.doors.intake import Intake
from murmurate.service.doors.roster import Roster
from murmurate.service.gathering.closing import close
from murmurate.service.gathering.job import gather
from murmurate.service.gathering.layout import Landing
from murmurate.service.gathering.metertable import pin

STEP_S, GRACE_S = 900, 60
NOW_S = 1_794_658_500 + 30  # half a minute after the interval has ended
OPEN_S = NOW_S - 30 - STEP_S
BOUND_WH, IMPUTED_WH = 1000, 200
ZONES = {0: "harbour", 1: "harbour", 2: "harbour", 5: "quay", 7: "quay"}


def new_intake(root: Path, now_s: float = NOW_S, zones: dict[int, str] = ZONES) -> Intake:
    rows = [f"{meter},{zone},{BOUND_WH},{IMPUTED_WH}" for meter, zone in zones.items()]
    (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")
    landing = Landing.create(root / "landing")
    return Intake(landing=landing, roster=Roster.of(root / "meters.csv"), now=lambda: now_s, grace_s=GRACE_S)


def demand_of(intake: Intake, root: Path, start_s: int = OPEN_S) -> dict[str, tuple[int, int]]:
    """Energy [Wh] and meters that reported, by zone. The interval is closed by this."""
    table = pin(intake.landing, root / "meters.csv")
    found = gather(intake.landing, table, [close(intake.landing, start_s, table.version)])[0].demand
    return {
        zone: (energy, reported)
        for zone, energy, reported in zip(found.zones, found.energy_wh.tolist(), found.reported.tolist(), strict=True)
    }
