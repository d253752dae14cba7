"""Run random faults against two real services, and print counts. The exit code is 1 after a violation.

A storm of faults is followed by a calm, in which the services must become whole again. How long anything takes decides
nothing: on a busy machine fewer intervals are measured, but none may be missing, doubled or wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.chaos.faults import Storm, all_faults
from tests.chaos.meters import GRACE_INTERVALS
from tests.chaos.oracle import Verdict
from tests.chaos.run import World, new_world

FAULTS_PER_STORM = 12
_READY_AFTER_S = 180.0
_FENCE_S = 20.0
_MIN_CALM_S = 3.0


def _print(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 this program prints counts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=4, help="seed of every random choice except noise and timing")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no storm after this time")
    parser.add_argument("--only", action="append", help="only faults whose name contains this text; may be repeated")
    parser.add_argument(
        "--break",
        dest="damage",
        choices=("drop", "double", "unsigned", "added"),
        help="damage the landing, or add registers of export to those of import; ends with 0 if that was found",
    )
    parser.add_argument("--keep", type=Path, help="copy the logs of the services to this folder")
    return parser.parse_args()


def _run_storms(world: World, storm: Storm, options: argparse.Namespace) -> list[str]:
    """Storms and calms until all faults were applied, or time is up."""
    violations: list[str] = []
    end = time.monotonic() + 60 * options.minutes
    while (left := options.faults - storm.counts.total()) > 0 and time.monotonic() < end and not violations:
        storm.run(min(left, FAULTS_PER_STORM))
        calm_since = time.monotonic()
        unready = world.unready_services(_READY_AFTER_S)
        violations += [
            f"recovery: service {name} is not ready {_READY_AFTER_S:.0f} s after the faults" for name in unready
        ]
        fenced = world.repeat_and_fence(_FENCE_S)
        time.sleep(max(0.0, _MIN_CALM_S - (time.monotonic() - calm_since)))
        _print(
            f"{storm.counts.total():6} faults, calm after {time.monotonic() - calm_since:.0f} s, "
            f"messages {'stored' if fenced else 'not known to be stored'}"
        )
    return violations


def _report(world: World, storm: Storm, verdict: Verdict, seconds: float) -> None:
    _print(f"\nchaos, {seconds:.0f} s, {storm.counts.total()} faults")
    groups = (storm.counts, world.acknowledged.outcomes, world.watch.counts, verdict.counts)
    for group in groups:
        for name, count in sorted(group.items()):
            _print(f"  {name:64} {count:>8,}")
    for kind in ("gap", "doubled", "wrong", "lost", "late", "stale", "static", "differs"):
        _print(f"  {kind:64} {sum(text.startswith(kind) for text in verdict.violations):>8,}")
    for text in verdict.violations:
        _print(f"  VIOLATION {text}")


def main() -> int:
    options = _options()
    begun = time.monotonic()
    environment = {"MURMURATE_TEST_ADD_EXPORT": "1"} if options.damage == "added" else {}
    with new_world(options.seed, options.keep, environment=environment) as world:
        step_wall_s, databases = world.step_wall_s(), [world.state, world.log]
        faults = all_faults(world.services, databases, world.broker, world.disk, world.clocks, step_wall_s)
        chosen = [one for one in faults if not options.only or any(text in one.name for text in options.only)]
        if not world.disk.mounted:
            _print("left out: disk full (a small disk for the landing needs the right to mount)")
        storm = Storm(chosen, options.seed)
        time.sleep(step_wall_s)
        violations = _run_storms(world, storm, options)
        if options.damage in {"drop", "double", "unsigned"}:
            world.break_landing(options.damage)
        time.sleep(GRACE_INTERVALS * step_wall_s)
        world.repeat_and_fence(_FENCE_S)
        violations += world.finish() + storm.errors
        verdict = world.judge()
        verdict.violations = violations + verdict.violations
        _report(world, storm, verdict, time.monotonic() - begun)
    if not verdict.counts["measured"]:
        _print("  VIOLATION nothing was measured, so nothing was tested")
        return 1
    if options.damage:
        return 0 if any(text.startswith(("lost", "wrong")) for text in verdict.violations) else 1
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
