"""Every scenario, one line each, and a table of figures. Exit code 1 where something was seen that must not be."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from murmurate.errors import ChainError
from tests.live.pair import Room, Violation
from tests.live.scenarios import SCENARIOS, Counts, Scenario, room

_TABLE = (
    "SIGKILLs",
    "database kills",
    "failovers",
    "split brains",
    "restores",
    "lost acknowledgements",
    "disks full",
    "outages",
    "releases",
    "rivals",
)


def _say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 the figures are what this program is for


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.live", description=__doc__)
    parser.add_argument("--only", action="append", help="scenarios whose name contains this; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small counts")
    parser.add_argument("--seed", type=int, default=4, help="of every choice but the noise and the timing")
    return parser.parse_args()


def _run(scenario: Scenario, place: Room, options: argparse.Namespace) -> tuple[Counts, list[str]]:
    """The counts of a scenario and what is wrong with them."""
    begun = time.monotonic()
    try:
        counts = scenario.run(place, scenario.quick if options.quick else scenario.full, options.seed)
        wrong = scenario.missing(counts, quick=options.quick)
    except (Violation, ChainError) as violation:
        counts, wrong = {}, [f"VIOLATION {violation}"]
    figures = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    _say(f"{time.monotonic() - begun:6.1f} s  {scenario.name}: {figures} {'; '.join(wrong)}")
    return counts, wrong


def main() -> int:
    """Run what was asked for and print the figures."""
    options = _options()
    chosen = [one for one in SCENARIOS if not options.only or any(word in one.name for word in options.only)]
    real: Counter[str] = Counter()
    wrong: list[str] = []
    controls: dict[str, int] = {}
    begun = time.monotonic()
    with room(options.seed) as place:
        for scenario in chosen:
            counts, faults = _run(scenario, place, options)
            wrong += faults
            if "double values" in counts:
                controls[scenario.name] = counts["double values"]
            else:
                real.update(counts)
    _say(f"\nreal faults, {time.monotonic() - begun:.0f} s")
    for name in (*_TABLE, "files", "bytes", "hits"):
        _say(f"  {name:32} {real[name]:>12,}")
    _say(f"  {'violations':32} {sum('VIOLATION' in fault for fault in wrong):>12,}")
    for name, doubles in controls.items():
        _say(f"  double values: {name:40} {doubles:>6,}")
    for fault in wrong:
        _say(f"  WRONG {fault}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
