"""Parts of ingest without a database, a broker or a process of its own: what is fuzzed is traced in this process."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from contextlib import nullcontext
from pathlib import Path

from murmurate.public_log.signing import Ed25519Signer
from murmurate.service.ingest.decoder_pool import PARSERS_BY_MEDIA_TYPE
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.layout import Landing
from tests.support.request_bodies import START_S

INTERVAL_S = 900
_MAX_KEPT_REGISTERS = 100


class FuzzFolder:
    """A folder that is removed when it is no longer needed."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="murmurate-fuzzing-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)  # at the latest when the process ends


def new_ingestor(folder: FuzzFolder) -> ReadingIngestor:
    """An ingestor for four meters, one of which signs. What it accepts is not stored."""
    key = Ed25519Signer(bytes(32)).public_key
    rows = [
        "meter,id,zone,bound_wh,key",
        "0,m0,harbour,9,",
        f"1,m1,harbour,9,{key}",
        "2,7,harbour,9,",
        "3,ü,harbour,9,",
    ]
    (folder.path / "meters.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return ReadingIngestor(
        landing=Landing.create(folder.path / "landing"),
        registry=MeterRegistry.from_meter_table(folder.path / "meters.csv"),
        now=lambda: START_S + 2 * INTERVAL_S,
        grace_s=INTERVAL_S,
        append=lambda _start_s, _readings: True,
    )


class InProcessDecoders:
    """Parses bodies here instead of in a process with bounds of its own."""

    def parse(self, media_type: str, body: bytes, *, interval_s: int):
        return PARSERS_BY_MEDIA_TYPE[media_type](body, interval_s=interval_s)


class MemoryRegisters:
    """Keeps register values as the state does."""

    def __init__(self) -> None:
        self._kept = {}
        self._energies = {}

    def pair_energies(self, energies):
        for register, start_s, energy_wh in energies:
            self._energies.setdefault((register, start_s), energy_wh)
        meters = {(max(register, ~register), start_s) for register, start_s, _ in energies}
        halves = [((meter, at_s), self._energies.get((meter, at_s)), self._energies.get((~meter, at_s)))
                  for meter, at_s in sorted(meters)]  # fmt: skip
        self._energies = dict(list(self._energies.items())[-_MAX_KEPT_REGISTERS:])
        return [(*key, imported - exported) for key, imported, exported in halves if None not in {imported, exported}]

    def hold_registers(self, _registers):
        return nullcontext()

    def load_registers(self, meters):
        return {meter: self._kept[meter] for meter in meters if meter in self._kept}

    def store_registers(self, registers, *, now_s: int) -> None:
        self._kept = dict(list((self._kept | dict(registers)).items())[-_MAX_KEPT_REGISTERS:])
        assert all(register.last.at_s < now_s + INTERVAL_S for register in registers.values())
