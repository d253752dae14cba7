"""Python runs this file at its start where its folder is on PYTHONPATH: the time of the process can be shifted.

The file that MURMURATE_TEST_CLOCK names holds one number of 8 bytes: seconds to add to the time of the machine.
"""

import mmap
import os
import struct
import time


def _shift_time(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    shared = mmap.mmap(descriptor, 8, prot=mmap.PROT_READ)
    os.close(descriptor)
    true_time, unpack = time.time, struct.Struct("d").unpack_from

    def shifted_time() -> float:
        return true_time() + unpack(shared)[0]

    time.time = shifted_time


if "MURMURATE_TEST_CLOCK" in os.environ:
    _shift_time(os.environ["MURMURATE_TEST_CLOCK"])
