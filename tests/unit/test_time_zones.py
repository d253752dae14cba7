"""Time zones come from the package tzdata, whatever database the system has."""

import zoneinfo
from datetime import datetime, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest

from murmurate.errors import MurmurateError
from murmurate.time_zones import load_time_zone, local_clock

SUMMER = datetime(2026, 7, 1, 12)  # noqa: DTZ001  a local time


@pytest.fixture
def wrong_system_database(tmp_path):
    """A system on which Zurich is at UTC."""
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Zurich").write_bytes(files("tzdata").joinpath("zoneinfo", "UTC").read_bytes())
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([tmp_path])
    _clear_caches()
    yield
    zoneinfo.reset_tzpath(before)
    _clear_caches()


def _clear_caches():
    ZoneInfo.clear_cache()
    load_time_zone.cache_clear()
    local_clock.cache_clear()


@pytest.mark.usefixtures("wrong_system_database")
def test_the_database_of_the_system_is_not_read():
    assert SUMMER.replace(tzinfo=ZoneInfo("Europe/Zurich")).utcoffset() == timedelta(0)
    assert SUMMER.replace(tzinfo=load_time_zone("Europe/Zurich")).utcoffset() == timedelta(hours=2)
    assert local_clock("Europe/Zurich").offsets_min == (60, 120)


@pytest.mark.parametrize(
    "name", ["", "Europe", "Europe/", "../zones", "/etc/localtime", "europe/zurich", "Europe/Zürich"]
)
def test_what_is_no_name_of_the_database_is_refused(name):
    with pytest.raises(MurmurateError, match="must be a name such as Europe/Zurich"):
        load_time_zone(name)


def test_a_time_zone_knows_its_name_and_is_loaded_once():
    assert load_time_zone("America/Argentina/Ushuaia").key == "America/Argentina/Ushuaia"
    assert load_time_zone("UTC") is load_time_zone("UTC")
