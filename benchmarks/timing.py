"""Does the time at which a release leaves tell anything about its noise?

    python -m benchmarks.timing [--releases 20000]

Drawing exact noise takes longer for some values than for others. Each release here is one turn of the real publisher
with the real noise; the clock is read at the moment its entry is handed to the log. First as soon as it is made,
counted from the beginning of the draw: with the sampler as it is, and with one that dawdles, 20 microseconds more for
each scale of noise, to see that this method can find such a thing. Then the same sampler on the beat, from the beat.
Rank correlation with the size of the noise; under independence z is a standard normal number. Ends with status 1 unless
the dawdling is found without the beat and not found with it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.stats import rankdata

from benchmarks.publish import some_plans
from murmurate.curator.terms import Terms
from murmurate.privacy.noise import NoiseLaw, SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.publisher import Beyond, Known, turn
from murmurate.publication.record import NOBODY, Entry
from murmurate.publication.signing import Ed25519Signer, verify
from murmurate.publication.stores import drive
from murmurate.publication.wish import Opening, Wish
from murmurate.quantities import Demand, FloatArray, IntArray
from murmurate.service.clock import BeatClock

FOUND, NOTHING = 4.0, 4.0
BEAT_S = 0.002
DAWDLE_S = 20e-6
ZONE = "harbour"


class Memory:
    """State and log of one zone, quick enough that the drawing is most of a turn."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.known = Known(None, None)
        self.left: list[float] = []

    def lock(self, zones: Iterable[str]) -> dict[str, Known]:
        return dict.fromkeys(zones, self.known)

    def recall(self, interval: Mapping[str, int]) -> Demand:
        column = np.full(len(interval), 200_000)
        bounds = ({"": 1000},) * len(interval)
        return Demand(zones=tuple(interval), energy_wh=column, reported=column, imputed=column, bounds=bounds)

    def save(self, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        head = seen[ZONE][-1] if ZONE in seen else self.known.head
        self.known = Known(head, pending.get(ZONE, self.known.pending))

    def rollback(self) -> None: ...

    def read(self, after: Mapping[str, int]) -> dict[str, Beyond]:
        beyond = self.entries[after[ZONE] + 1 :]
        last = self.entries[-1].hash if self.entries else NOBODY
        return {ZONE: Beyond(len(self.entries) - 1, tuple(entry.line for entry in beyond), last)}

    def append(self, entries: Iterable[Entry]) -> None:
        self.left.append(time.time())
        self.entries.extend(entries)


class HeardNoise:
    """The noise of the operating system, and what it was; made slower for larger numbers if `dawdle_s` says so."""

    rehearsal = False

    def __init__(self, dawdle_s: float) -> None:
        self.dawdle_s = dawdle_s
        self.heard: list[int] = []
        self.begun: list[float] = []

    def draw(self, law: NoiseLaw, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        self.begun.append(time.time())
        drawn = SystemNoise().draw(law, scale_wh, core_wh)
        end = time.perf_counter() + self.dawdle_s * float(np.abs(drawn / scale_wh).sum())
        while time.perf_counter() < end:
            pass
        self.heard.extend(drawn.tolist())
        return drawn


def leaving(releases: int, *, beat: bool, dawdle_s: float) -> tuple[float, float]:
    """Rank correlation of the size of the noise with the time of leaving, and its z."""
    terms = Terms.of(some_plans(1)[0])
    signer, noise, memory = Ed25519Signer.new(), HeardNoise(dawdle_s), Memory()
    desk = Desk(terms={terms.plan: terms}.get, signers={signer.public: signer}, noise=noise)
    opening = Opening(plan=terms.plan, key=signer.public, first=0)
    wait = BeatClock(beat_s=BEAT_S).wait if beat else lambda: None
    for interval in range(-1, releases):
        wishes = {ZONE: Wish(until=interval, opening=opening)}
        for _ in range(2):
            drive(turn(wishes, desk.write, verify), memory, memory, wait)
    left = np.array(memory.left[1:])
    sizes = np.abs(noise.heard)
    rho = float(np.corrcoef(rankdata(left % BEAT_S if beat else left - noise.begun), rankdata(sizes))[0, 1])
    return rho, rho * float(np.sqrt(len(sizes) - 1))


def main() -> int:
    """Print the correlations; 1 if the method is blind or the beat leaks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=20_000)
    releases = parser.parse_args().releases
    found: dict[str, float] = {}
    for name, beat, dawdle_s in (
        ("as soon as made", False, 0.0),
        ("as soon as made, dawdling", False, DAWDLE_S),
        ("on the beat, dawdling", True, DAWDLE_S),
    ):
        rho, found[name] = leaving(releases, beat=beat, dawdle_s=dawdle_s)
        print(f"{releases:,} releases {name}: rank correlation {rho:.4f}, z {found[name]:.1f}")
    return int(found["as soon as made, dawdling"] < FOUND or abs(found["on the beat, dawdling"]) > NOTHING)


if __name__ == "__main__":
    sys.exit(main())
