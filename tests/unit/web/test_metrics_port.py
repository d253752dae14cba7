"""The address at which a process serves its metrics, and nothing else."""

from __future__ import annotations

import os

import httpx
import psycopg
import pytest
from prometheus_client.core import GaugeMetricFamily
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from murmurate import __version__
from murmurate.errors import MurmurateError
from murmurate.service.settings import ServiceSettings
from murmurate.service.watchdog import PIPE_VARIABLE, read_progress
from murmurate.service.web.metrics_port import metrics_port


@pytest.fixture
def settings():
    return ServiceSettings(metrics={"worker": f"127.0.0.1:{free_port()}"})


def ask(settings, path="/metrics", method="GET"):
    """The answer to a request, once the server listens."""

    def answer():
        try:
            return httpx.request(method, f"http://{settings.metrics['worker']}{path}", timeout=60, trust_env=False)
        except httpx.ConnectError:
            return None

    return wait_until(answer)


@pytest.mark.slow
def test_it_serves_metrics_and_nothing_else_while_the_block_runs(settings):
    with metrics_port("worker", settings, lambda: [GaugeMetricFamily("murmurate_zones_open", "Zones.", 3)]):
        answer = ask(settings)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert f'murmurate_build_info{{process="worker",version="{__version__}"}} 1.0' in answer.text
        assert "\nmurmurate_zones_open 3.0\n" in answer.text
        assert "\nprocess_open_fds " in answer.text
        assert "cpu" not in answer.text  # the time that draws of noise take depends on the noise
        assert [ask(settings, path).status_code for path in ("/", "/zones", "/operator", "/metrics/")] == [404] * 4
        assert ask(settings, method="POST").status_code == 405
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{settings.metrics['worker']}/metrics", trust_env=False)


def test_without_a_setting_nothing_listens(settings):
    with metrics_port("public", settings), pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{settings.metrics['worker']}/metrics", trust_env=False)


@pytest.mark.slow
def test_a_database_that_is_away_is_503_without_its_words(settings):
    def failing():
        raise psycopg.OperationalError("the password of harbour is wrong")

    with metrics_port("worker", settings, failing):
        answer = ask(settings)
    assert (answer.status_code, answer.json()["detail"]) == (503, "a database does not answer")


@pytest.mark.slow
def test_it_gives_the_watchdog_no_sign_of_life(settings, monkeypatch):
    """It answers also while the process that it is about stands still, which must then be restarted."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    monkeypatch.setenv(PIPE_VARIABLE, str(write_end))
    with metrics_port("worker", settings):
        assert ask(settings).status_code == 200
    assert read_progress(read_end) is None
    os.close(read_end)
    os.close(write_end)


def test_an_address_that_is_taken_ends_the_process_with_a_sentence(settings):
    with metrics_port("worker", settings):
        ask(settings)
        with pytest.raises(MurmurateError, match=r"worker metrics address .* is taken"):
            metrics_port("worker", settings).__enter__()
