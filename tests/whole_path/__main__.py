"""`python -m tests.whole_path`: 2,000 worlds as the product is, then with each old bug until it is found."""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.whole_path.bugs import BUGS
from tests.whole_path.law import run

PARTS = 4
SHARP = {"A3", "A6", "A7", "A11"}  # what is found sooner in sharp worlds
say = functools.partial(print, flush=True)


def hunt(worlds: int, bug: str) -> tuple[Counter[str], str | None]:
    """Look for a planted bug in so many worlds, and once more in others before it is called not found."""
    seen: Counter[str] = Counter()
    for number in (100, 101):
        found, broke = run(worlds, number, bug, sharp=bug in SHARP)
        seen += found
        if broke:
            return seen, broke
    return seen, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    begun, wrong = time.monotonic(), False
    with ProcessPoolExecutor(options.jobs) as pool:
        law = [
            pool.submit(run, -(-options.worlds // PARTS), number, sharp=number <= PARTS // 2)
            for number in range(1, PARTS + 1)
        ]
        hunts = {bug: pool.submit(hunt, options.worlds, bug) for bug in BUGS}
        seen: Counter[str] = Counter()
        for part in law:
            found, broke = part.result()
            seen += found
            if broke:
                wrong = True
                say("BROKEN:", broke)
        counts = ", ".join(f"{count:,} {what}" for what, count in seen.items() if what != "worlds")
        verdict = "BROKEN" if wrong else "0 violations"
        say(f"one law for the whole path: {seen['worlds']:,} worlds, {verdict} ({counts})")
        if missing := {"laplace", "gaussian", "huber"} - seen.keys():
            wrong = True
            say(f"never drawn, so not tried: {', '.join(sorted(missing))}")
        for bug, running in hunts.items():
            found, broke = running.result()
            wrong |= broke is None
            what = f"found after {found['worlds']:,} worlds: {broke.splitlines()[0]}" if broke else "NOT FOUND"
            say(f"planted {bug} ({BUGS[bug].__name__.replace('_', ' ')}): {what}")
    say(f"{time.monotonic() - begun:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
