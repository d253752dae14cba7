"""A small disk that can be full: a tmpfs whose size is changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class SmallDisk:
    """Mounted on a folder. `mounted` is False where mounting is not permitted; the folder is then as large as ever."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._folder, self._size_bytes = folder, size_bytes
        folder.mkdir(mode=0o700)
        options = f"size={size_bytes},mode=0700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        self.mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0

    def fill(self, spare_bytes: int = 0) -> bool:
        """Leave no free block but these. Return whether that was so: what others write meanwhile may prevent it."""
        disk = os.statvfs(self._folder)
        used_bytes = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        is_full = disk.f_bfree * disk.f_frsize <= spare_bytes
        return is_full or self._resize(used_bytes + spare_bytes)

    def free(self) -> None:
        self._resize(self._size_bytes)

    def _resize(self, size_bytes: int) -> bool:
        command = ["mount", "-o", f"remount,size={size_bytes}", str(self._folder)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self._folder)], check=True)
