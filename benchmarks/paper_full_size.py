"""The paper's experiment at full size, as a user runs it: `murmurate paper --seeds 1000`.

    python -m benchmarks.paper_full_size

The exit status is 1 unless it takes less than 3 minutes and the naive and Blowfish RMSRE of each reading of the text
have the paper's size.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAIVE = (1.20e-3, 1.32e-3)
BLOWFISH = (1.0e-3, 1.4e-3)
LIMIT_S = 180


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        command = Path(sys.executable).with_name("murmurate")
        subprocess.run([command, "paper", "--seeds", "1000", "--out", folder], check=True)  # noqa: S603
        wall = time.perf_counter() - begin
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        readings = json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))["readings"]
    cores = (spent.ru_utime + spent.ru_stime) / 2
    print(f"murmurate paper --seeds 1000: {wall:.0f} s; {cores:.0f} s on two cores of its own (allowed {LIMIT_S} s)")
    wrong = [
        name
        for name, seen in readings.items()
        for rule, (least, most) in (("naive", NAIVE), ("blowfish", BLOWFISH))
        if not least <= seen[rule]["paper_rmsre"]["mean"] <= most
    ]
    low, high = NAIVE
    print(f"mean RMSRE in range (naive {low:.2e} to {high:.2e}) except in: {', '.join(wrong) or 'no reading'}")
    return 1 if wrong or min(wall, cores) > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
