"""A file of two zones and two kinds, with households of two meters, from the import to the bills: counts are right."""

import csv
import json
import time
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pytest

from murmurate.operations.plan_files import read_meter_summary
from murmurate.planning.plan import load_plan
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.heartbeats import WORKER_HEARTBEAT
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.types import Readings
from tests.support.interval_workers import FIRST_S, SettableClock
from tests.support.operator_cli import an_operator
from tests.support.postgres_stores import released_kinds

DAYS, QUARTER_S, GRACE_S = 36, 900, 60


@dataclass(frozen=True)
class Group:
    """Households of one zone and kind."""

    zone: str
    kind: str
    households: int
    with_two_meters: int

    @property
    def owners(self):
        """The household of each meter."""
        each = [f"{self.zone} {self.kind} {home}" for home in range(self.households)]
        return each + each[: self.with_two_meters]


GROUPS = (Group("a", "flat", 120, 40), Group("a", "shop", 10, 0), Group("b", "flat", 90, 0), Group("b", "shop", 5, 5))
HOUSEHOLDS = {"a": 130, "b": 95}
METERS = sum(len(group.owners) for group in GROUPS)
HOURS_WH = 300 + 200 * np.sin(np.arange(24) / 24 * 2 * np.pi)


def write_readings(path):
    """Hours of all meters, a row a day, as a portal exports them. Returns what each household uses in all [kWh]."""
    rng, used = np.random.default_rng(3), {}
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["Zählpunkt", "Kunde", "Netz", "Art", "Datum", *(f"{hour:02}:00 kWh" for hour in range(24))])
        number = 0
        for group in GROUPS:
            for owner in group.owners:
                number += 1
                energy_wh = (HOURS_WH * rng.uniform(0.5, 1.5, (DAYS, 24))).astype(int)
                used[owner] = used.get(owner, 0) + int(energy_wh.sum()) / 1000
                for day, cells in enumerate(energy_wh.tolist()):
                    told = [f"z{number}", owner, group.zone, group.kind, date(2026, 9, 1) + timedelta(days=day)]
                    rows.writerow([*told, *(f"{wh / 1000:.3f}" for wh in cells)])
    return used


def run_worker(operator, intervals):
    """Report every meter in some intervals and let the worker close, aggregate and release them. Returns its report."""
    databases = Databases.from_dsns(state=operator.dsn("state"), log=operator.dsn("log"))
    landing, clock = Landing.create(operator.folder / "landing"), SettableClock(FIRST_S)
    worker = IntervalWorker(
        landing=landing,
        meters=operator.folder / "in" / "meters.csv",
        context=PublisherContext.from_databases(databases, operator.folder / "keys", release_slot_s=0.01),
        ingest_store=IngestStore(operator.dsn("state")),
        clock=clock,
        grace_s=GRACE_S,
    )
    for number in range(intervals):
        readings = Readings.from_columns(meter=np.arange(METERS), energy_wh=np.full(METERS, 100))
        assert append_readings(landing, FIRST_S + number * QUARTER_S, readings)
        clock.now_s = FIRST_S + (number + 1) * QUARTER_S + GRACE_S
        worker.run_once()
    report = worker.context.state.heartbeats()[WORKER_HEARTBEAT][1]
    worker.context.close()
    worker.ingest_store.close()
    return landing, report


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    with an_operator(tmp_path_factory.mktemp("households")) as operator:
        operator.used_kwh = write_readings(operator.folder / "readings.csv")
        columns = "--household-column Kunde --zone-column Netz --kind-column Art"
        operator.found = json.loads(
            operator.run(
                f"murmurate readings import readings.csv --timezone UTC --out in {columns} --json 2>errors.txt"
            )
        )
        for zone in HOUSEHOLDS:
            operator.run(f"murmurate plan in/{zone}.toml --out {zone}.json")
        yield operator


def test_the_import_counts_households_and_a_plan_those_of_its_zone_and_kind(imported):
    found = imported.found
    assert (found["meters"], found["households"]) == (METERS, sum(HOUSEHOLDS.values()))
    for group in GROUPS:
        bound_wh = 2000 if group.with_two_meters else 1000
        summary = read_meter_summary(imported.folder / "in" / "meters.csv", group.zone, group.kind)
        assert (summary.count, summary.bound_wh) == (group.households, bound_wh)
    for zone, households in HOUSEHOLDS.items():
        plan = load_plan((imported.folder / f"{zone}.json").read_text(encoding="utf-8"))
        assert plan.zone.household_count == households


def test_the_service_takes_the_table_and_open_and_change_find_nothing_wrong(imported):
    imported.run("murmurate init")
    begin = time.strftime("%FT%TZ", time.gmtime(FIRST_S))
    shown = imported.run(f"murmurate zone open a.json b.json --meters in/meters.csv --first {begin}")
    assert "household" not in shown
    landing, report = run_worker(imported, 3)
    assert (report["zone_warnings"], report["reasons"]) == ({}, {})
    assert pin_table(landing, imported.folder / "in" / "meters.csv").households == tuple(HOUSEHOLDS.values())
    for zone in HOUSEHOLDS:
        assert [kind for _, kind in released_kinds(imported.dsn("log"), zone)] == ["measured"] * 3
    imported.run(
        "sed 's/^beta = .*/beta = \"0.09\"/' in/a.toml > in/a-2.toml && murmurate plan in/a-2.toml --out a-2.json"
    )
    shown = imported.run("murmurate zone change a-2.json")  # compared with the table of the worker
    assert "Warning" not in shown
    assert "a: under plan" in shown


def test_evaluate_and_backtest_count_the_same_households(imported):
    one = '--sizes 50 --promise "any 24 h: epsilon 4, delta 1e-6"'
    imported.run(f"murmurate evaluate --readings in/readings.parquet {one} --out worth", MPLBACKEND="agg")
    source = json.loads((imported.folder / "worth" / "results.json").read_text(encoding="utf-8"))["source"]
    assert (source["households"], source["each_meter_a_household"]) == (sum(HOUSEHOLDS.values()), False)
    for zone, households in HOUSEHOLDS.items():
        files = f"--readings in/readings.parquet --out bills --households {zone}.csv"
        imported.run(f"murmurate backtest {zone}.json {files} --draws 2")
        results = json.loads((imported.folder / "bills" / "results.json").read_text(encoding="utf-8"))
        assert (results["households"], results["plan_households"], results["demand_times"]) == (
            households,
            households,
            1,
        )
        with (imported.folder / f"{zone}.csv").open(encoding="utf-8") as file:
            billed = {row["household"]: float(row["kwh"]) for row in csv.DictReader(file)}
        assert billed == pytest.approx({name: kwh for name, kwh in imported.used_kwh.items() if name.startswith(zone)})
