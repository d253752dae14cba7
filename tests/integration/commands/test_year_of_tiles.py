"""Twelve short months of one shard: with the archive databases and dumps stay as they are, without it they grow.

The whole year, with core seconds, is `benchmarks.year_of_tiles`.
"""

import pytest
from benchmarks.year_of_tiles import FLAT, MonthSizes, YearOfTiles, spread

DAYS_A_MONTH = 5
KEPT_TILES = (DAYS_A_MONTH + 1) * 24

pytestmark = [pytest.mark.slow, pytest.mark.postgres_programs]


def months_of(state_dsn, log_dsn, archive, count):
    year = YearOfTiles(state_dsn, log_dsn, archive, zones=20, days_a_month=DAYS_A_MONTH)
    months = []
    for month in range(count):
        year.write_month(month)
        months.append(year.measure_sizes())
    year.close()
    return months


def test_databases_and_dumps_are_flat_after_the_first_month(state_dsn, log_dsn, tmp_path):
    months = months_of(state_dsn, log_dsn, tmp_path / "archive", 12)
    assert {name: value for name in MonthSizes._fields if (value := spread(months, name)) > FLAT} == {}
    assert months[-1].log_tiles == KEPT_TILES + 1  # the first one stays
    assert months[-1].state_tiles == KEPT_TILES


def test_without_the_archive_they_grow(state_dsn, log_dsn):
    months = months_of(state_dsn, log_dsn, None, 3)
    assert spread(months, "log_tiles") > 1.4
    assert spread(months, "dump_bytes") > FLAT
