"""`murmurate purge`: delete old readings."""

from __future__ import annotations

import time
from pathlib import Path

from murmurate.commands.console import stdout
from murmurate.commands.json_output import print_json
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.maintenance import purge_intervals


def purge_readings(root: Path, days: float, *, as_json: bool = False) -> None:
    """`murmurate purge`."""
    landing = Landing.open(root)
    count = purge_intervals(landing, int(time.time() - days * 86_400))
    if as_json:
        print_json({"intervals": count})
        return
    stdout.print(f"Readings of {count:,} interval{'' if count == 1 else 's'} purged.")
