"""docs/how-to/serve.md runs as written."""

from __future__ import annotations

import re
import subprocess
import time

import httpx
import pytest

from tests.support.operator_cli import DOCS, an_operator, documented_commands

PAGE = "how-to/serve.md"


@pytest.mark.curl
def test_the_page_runs_as_written(tmp_path):
    (table,) = re.findall(r"```csv\n(.*?)```", (DOCS / PAGE).read_text(encoding="utf-8"), flags=re.DOTALL)
    serving = None
    with an_operator(tmp_path) as operator:
        operator.write("meters.csv", table)
        try:
            for command, _ in documented_commands(PAGE):
                if command.endswith(" &"):
                    words = command.removesuffix(" &").split()
                    serving = subprocess.Popen(words, cwd=tmp_path, env=operator.environment, stderr=subprocess.DEVNULL)
                    until_ready()
                else:
                    shown = operator.run(command)
                    if command.startswith("murmurate ingest"):
                        assert "0 readings accepted, 1 late, 0 refused" in shown
                    if command.startswith("curl"):
                        assert '"zone":"harbour"' in shown
        finally:
            if serving is not None:
                serving.terminate()
                assert serving.wait(180) == 0
    assert serving is not None


def until_ready():
    end = time.monotonic() + 180
    for port in (8080, 8081):
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            assert time.monotonic() < end
            time.sleep(0.1)


def test_every_setting_of_the_example_is_one_that_is_read(tmp_path):
    from murmurate.service.settings import EXAMPLE_SETTINGS, load_settings  # noqa: PLC0415

    text = re.sub(
        r"^# (?=\[|host|port|readings|notifications|title|timezone)", "", EXAMPLE_SETTINGS, flags=re.MULTILINE
    )
    (tmp_path / "service.toml").write_text(text, encoding="utf-8")
    settings = load_settings(tmp_path / "service.toml")
    assert settings.mqtt is not None
    assert settings.display_of("harbour").timezone.key == "Europe/Lisbon"
    assert settings.display_of("elsewhere").timezone.key == "Europe/Zurich"
