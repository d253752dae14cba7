"""Play README.md, your-own-data.md and first-hour.md in an empty folder and a fresh environment, and time each command.

    python -m tests.first_hour dist/murmurate-0.1.0-py3-none-any.whl     most of the time it waits for the clock

Needs a package index and curl, and no PostgreSQL server. Each command must succeed, the demo's page must be there
within a minute (of a machine that does nothing else), commands of your-own-data.md must print what the page shows, the
pages on the sample must be written, and the log with the live price must verify. A command that stands on several pages
is played once.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Timer
from urllib.request import urlopen

from tests.support.documented_commands import commands_of, prints, shown_below
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
OWN_DATA = ROOT / "docs" / "tutorial" / "your-own-data.md"
PAGE = ROOT / "docs" / "tutorial" / "first-hour.md"
DEMO, SHORT_DEMO = "murmurate demo", "murmurate demo --minutes 1"
MAX_DEMO_S = 60.0  # from the command to the page
EXPECTED = ("had the exact rates been published", "Everything holds.")
WRITTEN = ("readme/plan.json", "worth/index.html", "bills/index.html")
MAX_PLAY_S = 3600.0  # a command that never ends is an error of the page
_MARK = "@@ "
_FOREIGN_VARIABLES = ("MURMURATE_", "PYTHON", "VIRTUAL_ENV", "PG", "HYPOTHESIS_")


def _print(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 this program prints times


def machine_share() -> float:
    """The part of a core that one process gets now."""
    wall_s, cpu_s = time.monotonic(), time.process_time()
    while time.process_time() - cpu_s < 0.5:
        pass
    return 0.5 / (time.monotonic() - wall_s)


def end_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)


def played_commands() -> list[tuple[str, bool]]:
    """The commands of the pages, and whether each must succeed: the README's in a separate folder."""
    environment, install, *rest = commands_of(PAGE)
    readme = [(SHORT_DEMO if command == DEMO else command, succeeds) for command, succeeds in commands_of(README)]
    own_data = commands_of(OWN_DATA)
    if (SHORT_DEMO, True) not in readme or (SHORT_DEMO, True) not in rest:
        raise ValueError("one of the pages does not show the demo")
    left = [each for each in rest if each not in {*readme, *own_data}]
    return [environment, ("mkdir readme && cd readme", True), *readme, ("cd ..", True), install, *own_data, *left]


def page_script(wheel: Path) -> str:
    """The commands as a shell script that says each of them first. It takes ports that are free."""
    public, private = free_port(), free_port()
    replaced = {
        'pip install "murmurate[': f'pip install -q "{wheel}[',
        "> service.toml": f"| sed 's/:8080/:{public}/; s/:8081/:{private}/' > service.toml",
        "127.0.0.1:8080": f"127.0.0.1:{public}",
        "127.0.0.1:8081": f"127.0.0.1:{private}",
    }
    lines = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
    for command, succeeds in played_commands():
        played = command if succeeds else f"if {command}; then exit 1; fi"
        for text, other in replaced.items():
            played = played.replace(text, other)
        lines += [f"printf '\\n{_MARK}%s\\n' {shlex.quote(command)}", played]
    return "\n".join([*lines, f"echo '{_MARK}'", ""])


class Player:
    """Runs the script and keeps what it prints, how long each command takes, and when the demo's page was there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shown, self.demo_visible_s, self.demo_share = folder, "", None, 1.0
        self.outputs: dict[str, str] = {}  # of each command
        self._command, self._began_s = "", time.monotonic()

    def play(self, script: str) -> int:
        environment = {name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN_VARIABLES)}
        with subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=environment | {"no_proxy": "127.0.0.1", "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as shell:
            limit = Timer(MAX_PLAY_S, end_group, [shell.pid])
            limit.start()
            try:
                for line in shell.stdout:
                    self._read_line(line)
            finally:
                limit.cancel()
                end_group(shell.pid)
        return shell.returncode

    def _read_line(self, line: str) -> None:
        self.shown += line
        if line.startswith(_MARK):
            if self._command:
                _print(f"{time.monotonic() - self._began_s:7.1f} s  {self._command[:110]}")
            self._command, self._began_s = line.removeprefix(_MARK).rstrip(), time.monotonic()
        self.outputs[self._command] = self.outputs.get(self._command, "") + line
        if self.demo_visible_s is None and (address := re.search(r"Prices +(http\S+)", line)):
            with urlopen(address[1], timeout=30) as answer:  # noqa: S310  what the demo has printed
                answer.read()
            self.demo_visible_s = time.monotonic() - self._began_s
            self.demo_share = machine_share()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve(strict=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended as well
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        player = Player(Path(folder))
        began_s = time.monotonic()
        status = player.play(page_script(wheel))
        _print(f"the first hour: {time.monotonic() - began_s:.0f} s")
        missing = [text for text in EXPECTED if text not in player.shown]
        missing += [name for name in WRITTEN if not (player.folder / name).is_file()]
        own_data = zip(commands_of(OWN_DATA), shown_below(OWN_DATA), strict=True)
        missing += [command for (command, _), lines in own_data if not prints(player.outputs.get(command, ""), lines)]
    visible_s, share = player.demo_visible_s, player.demo_share
    if visible_s is not None:
        _print(
            f"the demo's page is there after {visible_s:.1f} s, with {share:.2f} of a core (goal {MAX_DEMO_S:.0f} s)"
        )
    is_slow = visible_s is None or visible_s * share > MAX_DEMO_S
    if status or missing or is_slow or "Traceback" in player.shown:
        _print(f"{player.shown}\nexit status {status}; missing: {missing}; the demo is slow: {is_slow}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
