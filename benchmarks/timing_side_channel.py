"""Does the send time of a release depend on its noise?

    python -m benchmarks.timing_side_channel [--releases 20000]

Drawing exact noise takes longer for some values than for others. Each release here is one round of the real publisher
with real noise. The clock is read when its entry is sent to the log. First entries are sent at once, and the time
counts from the start of the draw: with the normal sampler, and with one that is delayed by 20 microseconds for each
scale of noise, to check that this method detects such a delay. Then the delayed sampler is used with release slots,
and the time counts from the slot. The figure is the rank correlation with the size of the noise; under independence z
is standard normal. The exit status is 1 unless the delay is detected without slots and not detected with them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.stats import rankdata

from benchmarks.publisher_throughput import sample_plans
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.public_log.record import GENESIS_PREV, Entry
from murmurate.public_log.signing import Ed25519Signer, verify_signature
from murmurate.publisher.desired_state import DesiredState, Opening
from murmurate.publisher.protocol import LogTail, SeenState, publish_round
from murmurate.publisher.record_writer import RecordWriter
from murmurate.publisher.stores import drive_steps
from murmurate.service.clock import ReleaseSlotClock
from murmurate.types import Demand
from murmurate.units import FloatArray, IntArray

MIN_DETECTED_Z, MAX_ALLOWED_Z = 4.0, 4.0
SLOT_S = 0.002
DELAY_S = 20e-6
ZONE = "harbour"


class MemoryStores:
    """State and log of one zone, fast enough that drawing takes most of a round."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.seen_state = SeenState(None, None)
        self.sent: list[float] = []

    def lock(self, zones: Iterable[str]) -> dict[str, SeenState]:
        return dict.fromkeys(zones, self.seen_state)

    def load_demand(self, interval: Mapping[str, int]) -> Demand:
        column = np.full(len(interval), 200_000)
        bounds = ({"": 1000},) * len(interval)
        return Demand(zones=tuple(interval), energy_wh=column, reported=column, imputed=column, bounds=bounds)

    def save(self, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        head = seen[ZONE][-1] if ZONE in seen else self.seen_state.head
        self.seen_state = SeenState(head, pending.get(ZONE, self.seen_state.pending))

    def rollback(self) -> None: ...

    def read(self, after: Mapping[str, int]) -> dict[str, LogTail]:
        new_entries = self.entries[after[ZONE] + 1 :]
        last = self.entries[-1].hash if self.entries else GENESIS_PREV
        return {ZONE: LogTail(len(self.entries) - 1, tuple(entry.line for entry in new_entries), last)}

    def append(self, entries: Iterable[Entry]) -> None:
        self.sent.append(time.time())
        self.entries.extend(entries)


class RecordedNoise:
    """Draws and records real noise. Each draw is delayed by `delay_s` for each scale of noise."""

    test_only = False

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.drawn: list[int] = []
        self.started: list[float] = []

    def draw(self, distribution: NoiseDistribution, scale_wh: FloatArray, core_wh: IntArray | None = None) -> IntArray:
        self.started.append(time.time())
        drawn = SystemNoise().draw(distribution, scale_wh, core_wh)
        end = time.perf_counter() + self.delay_s * float(np.abs(drawn / scale_wh).sum())
        while time.perf_counter() < end:
            pass
        self.drawn.extend(drawn.tolist())
        return drawn


def correlate_send_time(releases: int, *, in_slot: bool, delay_s: float) -> tuple[float, float]:
    """Return the rank correlation of the size of the noise with the send time, and its z."""
    terms = ReleaseTerms.from_json(sample_plans(1)[0])
    signer, noise, stores = Ed25519Signer.generate(), RecordedNoise(delay_s), MemoryStores()
    writer = RecordWriter(
        terms_for_plan={terms.plan_digest: terms}.get, signers={signer.public_key: signer}, noise=noise
    )
    opening = Opening(plan=terms.plan_digest, key=signer.public_key, first=0)
    wait = ReleaseSlotClock(release_slot_s=SLOT_S).wait_for_slot if in_slot else lambda: None
    for interval in range(-1, releases):
        desired = {ZONE: DesiredState(until=interval, opening=opening)}
        for _ in range(2):
            drive_steps(publish_round(desired, writer.write_entries, verify_signature), stores, stores, wait)
    sent = np.array(stores.sent[1:])
    sizes = np.abs(noise.drawn)
    rho = float(np.corrcoef(rankdata(sent % SLOT_S if in_slot else sent - noise.started), rankdata(sizes))[0, 1])
    return rho, rho * float(np.sqrt(len(sizes) - 1))


def main() -> int:
    """Print the correlations. Return 1 if the delay is not detected, or is detected with slots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=20_000)
    releases = parser.parse_args().releases
    z_scores: dict[str, float] = {}
    for name, in_slot, delay_s in (
        ("sent at once", False, 0.0),
        ("sent at once, delayed draw", False, DELAY_S),
        ("sent in slots, delayed draw", True, DELAY_S),
    ):
        rho, z_scores[name] = correlate_send_time(releases, in_slot=in_slot, delay_s=delay_s)
        print(f"{releases:,} releases {name}: rank correlation {rho:.4f}, z {z_scores[name]:.1f}")
    return int(
        z_scores["sent at once, delayed draw"] < MIN_DETECTED_Z
        or abs(z_scores["sent in slots, delayed draw"]) > MAX_ALLOWED_Z
    )


if __name__ == "__main__":
    sys.exit(main())
