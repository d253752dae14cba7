"""Whatever fails in aggregation, every interval gets a price; a failure that passes in time costs no measurement."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.interval_workers import FIRST_S, GRACE_S
from tests.support.operator_cli import STEP_S

from murmurate.errors import MurmurateError
from murmurate.service.landing.meter_table import load_shards, load_table
from murmurate.service.storage import durable
from murmurate.service.worker import interval_worker


class FullDisk:
    """A disk on which no file can be written while `full`."""

    def __init__(self, monkeypatch):
        self.full, self._real = True, durable._create_file
        monkeypatch.setattr(durable, "_create_file", self._create_file)

    def _create_file(self, path, data):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._real(path, data)


def causes(setup):
    return dict(setup.worker.figures.not_aggregated)


def test_a_disk_that_is_full_for_three_seconds_at_the_deadline_costs_no_measurement(worker_setup, monkeypatch):
    worker_setup.report(0)
    disk = FullDisk(monkeypatch)
    worker_setup.at(0, GRACE_S)
    worker_setup.at(0, GRACE_S + 2)
    assert worker_setup.kinds() == []
    disk.full = False
    worker_setup.at(0, GRACE_S + 3)
    assert worker_setup.kinds() == ["measured"]
    assert causes(worker_setup) == {}
    assert worker_setup.events().count("not aggregated yet") == 1


def test_a_disk_that_stays_full_gives_the_forecast_before_the_price_is_due(worker_setup, monkeypatch):
    worker_setup.report(0)
    disk = FullDisk(monkeypatch)
    for after_s in (GRACE_S, GRACE_S + 30, STEP_S - 61, STEP_S - 59):
        worker_setup.at(0, after_s)
    assert worker_setup.kinds() == ["fallback"]
    assert causes(worker_setup) == {"disk": 1}
    disk.full = False
    worker_setup.release(1)
    assert worker_setup.kinds() == ["fallback", "measured"]


def test_any_error_in_aggregation_gives_the_forecast_on_the_same_beat(worker_setup, monkeypatch):
    errors = [ValueError("x"), RecursionError(), AssertionError(), KeyError("12345"), PermissionError()]

    def fail(*_):
        raise errors[number]

    for number in range(len(errors)):
        worker_setup.report(number)
        with monkeypatch.context() as patch:
            patch.setattr(interval_worker, "aggregate_landing", fail)
            worker_setup.at(number, GRACE_S)
        assert worker_setup.kinds() == ["fallback"] * (number + 1)
    assert causes(worker_setup) == {"other": 4, "disk": 1}
    assert "12345" not in str(worker_setup.logged)  # what an error of another library says may quote a reading
    worker_setup.release(len(errors))
    assert worker_setup.kinds()[-1] == "measured"


def test_readings_that_end_the_process_each_time_cost_a_measurement_and_no_price(worker_setup, monkeypatch):
    worker_setup.report(0)

    def end_process(*_):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(interval_worker, "aggregate_landing", end_process)
        for _ in range(interval_worker.MAX_ATTEMPTS):
            with pytest.raises(SystemExit):
                worker_setup.at(0, GRACE_S)
            worker_setup.end(worker_setup.worker)
            worker_setup.worker = worker_setup.new_worker()
        assert worker_setup.kinds() == []
        worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == ["fallback"]
    worker_setup.release(1)
    assert worker_setup.kinds() == ["fallback", "measured"]


def test_workers_that_begin_an_interval_together_are_one_attempt_and_those_that_ended_add_up(worker_setup):
    live = [worker_setup.new_worker() for _ in range(3 * interval_worker.MAX_ATTEMPTS)]
    for interval in range(20):
        together = threading.Barrier(len(live))

        def begin(worker, interval=interval, together=together):
            together.wait(60)
            worker.begin_attempt(interval)

        with ThreadPoolExecutor(len(live)) as threads:
            list(threads.map(begin, live))  # none of them gives up
        worker_setup.end(*live)
        for _ in range(interval_worker.MAX_ATTEMPTS - 1):
            worker_setup.worker.begin_attempt(interval)
            worker_setup.end(worker_setup.worker)
        with pytest.raises(MurmurateError, match=f"was begun {interval_worker.MAX_ATTEMPTS} times and never finished"):
            worker_setup.worker.begin_attempt(interval)
        worker_setup.worker.context.state.finish_aggregation(worker_setup.landing.interval_s, interval)


def test_any_number_of_workers_that_sum_at_the_same_time_release_what_was_measured(worker_setup, monkeypatch):
    workers = [worker_setup.new_worker() for _ in range(2 * interval_worker.MAX_ATTEMPTS)]
    worker_setup.report(0)
    together, aggregate = threading.Barrier(len(workers)), interval_worker.aggregate_landing

    def aggregate_together(*run):
        together.wait(60)
        return aggregate(*run)

    monkeypatch.setattr(interval_worker, "aggregate_landing", aggregate_together)
    worker_setup.clock.now_s = FIRST_S + STEP_S + GRACE_S
    with ThreadPoolExecutor(len(workers)) as threads:
        list(threads.map(interval_worker.IntervalWorker.run_once, workers))
    assert worker_setup.kinds() == ["measured"]


def test_every_damaged_file_of_a_closed_interval_or_a_table_leaves_a_price(worker_setup):
    """Each file of the landing's own folders in turn, emptied and made a stranger; retention goes on as well."""
    root, number, kinds = worker_setup.landing.root, 0, []
    worker_setup.release(0)
    for folder in ("_closed", "_meters"):
        for path in sorted(each for each in (root / folder).rglob("*") if each.is_file()):
            for content in (b"", b'{"stranger": true}', b"PAR1 stranger PAR1"):
                whole = path.read_bytes()
                path.write_bytes(content)
                number += 1
                worker_setup.worker = worker_setup.new_worker()
                load_table.cache_clear()  # as after a restart
                load_shards.cache_clear()
                worker_setup.release(number)
                kinds = worker_setup.kinds()
                assert len(kinds) == number + 1, path
                if path.exists() and path.read_bytes() == content:
                    path.write_bytes(whole)
    assert "withheld" not in kinds
    assert kinds.count("measured") > len(kinds) // 2
    assert number >= 12


