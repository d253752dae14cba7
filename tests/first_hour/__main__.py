"""Play README.md, your-own-data.md and first-hour.md in an empty folder and a fresh environment, and time each command.

    python -m tests.first_hour dist/murmurate-0.1.0-py3-none-any.whl     most of the time it waits for the clock

Needs a package index and curl, and no PostgreSQL server. Each command must succeed, the demo's page must be there
within a minute (of a machine that does nothing else), commands of your-own-data.md must print what the page shows, the
pages on the sample must be written, and the log with the live price must verify. A command that stands on several pages
is played once.

The live price is made for the meters of another file than the sample: three days of a utility, in Windows-1252, with
semicolons, decimal commas and the local times at which intervals end; a customer may have two meters, rows are there
twice, rows contradict each other, and an hour of a night occurs twice. Each number that a command prints about it must
be that of the file, and what each hour used is compared with what was written.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from urllib.request import urlopen
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq

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
UTILITY_FILE, UTILITY_OPTIONS = "quartier.csv", "--timezone Europe/Zurich"
CUSTOMERS, SECOND_METERS, REPEATED, CONTRADICTED = 200, 40, 24, 20
METERS = CUSTOMERS + SECOND_METERS
UTILITY_DAYS = ("2025-10-24T22:00Z", "2025-10-27T23:00Z")  # three local days, one of 25 hours
IMPORT_AS_STARTS = f"murmurate readings import {UTILITY_FILE} {UTILITY_OPTIONS} --out as-starts"
IMPORT_LIVE = "murmurate readings import half-hours.csv"  # as the page has it; the play takes the file of the utility
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


def write_utility_file(path: Path) -> tuple[dict[str, list[str]], Counter[int]]:
    """Write the file. Returns what commands must print, by how they begin, and what each hour used [Wh], by its start.

    Rows of the same meter and interval that contradict each other count for no one.
    """
    rng, zurich = random.Random(20251026), ZoneInfo("Europe/Zurich")  # noqa: S311  made readings
    first_s, stop_s = (int(datetime.fromisoformat(text).timestamp()) for text in UTILITY_DAYS)
    meters = [(f"CH{meter:05}", f"Müller {meter % CUSTOMERS}") for meter in range(METERS)]
    rows, used_wh = [], Counter[int]()
    for meter, customer in meters:
        for start_s in range(first_s, stop_s, 900):
            end = datetime.fromtimestamp(start_s + 900, UTC).astimezone(zurich)
            rows.append((customer, meter, f"{end:%d.%m.%Y %H:%M}", rng.randrange(1, 400)))
            used_wh[start_s // 3600] += rows[-1][-1]
    by_day = len(rows) // METERS
    picked = rng.sample([at for at in range(len(rows)) if at % by_day < 96], REPEATED + CONTRADICTED)  # no time twice
    repeated, contradicted = picked[:REPEATED], picked[REPEATED:]
    for at in contradicted:
        used_wh[(first_s + at % by_day * 900) // 3600] -= rows[at][-1]
    taken = len(rows) - CONTRADICTED
    rows += [rows[at] for at in repeated] + [(*rows[at][:-1], 400) for at in contradicted]
    texts = (f"{customer};{meter};{end};0,{wh:03}" for customer, meter, end, wh in rows)
    path.write_text("\n".join(["Kunde;Zählpunkt;Zeitstempel;Verbrauch (kWh)", *texts, ""]), encoding="cp1252")
    said = [
        f"{len(rows):,} rows; Windows-1252, semicolons; a row a reading; 15 minutes; kWh",
        f"readings of 1 minute from {METERS} meters of {CUSTOMERS} households (column Kunde), 2025-10-24T22:00:00Z to",
        f"Taken: {15 * taken:,} readings",
        f"{REPEATED} cells were there before",
        f"Not taken: {2 * CONTRADICTED} cells",
    ]
    return {
        IMPORT_AS_STARTS: [f"Taken: {taken:,} readings", "import again with --stamps end"],
        IMPORT_LIVE: said,
        "murmurate plan live/zone.toml": [f"Plan for live: {CUSTOMERS} households"],
        "curl -s --fail-with-body": [f'"accepted":{METERS},'],
        "murmurate log verify": ["Everything holds."],
    }, used_wh


def find_differences(folder: Path, used_wh: Counter[int]) -> list[str]:
    """Return the hours whose sum in the readings that were imported is not that of the file."""
    table, found = pq.read_table(folder / "live" / "readings.parquet"), Counter[int]()
    starts, energies = table["interval_start"].cast("int64").to_pylist(), table["energy_wh"].to_pylist()
    for start_ms, energy_wh in zip(starts, energies, strict=True):
        found[start_ms // 3_600_000] += energy_wh
    return [f"hour {hour}: {used_wh[hour]} Wh" for hour in used_wh | found if used_wh[hour] != found[hour]]


def played_commands() -> list[tuple[str, bool]]:
    """The commands of the pages, and whether each must succeed: the README's in a separate folder."""
    environment, install, *rest = commands_of(PAGE)
    readme = [(SHORT_DEMO if command == DEMO else command, succeeds) for command, succeeds in commands_of(README)]
    own_data = commands_of(OWN_DATA)
    if (SHORT_DEMO, True) not in readme or (SHORT_DEMO, True) not in rest:
        raise ValueError("one of the pages does not show the demo")
    left = [each for each in rest if each not in {*readme, *own_data}]
    live = next(number for number, (command, _) in enumerate(left) if command.startswith(IMPORT_LIVE))
    left.insert(live, (IMPORT_AS_STARTS, True))
    return [environment, ("mkdir readme && cd readme", True), *readme, ("cd ..", True), install, *own_data, *left]


def page_script(wheel: Path) -> str:
    """The commands as a shell script that says each of them first. It takes ports that are free."""
    public, private = free_port(), free_port()
    replaced = {
        'pip install "murmurate[': f'pip install -q "{wheel}[',
        "> service.toml": f"| sed 's/:8080/:{public}/; s/:8081/:{private}/' > service.toml",
        f"half-hours.csv {UTILITY_OPTIONS} --interval-minutes": (
            f"{UTILITY_FILE} {UTILITY_OPTIONS} --stamps end --interval-minutes"
        ),
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
        counts, used_wh = write_utility_file(player.folder / UTILITY_FILE)
        began_s = time.monotonic()
        status = player.play(page_script(wheel))
        _print(f"the first hour: {time.monotonic() - began_s:.0f} s")
        missing = [text for text in EXPECTED if text not in player.shown]
        missing += [name for name in WRITTEN if not (player.folder / name).is_file()]
        own_data = zip(commands_of(OWN_DATA), shown_below(OWN_DATA), strict=True)
        missing += [command for (command, _), lines in own_data if not prints(player.outputs.get(command, ""), lines)]
        for begin, lines in counts.items():
            shown = "".join(text for command, text in player.outputs.items() if command.startswith(begin))
            missing += [f"{begin}: {line}" for line in lines if line not in shown]
        missing += find_differences(player.folder, used_wh) if not status else []
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
