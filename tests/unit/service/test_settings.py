"""Settings that would delete readings before they count, or give two parts one address, are refused."""

import pytest

from murmurate.errors import MurmurateError
from murmurate.service.settings import ServiceSettings, load_settings


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
