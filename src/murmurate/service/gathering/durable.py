"""Files that are there whole or not at all, and still there after a power cut."""

from __future__ import annotations

import errno
import os
from pathlib import Path

PRIVATE = 0o600
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write(path: Path, data: bytes | memoryview) -> None:
    """Put a file in place, over one that may be there."""
    part = _part(path, data)
    part.replace(path)
    settle(path.parent)


def write_once(path: Path, data: bytes | memoryview) -> bool:
    """Put a file in place unless there is one; of several that try, one wins. Returns whether it was this one.

    Where there are no hard links (a mounted object store), whether one wins is up to the mount.
    """
    part = _part(path, data)
    try:
        path.hardlink_to(part)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _create(path, data)
    finally:
        part.unlink()
        settle(path.parent)
    return True


def folder(path: Path) -> None:
    """A folder and its parents, readable by the owner alone."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        settle(one.parent)


def settle(folder: Path) -> None:
    """Have the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a mount that knows no such thing
            raise
    finally:
        os.close(descriptor)


def _part(path: Path, data: bytes | memoryview) -> Path:
    """The data under a name that every reader passes over."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    _create(part, data)
    return part


def _create(path: Path, data: bytes | memoryview) -> bool:
    """A new file, safe on the disk; False if there is one of that name."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
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
