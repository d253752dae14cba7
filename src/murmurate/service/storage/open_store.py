"""Open a store by its address."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from murmurate.extras import require_extra
from murmurate.service.storage.object_store import FolderStore, ObjectStore


@cache
def open_store(address: str | Path, *, timeout_s: float = 10.0, probe: bool = False) -> ObjectStore:
    """Open a folder by its path, or a bucket by an address such as `s3://bucket/prefix`.

    Args:
        address: A path, or the address of a bucket.
        timeout_s: Time for a request to a bucket; a store that cannot be reached raises OSError within it [s].
        probe: Try a bucket by races, as a service does; by default it is asked nothing.

    Raises:
        MurmurateError: The address is none, or the store breaks a promise that the landing relies on.
        MissingExtraError: The extra `object-store` is not installed, and the address is that of a bucket.
    """
    if isinstance(address, Path) or "://" not in address:
        return FolderStore(Path(address))
    require_extra("object-store", "obstore")
    from murmurate.service.storage.remote_store import RemoteStore  # noqa: PLC0415 an optional package
    from murmurate.service.storage.store_probe import probe_store  # noqa: PLC0415

    store = RemoteStore(address, timeout_s=timeout_s)
    if probe:
        probe_store(store)
    return store
