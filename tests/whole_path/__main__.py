"""`python -m tests.whole_path`: 2,000 sample zones without a bug, then with each old bug until it is found.

`--bugs` names some of the bugs: those that few samples find make a short run.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.whole_path.check_promises import check_samples
from tests.whole_path.planted_bugs import PLANTED_BUGS

PARTS = 4
TARGETED_BUGS = {"A3", "A6", "A7", "A11"}  # targeted samples find these sooner
report = functools.partial(print, flush=True)


def find_bug(samples: int, bug: str) -> tuple[Counter[str], str | None]:
    """Check samples with a planted bug; check as many others before the bug counts as not found."""
    seen: Counter[str] = Counter()
    for number in (100, 101):
        counts, broken = check_samples(samples, number, bug, targeted=bug in TARGETED_BUGS)
        seen += counts
        if broken:
            return seen, broken
    return seen, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--bugs", nargs="+", choices=sorted(PLANTED_BUGS), default=list(PLANTED_BUGS))
    options = parser.parse_args()
    started, wrong = time.monotonic(), False
    with ProcessPoolExecutor(options.jobs) as pool:
        checks = [
            pool.submit(check_samples, -(-options.samples // PARTS), number, targeted=number <= PARTS // 2)
            for number in range(1, PARTS + 1)
        ]
        checks.append(pool.submit(check_samples, -(-options.samples // 12), PARTS + 1, gaussian=True))
        searches = {bug: pool.submit(find_bug, options.samples, bug) for bug in options.bugs}
        seen: Counter[str] = Counter()
        for part in checks:
            part_counts, broken = part.result()
            seen += part_counts
            if broken:
                wrong = True
                report("BROKEN:", broken)
        counts = ", ".join(f"{count:,} {what}" for what, count in seen.items() if what != "samples")
        verdict = "BROKEN" if wrong else "0 violations"
        report(f"promises on the whole path: {seen['samples']:,} sample zones, {verdict} ({counts})")
        if missing := {"laplace", "gaussian", "huber"} - seen.keys():
            wrong = True
            report(f"noise never drawn, so not tested: {', '.join(sorted(missing))}")
        for bug, running in searches.items():
            part_counts, broken = running.result()
            wrong |= broken is None
            samples = f"{part_counts['samples']:,} sample zones"
            what = f"found after {samples}: {broken.splitlines()[0]}" if broken else "NOT FOUND"
            report(f"planted {bug} ({PLANTED_BUGS[bug].__name__.replace('_', ' ')}): {what}")
    report(f"{time.monotonic() - started:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
