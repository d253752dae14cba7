"""A folder with the files of a newcomer: some right, most of them wrong in one way each."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE
from murmurate.service.keyring import create_keyring
from murmurate.service.landing.layout import Landing
from tests.support.operator_cli import made_plan
from tests.support.reading_dialects import write_imported

QUICK_ZONE = EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5").replace(
    ', "any moment: 1"', ""
)
METERS = "meter,zone,bound_wh,imputed_wh\n1,harbour,1000,100\n2,harbour,1000,100\n"
NAME_LINE = 'name = "harbour"'
ZONES = {
    "right": QUICK_ZONE,
    "unquoted": QUICK_ZONE.replace(NAME_LINE, "name = harbour"),
    "curly": QUICK_ZONE.replace(NAME_LINE, "name = \u201charbour\u201d"),
    "twice": QUICK_ZONE.replace(NAME_LINE, f"{NAME_LINE}\n{NAME_LINE}"),
    "yaml": QUICK_ZONE.replace(NAME_LINE, "name: harbour"),
    "comma": QUICK_ZONE.replace("interval_minutes = 15", "interval_minutes = 0,25"),
    "misspelt": QUICK_ZONE.replace("currency", "curency", 1),
    "quoted": re.sub(r"count = (\d+)", r'count = "\1"', QUICK_ZONE, count=1),
    "slash": QUICK_ZONE.replace("harbour", "east/1"),
    "nowhere": re.sub(r'time_zone = "[^"]*"', 'time_zone = "Zurich"', QUICK_ZONE),
    "promise": QUICK_ZONE.replace("interval: 0.5", "epsilon one"),
    "minutes": QUICK_ZONE.replace("interval_minutes = 15", "interval_minutes = 7"),
    "empty": "",
    "forecast": QUICK_ZONE + '\n[forecast]\nfile = "gone.json"\n',
}


def write_mistaken_files(folder: Path) -> None:
    """Write all of them."""
    for name, text in ZONES.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    plan = made_plan(QUICK_ZONE)
    texts = {
        "plan.json": plan,
        "cut.json": plan[:400],
        "edited.json": plan.replace('"harbour"', '"hill"'),
        "later.json": plan.replace('"murmurate_plan": 1', '"murmurate_plan": 7'),
        "list.json": "[]",
        "nothing": "",
        "file": "x\n",
        "letters.csv": "a,b,c\n1,2,3\n",
        "fake.parquet": "interval,household,energy_wh\n",
        "meters.csv": METERS,
        "semicolons.csv": METERS.replace(",", ";"),
        "names.txt": "harbour\nharbour\n",
        "holidays.txt": "25.12.2025\n",
        "import.csv": "id,time,kWh\nA,2026-01-01 00:00,0.2\nA,2026-01-01 00:30,0.2\n",
        "late.csv": "meter_id,interval_start,energy_wh\n1,2026-01-01T00:00:00Z,100\n",
        "unknown.csv": "meter_id,interval_start,energy_wh\n77,2026-01-01T00:00:00Z,100\n",
        "history.csv": rows("start,kwh", "2026-01-01T{hour:02}:{minute:02}Z,100", homes=1),
        "local.csv": rows("start,kwh", "2026-01-01T{hour:02}:{minute:02},100", homes=1),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("right.toml", "plan.json", "meters.csv", "late.csv", "history.csv"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / f"utf16-{name}").write_text(text, encoding="utf-16")
        (folder / f"mark-{name}").write_text(text, encoding="utf-8-sig")
    day = np.full((96, 3), 100.0)
    write_imported(folder / "day.parquet", day, start_s=1_767_225_600, interval_s=900, occupied=day > 0)
    (folder / "latin.toml").write_bytes(QUICK_ZONE.replace("harbour", "Zürich").encode("cp1252"))
    (folder / "folder").mkdir()
    Landing.create(folder / "landing")
    create_keyring(folder / "keys")


def rows(header: str, pattern: str, homes: int = 3) -> str:
    """One day of quarter hours as CSV."""
    lines = [
        pattern.format(at=at, home=home, hour=at // 4, minute=at % 4 * 15) for at in range(96) for home in range(homes)
    ]
    return "\n".join([header, *lines, ""])
