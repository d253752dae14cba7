"""Python runs this file at its start where its folder is on PYTHONPATH: the time of the process can be shifted.

The file that MURMURATE_TEST_CLOCK names holds a number of 8 bytes for each part of a service, in this order: seconds to
add to the time of the machine. The part is the last word of the process's command.
"""

import mmap
import os
import struct
import sys
import time

PARTS = ("private", "worker", "public")


def _shift_time(path: str, position: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    shared = mmap.mmap(descriptor, 8 * len(PARTS), prot=mmap.PROT_READ)
    os.close(descriptor)
    true_time, unpack = time.time, struct.Struct("d").unpack_from

    def shifted_time() -> float:
        return true_time() + unpack(shared, 8 * position)[0]

    time.time = shifted_time


if "MURMURATE_TEST_CLOCK" in os.environ and sys.orig_argv[-1] in PARTS:
    _shift_time(os.environ["MURMURATE_TEST_CLOCK"], PARTS.index(sys.orig_argv[-1]))
