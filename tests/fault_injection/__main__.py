"""Run every scenario, and print one line for each and a table of counts. The exit code is 1 after a violation."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from murmurate.errors import ChainError
from tests.fault_injection.scenarios import SCENARIOS, Counts, Scenario, run_context
from tests.fault_injection.store_pair import RunContext, Violation

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
    "competing tiles",
)
_CONTROL_RUNS = 5  # of a broken publisher, until it has published a double value


def _print(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 this program prints counts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fault_injection", description=__doc__)
    parser.add_argument(
        "--only", action="append", help="run only the scenarios whose name contains this text; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="run each fault only a few times")
    parser.add_argument("--seed", type=int, default=4, help="seed of every random choice except noise and timing")
    return parser.parse_args()


def _run(scenario: Scenario, context: RunContext, options: argparse.Namespace) -> tuple[Counts, list[str]]:
    """Return the counts of a scenario and a list of what is wrong with them."""
    started = time.monotonic()
    try:
        for seed in range(options.seed, options.seed + (_CONTROL_RUNS if scenario.protocol else 1)):
            counts = scenario.run(context, scenario.quick if options.quick else scenario.full, seed)
            wrong = scenario.missing(counts, quick=options.quick)
            if not wrong:
                break
    except (Violation, ChainError) as violation:
        counts, wrong = {}, [f"VIOLATION {violation}"]
    text = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    _print(f"{time.monotonic() - started:6.1f} s  {scenario.name}: {text} {'; '.join(wrong)}")
    return counts, wrong


def main() -> int:
    """Run the chosen scenarios and print the counts."""
    options = _options()
    chosen = [
        scenario for scenario in SCENARIOS if not options.only or any(word in scenario.name for word in options.only)
    ]
    real: Counter[str] = Counter()
    wrong: list[str] = []
    controls: dict[str, int] = {}
    started = time.monotonic()
    with run_context(options.seed) as context:
        for scenario in chosen:
            counts, faults = _run(scenario, context, options)
            wrong += faults
            if "double values" in counts:
                controls[scenario.name] = counts["double values"]
            else:
                real.update(counts)
    _print(f"\nfault injection, {time.monotonic() - started:.0f} s")
    for name in (*_TABLE, "files", "bytes", "hits"):
        _print(f"  {name:32} {real[name]:>12,}")
    _print(f"  {'violations':32} {sum('VIOLATION' in fault for fault in wrong):>12,}")
    for name, doubles in controls.items():
        _print(f"  double values: {name:40} {doubles:>6,}")
    for fault in wrong:
        _print(f"  WRONG {fault}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
