"""The zone of the end-to-end tests: a thousand homes, and an operator who serves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE
from tests.support.running_service import ServiceOperator, service_operator

HOMES = 1000
STEP_S = 900
BOUND_WH = 1000
IMPUTED_WH = 200
LEAD = 12
SETTINGS = f"""
    grace_s = {4 * STEP_S}
    timezone = "Europe/Zurich"
    country = "CH"
"""
CLIENTS = {"head-end": "--zone harbour", "ops": "--operator"}
NIGHT_S = 1_794_614_400  # 2026-11-14 00:00 UTC


@contextmanager
def harbour_operator(
    folder: Path, *, in_s: float, first_s: int = NIGHT_S, speed: float = 1.0, keys: Mapping[int, str] | None = None
) -> Iterator[ServiceOperator]:
    """An operator whose zone is open, and begins `in_s` seconds from now. `keys`: of the homes that sign."""
    zone = EXAMPLE_ZONE_FILE.replace('currency = "EUR"', 'currency = "CHF"')
    zone = zone.replace("count = 800", f"count = {HOMES}").split('[[households]]\nname = "fish market"')[0]
    rows = [f"{n},home-{n:04},harbour,{BOUND_WH},{IMPUTED_WH},{(keys or {}).get(n, '')}" for n in range(HOMES)]
    meters = "\n".join(["meter,id,zone,bound_wh,imputed_wh,key", *rows]) + "\n"
    with service_operator(folder, first_s=first_s, speed=speed) as operator:
        operator.prepare({"harbour": zone}, meters, lead=LEAD, clients=CLIENTS)
        operator.begin(in_s)
        yield operator


def demand_by_interval(operator: ServiceOperator) -> dict[int, tuple[int, int, int]]:
    return {interval: demand for (interval, _), demand in operator.demand().items()}
