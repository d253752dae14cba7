"""docs/how-to/serve.md and, on the service that it leaves, docs/how-to/run.md run as written."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import ExitStack

import httpx
import pytest

from murmurate.service.settings import EXAMPLE_SETTINGS, PROCESSES, load_settings
from tests.support.operator_cli import DOCS, an_operator, documented_commands
from tests.support.waiting import wait_until

PAGE, NEXT_PAGE = "how-to/serve.md", "how-to/run.md"
STEP_S, GRACE_S, SPEED = 900, 300, 30


@pytest.mark.curl
def test_the_pages_run_as_written(tmp_path):
    """But for its clock, which runs faster and in the past: a quarter hour takes 30 s, and not the first 8 of them."""
    (table,) = re.findall(r"```csv\n(.*?)```", (DOCS / PAGE).read_text(encoding="utf-8"), flags=re.DOTALL)
    started = {}
    first_s = int(time.time()) // STEP_S * STEP_S - 12 * 3600
    with an_operator(tmp_path) as operator, ExitStack() as processes:
        operator.write("meters.csv", table)
        for command, _ in [*documented_commands(PAGE), *documented_commands(NEXT_PAGE)]:
            if command.endswith(" &"):
                words = command.removesuffix(" &").split()
                process = subprocess.Popen(words, cwd=tmp_path, env=operator.environment, stderr=subprocess.DEVNULL)
                processes.callback(stop, process)
                started[words[0]] = process
                addresses = ["8082/shards"] if "8082" in command else ["8080/readyz", "8081/readyz"]
                assert wait_until(lambda addresses=addresses: all(map(answers, addresses)))
                assert wait_until((tmp_path / "static" / "shards").exists)
            elif command == "murmurate zone open plan.json":
                operator.run(f"{command} --first {time.strftime('%FT%TZ', time.gmtime(first_s))}")
            elif command == "murmurate status service.toml":
                send_first_readings(operator, load_settings(tmp_path / "service.toml").clock)
                assert "harbour" in operator.run(f"{command} || test $? = 1")
            else:
                is_late = command.startswith("murmurate readings ingest")
                shown = operator.run(command, status=1 if is_late else 0)
                if "--example > service.toml" in command:
                    switch_on(tmp_path / "service.toml", "static_files")
                    set_clock(tmp_path / "service.toml", first_s + STEP_S - 8 * SPEED)
                check_output(command, shown)
        assert set(started) == {"murmurate", "python3"}
        stop(started["murmurate"])
        assert started["murmurate"].returncode == 0


def check_output(command, shown):
    if command.startswith("murmurate readings ingest"):
        assert "0 readings accepted, 1 late, 0 refused" in shown
    if command.startswith("murmurate log verify"):
        assert "Everything holds." in shown
    if command.startswith("murmurate prices"):
        assert "measured" in shown
    if command.startswith("curl"):
        assert '"zone":"harbour"' in shown


def set_clock(settings, begin_s):
    """Have the service begin at a time of the past, and its time pass faster; give readings longer to arrive."""
    text = re.sub(r"^grace_s = 60 ", f"grace_s = {GRACE_S}", settings.read_text(), flags=re.MULTILINE)
    settings.write_text(f"{text}\n[clock]\nsimulated_s = {begin_s}\nwall_s = {time.time()}\nspeed = {SPEED}\n")


def send_first_readings(operator, clock):
    """Play the script of the page by the clock of the service, until a price was measured.

    A machine that is too busy misses an interval; the next one comes after 30 s.
    """
    (script,) = re.findall(r"```sh\n(.*?)```", (DOCS / PAGE).read_text(encoding="utf-8"), flags=re.DOTALL)
    end = time.monotonic() + 600
    accepted = False
    while True:
        now_s = clock.now()
        if now_s % STEP_S < GRACE_S / 2:
            by_the_clock = (
                f'sleep() {{ :; }}; date() {{ if [ $1 = +%s ]; then echo {now_s:.0f}; else command date "$@"; fi; }}'
            )
            accepted |= '"accepted":2' in operator.run(f"{by_the_clock}\n{script}").replace(" ", "")
        past_grace_s = now_s - now_s % STEP_S + GRACE_S + 2 * SPEED
        assert wait_until(lambda at_s=past_grace_s: clock.now() >= at_s)
        if accepted and "measured" in httpx.get("http://127.0.0.1:8080/zones/harbour/history.csv").text:
            return
        assert time.monotonic() < end
        next_s = now_s - now_s % STEP_S + STEP_S
        assert wait_until(lambda at_s=next_s: clock.now() >= at_s)


def stop(process):
    process.terminate()
    process.wait(180)


def switch_on(settings, name):
    """Take the comment sign from a setting, as the page asks for."""
    settings.write_text(re.sub(rf"^# (?={name} )", "", settings.read_text(), flags=re.MULTILINE))


def answers(address):
    try:
        return httpx.get(f"http://127.0.0.1:{address}").status_code == 200
    except httpx.TransportError:
        return False


def test_every_setting_of_the_example_is_one_that_is_read(tmp_path):
    text = re.sub(r"^# (?=\[|[a-z_]+ = )", "", EXAMPLE_SETTINGS, flags=re.MULTILINE)
    (tmp_path / "service.toml").write_text(text, encoding="utf-8")
    settings = load_settings(tmp_path / "service.toml")
    assert settings.mqtt is not None
    assert settings.metrics.keys() == set(PROCESSES)
    assert settings.operator_login is not None
    assert settings.display_of("harbour").timezone.key == "Europe/Lisbon"
    assert settings.display_of("elsewhere").timezone.key == "Europe/Zurich"
