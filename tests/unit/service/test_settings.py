"""Settings that would delete readings before they count, or give two parts one address, are refused."""

import os
import subprocess
import sys

import pytest

from murmurate.errors import MurmurateError
from murmurate.service.landing.layout import Landing
from murmurate.service.settings import AggregationSettings, ServiceSettings, load_settings


@pytest.mark.parametrize("keep_days", [0, -1])
def test_readings_must_be_kept_for_some_time(keep_days):
    with pytest.raises(MurmurateError, match=r"keep_days is .*: must be at least two intervals and grace_s, such as 7"):
        ServiceSettings(keep_days=keep_days)


@pytest.mark.parametrize(("interval_s", "least_s"), [(900, 1860), (60, 180)])
def test_readings_must_be_kept_for_two_intervals_and_the_grace(interval_s, least_s):
    ServiceSettings(keep_days=least_s / 86_400).check_keep_days(interval_s)
    with pytest.raises(MurmurateError, match=f"two intervals of {interval_s} s and grace_s: raise it"):
        ServiceSettings(keep_days=(least_s - 1) / 86_400).check_keep_days(interval_s)


def test_each_process_may_have_an_address_for_its_metrics(tmp_path):
    file = tmp_path / "service.toml"
    file.write_text('[metrics]\nworker = "0.0.0.0:9465"\npublic = "[::1]:9466"\n')
    assert load_settings(file).metrics_addresses == {"worker": ("0.0.0.0", 9465), "public": ("::1", 9466)}  # noqa: S104
    assert ServiceSettings().metrics_addresses == {}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            'worker = "127.0.0.1:8080"',
            "worker in \\[metrics\\] is 127.0.0.1:8080: must be an address that nothing else has",
        ),
        (
            'worker = "127.0.0.1:9464"\npublic = "127.0.0.1:9464"',
            "public in .* must be an address that nothing else has",
        ),
        ('worker = "9464"', "worker in .*: must be an address such as"),
        ("worker = 9464", "worker in .*: must be a text in quotes"),
        ('workers = "127.0.0.1:9464"', "did you mean worker?"),
    ],
)
def test_an_address_for_metrics_that_cannot_be_is_refused(tmp_path, lines, message):
    file = tmp_path / "service.toml"
    file.write_text(f"[metrics]\n{lines}\n")
    with pytest.raises(MurmurateError, match=message):
        load_settings(file)


def test_home_assistant_is_not_told_of_prices_where_nobody_is(tmp_path):
    file = tmp_path / "service.toml"
    file.write_text("[mqtt]\nhome_assistant = true\nnotifications = false\n")
    with pytest.raises(MurmurateError, match="must be false where notifications are false"):
        load_settings(file)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        *((f'group = "{name}"', "must be letters, digits") for name in ("", "a/b", "+", "a#", "$share", "two words")),
        ('group = "homes"\nprotocol = "3.1.1"', "protocol must be 5: sessions of 3.1.1 do not expire"),
        ("group = 5", "must be a text in quotes"),
    ],
)
def test_a_group_that_no_broker_can_share_is_refused(tmp_path, lines, message):
    file = tmp_path / "service.toml"
    file.write_text(f"[mqtt]\n{lines}\n")
    with pytest.raises(MurmurateError, match=message):
        load_settings(file)


def test_readings_are_shared_only_where_a_group_is_named(tmp_path):
    file = tmp_path / "service.toml"
    for lines, group in (("", None), ('group = "homes-1"', "homes-1")):
        file.write_text(f"[mqtt]\n{lines}\n")
        assert load_settings(file).mqtt.group == group


@pytest.mark.parametrize(
    "engine",
    ["process", "local", "local[2]", "local[*]", "spark://host:7077", "spark://a:7077,b:7077", "k8s://h", "yarn"],
)
def test_readings_may_be_summed_in_the_worker_or_on_a_spark_master(tmp_path, engine):
    file = tmp_path / "service.toml"
    file.write_text(f'[aggregation]\nengine = "{engine}"\n')
    load_settings(file).aggregation.check_installed()
    assert load_settings(file).aggregation.engine == engine


@pytest.mark.parametrize("engine", ["", "spark", "spark://host", "http://host:7077", "local[two]"])
def test_an_engine_that_is_none_is_refused(engine):
    with pytest.raises(MurmurateError, match="must be process, or a Spark master such as spark://host:7077"):
        AggregationSettings(engine=engine)


WITHOUT_PYSPARK = """
import sys
from murmurate import extras
from murmurate.cli import main
find = extras.find_spec
extras.find_spec = lambda name: None if name == "pyspark" else find(name)
sys.argv = ["murmurate", "serve", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("only", [[], ["--only", "worker"]])
def test_a_service_with_spark_as_its_engine_names_the_extra_that_is_missing(tmp_path, only):
    Landing.create(tmp_path / "landing")
    (tmp_path / "service.toml").write_text('meters = ""\n[aggregation]\nengine = "local[2]"\n')
    stores = {"MURMURATE_STATE": "postgresql://nowhere", "MURMURATE_LOG": "postgresql://nowhere"}
    command = [sys.executable, "-c", WITHOUT_PYSPARK, str(tmp_path / "service.toml"), *only]
    done = subprocess.run(command, env=os.environ | stores, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert "pyspark is not installed: run pip install" in done.stderr
    assert "[service,spark]" in done.stderr