def test_stray_files_stop_neither_releases_nor_forgetting_and_are_named(worker_setup):
    worker_setup.release(0)
    strangers = ["_closed/notes.json", "_closed/odd/x.json", "_meters/notes", "_meters/old/households.parquet"]
    for stranger in strangers:
        path = worker_setup.landing.root / stranger
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (worker_setup.landing.root / os.fsdecode(b"_meters/\xff.txt")).write_text("a name that is not UTF-8")
    worker_setup.release(1)
    assert worker_setup.kinds() == ["measured", "measured"]
    assert "_meters/\\udcff.txt" in worker_setup.release_report()["warnings"]
    assert set(worker_setup.worker.figures.damage) - {"_meters/\\udcff.txt"} == {
        "_closed/notes.json",
        "_closed/odd",
        "_meters/notes",
        "_meters/old",
    }
    assert "_meters/notes" in worker_setup.release_report()["warnings"]
    worker_setup.clock.now_s = FIRST_S + STEP_S + 7 * 86_400 + 3600
    worker_setup.worker.purge(worker_setup.clock.now())
    assert not worker_setup.landing.interval_folder(FIRST_S).exists()
    assert worker_setup.count("confidential.demand") == 0
    assert worker_setup.worker.figures.oldest_readings_age_s == 0


def test_each_damaged_closing_and_strange_folder_leaves_retention_as_it_is(worker_setup):
    """Readings, demand and claims go within an hour of their time, whatever lies beside them."""
    worker_setup.release(*range(3))
    closed = worker_setup.landing.root / "_closed"
    damaged, *_ = sorted(closed.glob("*.json"))
    damaged.write_text("{")
    (worker_setup.landing.root / "interval=__HIVE_DEFAULT_PARTITION__" / "shard=0").mkdir(parents=True)
    (closed / "20261114T0000Z.closing.bak").write_text("")
    worker_setup.clock.now_s = FIRST_S + 3 * STEP_S + 7 * 86_400
    worker_setup.worker.purge(worker_setup.clock.now())
    assert worker_setup.landing.list_intervals()[0] == []
    assert worker_setup.count("confidential.demand") == 0


@pytest.mark.parametrize("damage", ["emptied", "gone"])
def test_a_layout_file_that_is_lost_is_written_again_so_that_the_next_start_finds_it(worker_setup, damage):
    landing = worker_setup.worker.landing
    file = landing.root / "_layout.json"
    before = file.read_bytes()
    file.write_bytes(b"") if damage == "emptied" else file.unlink()
    worker_setup.release(0)
    assert worker_setup.kinds() == ["measured"]
    assert file.read_bytes() == before
    assert "layout of the landing restored" in worker_setup.events()
