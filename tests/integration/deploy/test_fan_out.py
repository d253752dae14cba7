"""The benchmark of readers behind a cache in its short form: the same share of readers in each zone and shard."""

import pytest
from benchmarks import fan_out
from tests.support.ports import free_port

pytestmark = [pytest.mark.nginx, pytest.mark.slow]


@pytest.fixture
def measure(log_dsn, tmp_path, monkeypatch):
    for name in ("SERVICE", "PROXY"):
        monkeypatch.setattr(fan_out, name, free_port())
    return lambda readers, zones, **cache: fan_out.measure(log_dsn, readers, zones, tmp_path, **cache)


def test_one_request_of_ten_thousand_readers_of_a_shard_reaches_the_service(measure, capsys):
    assert measure(10_000, 1_000) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "requests for prices of a shard at the service: 1" in lines


def test_a_cache_that_keeps_nothing_misses_both_goals(measure, capsys):
    assert measure(300, 30, cache="off") == 1
    assert capsys.readouterr().out.count("MISSED") == 2
