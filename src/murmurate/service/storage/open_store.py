"""Open a store by its address, with what the environment says of it.

Endpoint and credentials of a bucket are in the variables of its provider, such as AWS_ACCESS_KEY_ID. Those of a public
log may stand in others, MURMURATE_LOG_AWS_ACCESS_KEY_ID and so on, which count before them: readings and prices are for
different eyes. A process that serves prices gets the variables of the log and no others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.extras import require_extra
from murmurate.service.storage.object_store import FolderStore, ObjectStore

_PROVIDERS = ("AWS_", "AZURE_", "GOOGLE_")  # how the variables of a provider begin
_OF_LOG = "MURMURATE_LOG_"  # before the same name: of the public log alone


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
    if not is_bucket(address):
        return FolderStore(Path(address))
    return _open_bucket(str(address), timeout_s, probe, variables=())


def open_log_store(address: str, *, probe: bool = False) -> ObjectStore:
    """Open the store of a public log: see `open_store`. Variables of the log count before those of the provider."""
    variables = _log_variables(os.environ)
    if not is_bucket(address) or not variables:
        return open_store(address, probe=probe)
    if "AWS_SESSION_TOKEN" in os.environ and "AWS_SESSION_TOKEN" not in variables:
        allowed = f"must have one for the log as well, in {_OF_LOG}AWS_SESSION_TOKEN: it belongs to another key"
        raise MurmurateError("AWS_SESSION_TOKEN", "set", allowed)
    return _open_bucket(address, 10.0, probe, variables=tuple(sorted(variables.items())))


def is_bucket(address: str | Path) -> bool:
    return not isinstance(address, Path) and "://" in address


def check_log_has_own_key(landing: str | Path, log: str) -> None:
    """Raise MurmurateError if the process that serves prices would be able to read readings."""
    own = _log_variables(os.environ)
    is_same = own.get("AWS_ACCESS_KEY_ID") == os.environ.get("AWS_ACCESS_KEY_ID", "none")
    if is_bucket(landing) and is_bucket(log) and (not own or is_same):
        names = ", ".join(f"{_OF_LOG}AWS_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "ENDPOINT_URL"))
        allowed = f"must have another key than the landing, or the public process could read the readings: set {names}"
        raise MurmurateError("the log", "in a bucket, as the landing is", allowed)


def without_landing_key(environment: Mapping[str, str], landing: str | Path) -> dict[str, str]:
    """Return an environment without what leads to readings in a bucket."""
    secret = _PROVIDERS if is_bucket(landing) else ()
    return {name: value for name, value in environment.items() if not name.upper().startswith(secret)}


def _log_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the log, named as its provider names them."""
    found = {name.removeprefix(_OF_LOG): value for name, value in environment.items() if name.startswith(_OF_LOG)}
    return {name: value for name, value in found.items() if name.startswith(_PROVIDERS)}


@cache
def _open_bucket(address: str, timeout_s: float, probe: bool, *, variables: tuple[tuple[str, str], ...]) -> ObjectStore:
    require_extra("object-store", "obstore")
    from murmurate.service.storage.remote_store import RemoteStore  # noqa: PLC0415 an optional package
    from murmurate.service.storage.store_probe import probe_store  # noqa: PLC0415

    store = RemoteStore(address, timeout_s=timeout_s, variables=dict(variables))
    if probe:
        probe_store(store)
    return store
