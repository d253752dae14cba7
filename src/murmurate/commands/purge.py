"""`murmurate purge`: delete old readings."""

from __future__ import annotations

import time
from pathlib import Path

from murmurate.commands.console import stdout
from murmurate.service.landing.interval_manifest import purge_intervals
from murmurate.service.landing.layout import Landing


def purge_readings(root: Path, days: float) -> None:
    """`murmurate purge`."""
    landing = Landing.open(root)
    count = purge_intervals(landing, int(time.time() - days * 86_400))
    stdout.print(f"Readings of {count:,} interval{'' if count == 1 else 's'} purged.")
