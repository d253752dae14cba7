"""`python -m tests.whole_path`: 2,000 sample zones and 2,000 worlds without a bug, then each bug until it is found.

`--bugs` names some of the bugs.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.whole_path.check_promises import check_samples, check_towns, check_votes, check_worlds
from tests.whole_path.planted_bugs import BUGS_OF_HABITS, BUGS_OF_IMPORT, BUGS_OF_WORLDS, PLANTED_BUGS

MIN_TRIED = 1000  # with a bug, before others are tried, and as many of these before it counts as not found
FOCUS = {"A2": "households", "A3": "households", "A5": "moments", "A6": "hours", "A10": "hours"}  # finds it sooner
FOCUS_OF_PARTS = ("households", "hours", "", "moments")
PARTS = len(FOCUS_OF_PARTS)
NEEDED = (  # what must be among the samples, or it was not tested
    "laplace",
    "gaussian",
    "huber",
    "predicted releases",
    "three plans of a sample zone",
    "learned habits of a sample zone",
    "predicted rows",
    "public rows",
    "tiles with two and more predicted zones",
    "zones with three plans",
    "zones with learned habits",
    "households with several meters",
    "second meter tables",
    "silent meters in measured rows",
    "meters that may feed in in measured rows",
    "releases about a household that feeds in",
    "releases about one with two such meters",
    "missed quorums",
    "late readings",
    "repeated readings",
    "register readings",
    "meters with two registers in measured rows",
    "clock changes",
    "pages and answers compared",
    "pages after a change to a stronger promise",
    "draws that differ between variants",
    "huber distributions sampled",
    "samples of habits with types of day",
    "imported households with several meters",
    "imported towns with several zones",
)
report = functools.partial(print, flush=True)


def find_bug(samples: int, bug: str) -> tuple[Counter[str], str | None]:
    """Check samples with a planted bug; check as many others before the bug counts as not found."""
    seen: Counter[str] = Counter()
    for number in (100, 101):
        if bug in BUGS_OF_WORLDS:
            counts, broken = check_worlds(samples, number, bug)
        elif bug in BUGS_OF_HABITS:
            counts, broken = check_votes(samples, number, bug)
        elif bug in BUGS_OF_IMPORT:
            counts, broken = check_towns(samples, number, bug)
        else:
            counts, broken = check_samples(samples, number, bug, FOCUS.get(bug, ""))
        seen += counts
        if broken:
            return seen, broken
    return seen, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--worlds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--bugs", nargs="+", choices=sorted(PLANTED_BUGS), default=list(PLANTED_BUGS))
    options = parser.parse_args()
    started, wrong = time.monotonic(), False
    samples, worlds = (-(-count // PARTS) for count in (options.samples, options.worlds))
    with ProcessPoolExecutor(options.jobs) as pool:
        checks = [
            pool.submit(check_samples, samples, number, focus=focus) for number, focus in enumerate(FOCUS_OF_PARTS, 1)
        ]
        checks.append(pool.submit(check_samples, -(-options.samples // 12), PARTS + 1, focus="gaussian"))
        checks += [pool.submit(check_worlds, worlds, number) for number in range(1, PARTS + 1)]
        checks.append(pool.submit(check_votes, options.worlds, 1))
        checks.append(pool.submit(check_towns, -(-options.worlds // 12), 1))
        searches = {bug: pool.submit(find_bug, max(options.samples, MIN_TRIED), bug) for bug in options.bugs}
        seen: Counter[str] = Counter()
        for check in checks:
            counts, broken = check.result()
            seen += counts
            if broken:
                wrong = True
                report("BROKEN:", broken)
        verdict = "BROKEN" if wrong else "0 violations"
        report(
            f"promises on the whole path: {seen['samples']:,} sample zones, {seen['worlds']:,} worlds, {verdict} "
            f"({', '.join(f'{count:,} {what}' for what, count in seen.items() if what not in {'samples', 'worlds'})})"
        )
        if missing := [what for what in NEEDED if not seen[what]]:
            wrong = True
            report(f"never made, so not tested: {', '.join(missing)}")
        for bug, running in searches.items():
            counts, broken = running.result()
            wrong |= broken is None
            tried = counts["samples"] + counts["worlds"] + counts["samples of habits"] + counts["imported towns"]
            what = f"found by number {tried:,}: {broken.splitlines()[0]}" if broken else "NOT FOUND"
            report(f"planted {bug} ({PLANTED_BUGS[bug].__name__.replace('_', ' ')}): {what}")
    report(f"{time.monotonic() - started:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
