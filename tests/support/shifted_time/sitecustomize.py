"""Python runs this file at its start where its folder is on PYTHONPATH: the time and memory of a process under test.

MURMURATE_TEST_CLOCK names a file of numbers of 8 bytes, seconds to add to the time of the machine, one for each
of PARTS. MURMURATE_TEST_CLOCK_S is a time at which the clock of a command stands still. MURMURATE_TEST_MEMORY names a
folder: every few seconds the process writes there, under its id, how many bytes malloc has in use and how many objects
the garbage collector tracks after a collection. MURMURATE_TEST_LEAK is a number of bytes that it then leaks each time,
which a soak must find. With MURMURATE_TEST_ADD_EXPORT registers of export count as those of import do, which chaos must
find. With MURMURATE_TEST_DRAW_AGAIN a publisher forgets its pending tiles, which the cut of a region must find.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path

PARTS = ("private", "worker", "public")
MEMORY_PERIOD_S = 2.0
_MALLOC_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "top")


def _shift_time(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    shared = mmap.mmap(descriptor, 8 * len(PARTS), prot=mmap.PROT_READ)
    os.close(descriptor)
    offset = 8 * PARTS.index(sys.orig_argv[-1])
    true_time, unpack = time.time, struct.Struct("d").unpack_from

    def shifted_time() -> float:
        return true_time() + unpack(shared, offset)[0]

    time.time = shifted_time


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLOC_FIELDS]


def _report_memory(folder: Path, leak_bytes: int) -> None:
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallocInfo
    path, leaked = folder / str(os.getpid()), []
    while True:
        time.sleep(MEMORY_PERIOD_S)
        gc.collect()
        info = mallinfo()
        part = path.with_suffix(".part")
        part.write_text(f"{info.uordblks + info.hblkhd} {len(gc.get_objects())}")
        part.replace(path)
        if leak_bytes:
            leaked.append(bytes(leak_bytes))


if "MURMURATE_TEST_CLOCK_S" in os.environ:
    FROZEN_S = float(os.environ["MURMURATE_TEST_CLOCK_S"])
    time.time = lambda: FROZEN_S
if "MURMURATE_TEST_CLOCK" in os.environ and sys.orig_argv[-1] in PARTS:
    _shift_time(os.environ["MURMURATE_TEST_CLOCK"])
if "MURMURATE_TEST_MEMORY" in os.environ and sys.orig_argv[-1] in PARTS:
    arguments = Path(os.environ["MURMURATE_TEST_MEMORY"]), int(os.environ.get("MURMURATE_TEST_LEAK", "0"))
    threading.Thread(target=_report_memory, args=arguments, name="memory", daemon=True).start()
if "MURMURATE_TEST_ADD_EXPORT" in os.environ and sys.orig_argv[-1] == "private":
    from murmurate.service.ingest.ingest_store import IngestStore

    pair = IngestStore.pair_energies
    setattr(  # noqa: B010
        IngestStore,
        "pair_energies",
        lambda self, energies: pair(self, [(at, s, wh if at >= 0 else -wh) for at, s, wh in energies]),
    )
if "MURMURATE_TEST_DRAW_AGAIN" in os.environ and sys.orig_argv[-1] == "worker":
    from murmurate.service.storage.state_store import PostgresStateStore

    lock = PostgresStateStore.lock
    setattr(  # noqa: B010
        PostgresStateStore,
        "lock",
        lambda self, shards: {shard: seen._replace(pending=None) for shard, seen in lock(self, shards).items()},
    )
