"""Prometheus metrics of what fills up and of what must not grow old: disks, databases, backups."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.durable import free_disk_share

_DATABASES = ("state", "log")
_UNFINISHED = ".part"  # how the name of a dump ends that is still being written


@dataclass(frozen=True, slots=True, eq=False)  # a registry keeps collectors by identity
class StorageCollector(Collector):
    """The folders of a private process, and the databases as far as they have told their size."""

    settings: ServiceSettings
    database_bytes: Mapping[str, int]

    def collect(self) -> Iterator[Metric]:
        free = GaugeMetricFamily("murmurate_disk_free_ratio", "Free share of a folder's disk.", labels=("folder",))
        folders = {"landing": self.settings.landing, "backups": self.settings.backups}
        for name, folder in folders.items():
            if folder is not None and (share := free_disk_share(folder)) is not None:
                free.add_metric((name,), share)
        yield free
        sizes = GaugeMetricFamily("murmurate_database_bytes", "Size of a database.", labels=("database",))
        for name, size in self.database_bytes.items():
            sizes.add_metric((name,), size)
        yield sizes
        if self.settings.backups is not None:
            yield _backup_ages(self.settings.backups)


def _backup_ages(folder: Path) -> Metric:
    """The age of the newest backup of each database by the time of its file. -1: there is none, or no right to look."""
    ages = GaugeMetricFamily(
        "murmurate_backup_age_seconds", "Age of a database's newest backup; -1 if there is none.", labels=("database",)
    )
    try:
        entries = [(path.name, path.stat()) for path in folder.iterdir()]
    except OSError:
        entries = []
    for database in _DATABASES:
        times_s = [
            stat.st_mtime
            for name, stat in entries
            if name.startswith(database) and not name.endswith(_UNFINISHED) and stat.st_size
        ]
        ages.add_metric((database,), max(0.0, time.time() - max(times_s)) if times_s else -1.0)
    return ages
