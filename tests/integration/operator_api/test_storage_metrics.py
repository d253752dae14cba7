"""What fills up and what grows old is exposed as it is: disks, sizes of databases, ages of backups."""

import os
import time

import psycopg
import pytest
from tests.support.databases import database
from tests.support.waiting import wait_until

from murmurate.service.operator_api.routes import storage_metrics
from murmurate.service.operator_api.status import BackgroundLogReader
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.metrics import public_metrics
from murmurate.service.settings import ServiceSettings, load_settings
from murmurate.service.storage.databases import Database
from murmurate.service.storage.migrate import migrate_database


def sample(metrics, name, **labels):
    found = [each for metric in metrics for each in metric.samples if (each.name, each.labels) == (name, labels)]
    return found[0].value if found else None


def storage(folder, **settings):
    (folder / "landing").mkdir(exist_ok=True)
    return list(storage_metrics(ServiceSettings(landing=folder / "landing", **settings), {}))


def write_backup(folder, name, age_s, text="PGDMP"):
    (folder / name).write_text(text)
    os.utime(folder / name, (time.time() - age_s, time.time() - age_s))


def test_the_age_of_a_backup_is_that_of_the_newest_whole_file_of_its_database(tmp_path):
    backups = tmp_path / "backups"
    backups.mkdir()
    write_backup(backups, "state-1.dump", 7200)
    write_backup(backups, "state-2.dump", 3600)
    write_backup(backups, "state.part", 0)  # being written
    write_backup(backups, "state-3.dump", 0, text="")  # a disk that was full
    write_backup(backups, "notes", 0)
    metrics = storage(tmp_path, backups=backups)
    assert 3600 <= sample(metrics, "murmurate_backup_age_seconds", database="state") < 7200
    assert sample(metrics, "murmurate_backup_age_seconds", database="log") == -1


def test_a_folder_of_backups_that_is_gone_is_no_backup_and_none_named_is_no_metric(tmp_path):
    gone = storage(tmp_path, backups=tmp_path / "gone")
    assert sample(gone, "murmurate_backup_age_seconds", database="state") == -1
    assert sample(gone, "murmurate_disk_free_ratio", folder="backups") is None
    assert sample(storage(tmp_path), "murmurate_backup_age_seconds", database="state") is None


def test_the_free_share_of_a_disk_is_that_of_the_system(tmp_path, monkeypatch):
    share = sample(storage(tmp_path), "murmurate_disk_free_ratio", folder="landing")
    assert 0 <= share <= 1
    real = os.statvfs(tmp_path)
    few_files = os.statvfs_result((*real[:2], 1000, 900, 900, 100, 3, 3, *real[8:]))
    monkeypatch.setattr(os, "statvfs", lambda _: few_files)
    assert sample(storage(tmp_path), "murmurate_disk_free_ratio", folder="landing") == pytest.approx(0.03)


def test_the_public_process_has_the_disk_of_its_files(tmp_path, log_dsn):
    migrate_database(log_dsn, "log")
    (tmp_path / "static").mkdir()
    state = LiveState(log_dsn, ServiceSettings(static_files=tmp_path / "static"))
    assert 0 <= sample(public_metrics(state), "murmurate_disk_free_ratio", folder="static") <= 1
    state.close()


def test_the_size_of_the_log_is_what_its_server_says():
    with database("log") as dsn:
        migrate_database(dsn, "log")
        reader = BackgroundLogReader(Database("log", dsn))
        assert wait_until(lambda: reader.refresh() or reader.database_bytes)
        with psycopg.connect(dsn) as connection:
            (size,) = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert reader.database_bytes == pytest.approx(size, rel=0.1)
        reader.close()


def test_backups_lie_beside_the_settings(tmp_path):
    (tmp_path / "service.toml").write_text('backups = "dumps"\n')
    assert load_settings(tmp_path / "service.toml").backups == tmp_path / "dumps"
