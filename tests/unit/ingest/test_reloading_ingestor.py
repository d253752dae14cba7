"""The meter table of ingest: reloaded when it changes, and not while it may be half written."""

import pytest

from murmurate.service.clock import ServiceClock
from murmurate.service.ingest import ingestor as ingestor_module
from murmurate.service.ingest.ingestor import ReloadingIngestor
from murmurate.service.landing.layout import Landing


class Claims:
    """No reading is signed here."""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Write the table with this many meters of a zone, and return how many ingest knows then."""
    monkeypatch.setattr(ingestor_module, "RELOAD_CHECK_S", 0.0)
    source = tmp_path / "meters.csv"
    ingestor = None

    def write(hill, quay=100):
        nonlocal ingestor
        rows = [f"{n},{'hill' if n < hill else 'quay'},1000" for n in range(hill + quay)]
        source.write_text("\n".join(["meter,zone,bound_wh", *rows]) + "\n")
        if ingestor is None:
            landing = Landing.create(tmp_path / "landing")
            ingestor = ReloadingIngestor(landing, source, ServiceClock(), 60, Claims())
        return look()

    def look():
        return ingestor().registry.count_by_zone()["hill"]

    write.look = look
    return write


def test_a_table_with_more_meters_or_few_less_is_used_at_once(table):
    assert [table(count) for count in (100, 120, 119)] == [100, 120, 119]


def test_a_table_that_loses_many_meters_of_a_zone_is_used_only_if_it_stays_the_same(table, monkeypatch):
    """As one that is still being written: its missing meters go on reporting."""
    assert table(100) == 100
    assert table(60) == 100
    assert table.look() == 100
    monkeypatch.setattr(ingestor_module, "SECOND_LOOK_S", 0.0)
    assert table.look() == 60


def test_a_table_that_was_half_written_is_used_when_it_is_whole(table, monkeypatch):
    assert table(100) == 100
    assert table(60) == 100
    monkeypatch.setattr(ingestor_module, "SECOND_LOOK_S", 0.0)
    assert table(105) == 105


def test_each_version_that_loses_meters_waits_for_a_second_look_of_its_own(table, monkeypatch):
    assert table(100) == 100
    assert table(60) == 100
    monkeypatch.setattr(ingestor_module, "SECOND_LOOK_S", 0.0)
    assert table(61, quay=99) == 100
    assert table.look() == 61
