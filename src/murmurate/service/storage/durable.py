"""Files that are there whole or not at all, and still there after a power cut.

They are readable by their owner alone. In a folder that its group shares, setgid and writable to the group as of mode
2770, the group has the same rights, as far as the umask leaves them: so two processes may have each its own user.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

PRIVATE_FILE_MODE = 0o600
_HARD_LINK_UNSUPPORTED = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Put a file in place, over one that may be there."""
    part = _write_temporary(path, data)
    part.replace(path)
    fsync_directory(path.parent)


def write_once(path: Path, data: bytes | memoryview) -> bool:
    """Put a file in place unless there is one; of several that try, one wins. Returns whether it was this one.

    Where there are no hard links (a mounted object store), whether one wins is up to the mount.
    """
    part = _write_temporary(path, data)
    try:
        path.hardlink_to(part)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _HARD_LINK_UNSUPPORTED:
            raise
        return _create_file(path, data)
    finally:
        part.unlink()
        fsync_directory(path.parent)
    return True


def make_directory(path: Path, mode: int = 0o700) -> None:
    """Create a folder and its parents, by default for the owner alone, or for the group of a folder that it shares."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=mode | _group_rights(folder.parent), exist_ok=True)
        fsync_directory(folder.parent)


def fsync_directory(directory: Path) -> None:
    """Have the names in a folder survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a mount that knows no such thing
            raise
    finally:
        os.close(descriptor)


def private_temporary_folder() -> Path:
    """A folder for temporary files of this user, which no other user can enter."""
    folder = Path(tempfile.gettempdir()) / f"murmurate-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(errno.EPERM, "another user may write there", str(folder))
    return folder


def free_disk_share(folder: Path) -> float | None:
    """Return the free share of a folder's disk, of blocks or of files, whichever is less; None without the folder."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    free = [disk.f_bavail / disk.f_blocks] if disk.f_blocks else []
    free += [disk.f_favail / disk.f_files] if disk.f_files else []  # some file systems have no limit of files
    return min(free, default=None)


def _group_rights(folder: Path) -> int:
    """What the group may do with what is made in a folder: as much as the owner if it shares the folder, or nothing."""
    shared = stat.S_ISGID | stat.S_IWGRP
    return stat.S_IRWXG if folder.stat().st_mode & shared == shared else 0


def _write_temporary(path: Path, data: bytes | memoryview) -> Path:
    """The data under a name that every reader passes over."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    _create_file(part, data)
    return part


def _create_file(path: Path, data: bytes | memoryview) -> bool:
    """A new file, safe on the disk; False if there is one of that name."""
    try:
        mode = PRIVATE_FILE_MODE | _group_rights(path.parent) & 0o060
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink()
        raise
    return True
