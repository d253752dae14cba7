"""What the system refuses about a file or a port, as a sentence with its remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_SENTENCES = {
    errno.EISDIR: "is a folder: name a file in it",
    errno.ENOTDIR: "is not in a folder: part of this path is a file; choose another path",
    errno.EACCES: "may not be read or written by this user: change its rights (ls -l shows them), or name another one",
    errno.EEXIST: "is there already: name another one, or delete it first",
    errno.EROFS: "is on a disk that cannot be written: name another place",
    errno.ENOSPC: "cannot be written: the disk is full; delete something, or name another place",
    errno.ENAMETOOLONG: "has too long a name: choose a shorter one",
    errno.EMFILE: "cannot be opened: too many files are open; raise the limit with ulimit -n",
}
_SENTENCES[errno.EPERM] = _SENTENCES[errno.EACCES]
_SENTENCES[errno.EDQUOT] = _SENTENCES[errno.ENOSPC]


def describe_os_error(error: OSError) -> str:
    """Return what went wrong and what to do about it.

    >>> describe_os_error(IsADirectoryError(errno.EISDIR, "Is a directory", "plans"))
    'plans is a folder: name a file in it'
    """
    if not error.filename:
        return f"{error.strerror or error}: fix this and run the command again"
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    if error.errno == errno.ENOENT:
        return _describe_missing(Path(name))
    return f"{name} {_SENTENCES.get(error.errno or 0, f'cannot be used ({error.strerror}): name another one')}"


def _describe_missing(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path} is not there: there is no folder {folder}; check the name, or create it: mkdir -p {folder}"
    return f"{path} is not there: check the name; the command looks in {folder.resolve()}"
