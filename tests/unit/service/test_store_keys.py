"""Readings and a public log may be in buckets, and who serves prices must not have the key of the readings."""

from pathlib import Path

import pytest

from murmurate.errors import MurmurateError
from murmurate.service.storage.open_store import check_log_has_own_key, open_log_store
from murmurate.service.supervisor import choose_environment

LANDING, LOG = "s3://readings", "s3://prices"
ENVIRONMENT = {
    "PATH": "/bin",
    "AWS_SECRET_ACCESS_KEY": "of readings",
    "aws_access_key_id": "of readings",
    "GOOGLE_SERVICE_ACCOUNT": "of readings",
    "AZURE_STORAGE_ACCOUNT_KEY": "of readings",
    "MURMURATE_LOG_AWS_SECRET_ACCESS_KEY": "of prices",
    "MURMURATE_STATE": "of demand",
    "MURMURATE_KAFKA_PASSWORD": "of readings",
    "MURMURATE_KAFKA_PASSWORD_FILE": "of readings",
}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ENVIRONMENT.keys() - {"PATH"}:
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "MURMURATE_LOG_AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)


def test_what_serves_prices_gets_no_key_of_readings():
    left = choose_environment("public", ENVIRONMENT, LANDING)
    assert left == {"PATH": "/bin", "MURMURATE_LOG_AWS_SECRET_ACCESS_KEY": "of prices"}
    left = choose_environment("public", ENVIRONMENT, Path("landing"))
    assert left["AWS_SECRET_ACCESS_KEY"], "it is that of the log"
    assert "MURMURATE_STATE" not in left


@pytest.mark.parametrize("process", ["private", "worker"])
def test_other_processes_get_everything(process):
    assert choose_environment(process, ENVIRONMENT, LANDING) == ENVIRONMENT


@pytest.mark.parametrize(("landing", "log"), [(Path("landing"), LOG), ("landing", LOG), (LANDING, "./log")])
def test_one_bucket_needs_one_key(landing, log):
    check_log_has_own_key(landing, log)


def test_two_buckets_need_two_keys(monkeypatch):
    with pytest.raises(MurmurateError, match="set MURMURATE_LOG_AWS_ACCESS_KEY_ID"):
        check_log_has_own_key(LANDING, LOG)
    monkeypatch.setenv("MURMURATE_LOG_AWS_ACCESS_KEY_ID", "of prices")
    check_log_has_own_key(LANDING, LOG)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of prices")
    with pytest.raises(MurmurateError, match="must have another key"):
        check_log_has_own_key(LANDING, LOG)


def test_a_token_of_another_key_is_not_sent_with_the_key_of_the_log(monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of readings")
    monkeypatch.setenv("MURMURATE_LOG_AWS_ACCESS_KEY_ID", "of prices")
    with pytest.raises(MurmurateError, match="MURMURATE_LOG_AWS_SESSION_TOKEN"):
        open_log_store(LOG)
