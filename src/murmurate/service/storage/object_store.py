"""Where the landing keeps its files: a folder, or a bucket of an object store, behind one small interface.

A name is a path with slashes below the root, such as `_closed/20261114T1215Z.json`. What has a name is whole, and
survives a power cut once `create` has returned. Nothing is written over what is there: what is decided once is
decided by who creates a name.

A store that does not answer, or refuses, raises OSError. After an OSError of `create` the name may be there, now or
later, with these bytes: a caller that tries again and gets False may have created it itself.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from murmurate.errors import MurmurateError
from murmurate.service.storage import durable

if TYPE_CHECKING:
    import pyarrow as pa


class StoredObject(NamedTuple):
    """A name in a store, and what a listing says of it."""

    name: str
    size: int  # [bytes]
    changed_s: float  # by the clock of the store [s of UTC]


class ObjectStore(Protocol):
    """A folder, or a bucket. Any number of threads, processes and machines may use one."""

    def __hash__(self) -> int: ...

    @property
    def address(self) -> str:
        """What `open_store.open_store` takes on another machine. It holds no secret."""
        ...

    def create(self, name: str, data: bytes | memoryview) -> bool:
        """Create a name, durably. Of several that try, one wins; returns whether it was this one.

        No part of a name is empty or begins with a dot: such names would not be listed.
        """
        ...

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """The bytes from `begin` to `end`, by default all. Raises FileNotFoundError if there is no such name."""
        ...

    def open(self, name: str) -> pa.NativeFile:
        """All bytes as a file, which stays as it is even if another takes the name. Raises FileNotFoundError."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is such a name."""
        ...

    def changed_s(self, name: str) -> float:
        """When a name was created, by the clock of the store [s of UTC]. Raises FileNotFoundError."""
        ...

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        """Everything below a folder, in the order of the names. Every name is listed that was created before.

        Temporary files of a writer are left out: names, and folders, that begin with a dot.
        """
        ...

    def list_folders(self, folder: str = "") -> list[str]:
        """The names of the folders in a folder, in order, without what is below them.

        A folder whose last name was deleted may be listed or not.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a name, if it is there."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete everything below a folder, with what writers that were killed have left there."""
        ...

    def delete_unfinished(self, folder: str, before_s: float) -> None:
        """Delete what writers have left in a folder before a time [s of UTC]. It has no name yet."""
        ...


@dataclass(frozen=True, slots=True)
class FolderStore:
    """A folder of this machine, or of a file system that several machines share."""

    root: Path

    @property
    def address(self) -> str:
        return str(self.root.resolve())  # another machine, as one of Spark, has another working directory

    def create(self, name: str, data: bytes | memoryview) -> bool:
        check_name(name)
        path = self.root / name
        try:
            return durable.write_once(path, data)
        except FileNotFoundError:
            if not self.root.is_dir():
                raise  # perhaps it is not mounted: what is written below it would be lost when it is
            durable.make_directory(path.parent)
            return durable.write_once(path, data)

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        descriptor = os.open(f"{self.root}/{name}", os.O_RDONLY | os.O_CLOEXEC)  # paths would cost more than the read
        try:
            length = os.fstat(descriptor).st_size if end is None else end
            return os.pread(descriptor, max(0, length - begin), begin)
        finally:
            os.close(descriptor)

    def open(self, name: str) -> pa.NativeFile:
        import pyarrow as pa  # noqa: PLC0415 the public process runs without it

        return pa.OSFile(f"{self.root}/{name}")

    def exists(self, name: str) -> bool:
        return (self.root / name).is_file()

    def changed_s(self, name: str) -> float:
        return (self.root / name).stat().st_mtime

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        def list_below(directory: str) -> Iterator[StoredObject]:
            with os.scandir(self.root / directory) as entries:
                visible = [entry for entry in entries if not entry.name.startswith(".")]
            for entry in sorted(visible, key=lambda entry: entry.name + "/" * entry.is_dir(follow_symlinks=False)):
                name = f"{directory}/{entry.name}" if directory else entry.name
                if entry.is_dir(follow_symlinks=False):
                    yield from list_below(name)
                    continue
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since
                if not stat.S_ISDIR(found.st_mode):
                    yield StoredObject(name, found.st_size, found.st_mtime)

        return list_below(folder) if (self.root / folder).is_dir() else iter(())

    def list_folders(self, folder: str = "") -> list[str]:
        if not (self.root / folder).is_dir():
            return []
        with os.scandir(self.root / folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        path = self.root / folder
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if path.parent.exists():
            durable.fsync_directory(path.parent)

    def delete_unfinished(self, folder: str, before_s: float) -> None:
        if (self.root / folder).is_dir():
            for path in (self.root / folder).glob(".*"):
                if not path.is_dir() and path.lstat().st_mtime < before_s:
                    path.unlink(missing_ok=True)


def check_name(name: str) -> None:
    """Raise MurmurateError for a name that would not be listed, or that a store could take for another one.

    >>> check_name(".part")
    Traceback (most recent call last):
    murmurate.errors.MurmurateError: name of an object is '.part': must have no part that is empty or begins with a dot
    """
    if not name.isprintable() or any(part[:1] in {"", "."} for part in name.split("/")):  # control characters too
        allowed = "must have no part that is empty or begins with a dot"
        raise MurmurateError("name of an object", repr(name), allowed)
