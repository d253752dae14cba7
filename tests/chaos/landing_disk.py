"""A disk for the landing that can be full: a small tmpfs whose size is changed. It needs the right to mount."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

_SIZE_BYTES = 1 << 29
_MIN_FULL_S = 0.02


class LandingDisk:
    """Mounted at a folder until it is closed. `available` is False where mounting is not permitted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        options = f"size={_SIZE_BYTES},mode=0700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        self.available = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0

    def fill(self, seconds: float) -> None:
        """Leave no free block for a time. What others delete meanwhile is taken as well."""
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                state = os.statvfs(self._folder)
                if state.f_bfree:
                    self._resize((state.f_blocks - state.f_bfree) * state.f_frsize)
                time.sleep(_MIN_FULL_S)
        finally:
            self._resize(_SIZE_BYTES)

    def _resize(self, size: int) -> None:
        command = ["mount", "-o", f"remount,size={size}", str(self._folder)]
        subprocess.run(command, check=False, capture_output=True)  # refused if more was written meanwhile

    def close(self) -> None:
        if self.available:
            subprocess.run(["umount", "-l", str(self._folder)], check=True)
