"""A bucket of an object store: S3 and what speaks its protocol; by obstore also Google Cloud Storage and Azure.

Three things are assumed of a store, and `store_probe` tests them before a service believes it: of several creates of a
name one wins, a name can be read once its create has returned, and a listing has every name that was created before.

The answer to a create can be lost, or can be that of a second attempt, which finds what the first one has made. So
each object bears a token of the call that made it, and a call that is not sure whether it won reads the token.
Contents would not tell: two writers may offer the same bytes, and only one of them may win.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

from murmurate.errors import MurmurateError
from murmurate.service.storage.object_store import StoredObject, check_name

if TYPE_CHECKING:
    import pyarrow as pa

_ADDRESS = re.compile(r"(s3|gs|az)://[A-Za-z0-9][\w.-]*(/[\w=-][\w.=-]*)*/?", re.ASCII)
_TOKEN = "writer"  # noqa: S105 a key of the metadata: letters alone, because Ceph returns _ as - and Azure allows no -
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 1.0
_MAX_RETRIES = 1000  # the time is what ends them


class RemoteStore:
    """A bucket, or what is below a prefix of it.

    Args:
        address: `s3://bucket/prefix`, without a secret. Endpoint and credentials come from the environment
            (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...).
        timeout_s: Time for one request, and for all attempts of one that gets no connection [s]. Then OSError is
            raised, from a store that takes connections and does not answer after twice this time at most.
        variables: What counts before the environment.
    """

    def __init__(self, address: str, *, timeout_s: float = 10.0, variables: Mapping[str, str] | None = None) -> None:
        if not _ADDRESS.fullmatch(address):  # it is not repeated in full: it may hold a password
            shown = f"{address.partition('://')[0]}://..."
            raise MurmurateError("address of an object store", shown, "must be s3://bucket/prefix, without credentials")
        variables = variables or {}
        known = os.environ | variables
        allow_http = known.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true", "yes"}
        if not allow_http and known.get("AWS_ENDPOINT_URL", "").startswith("http:"):
            allowed = "must begin with https://; AWS_ALLOW_HTTP=true permits it for a store on this machine"
            raise MurmurateError("AWS_ENDPOINT_URL", "without TLS", allowed)
        self.address = address.rstrip("/")
        self._timeout_s = timeout_s
        config = {name.lower(): value for name, value in variables.items() if name != "AWS_ALLOW_HTTP"}
        config |= {"conditional_put": "etag"} if address.startswith("s3:") else {}
        self._store: Any = from_url(
            self.address,
            config=config,
            client_options={
                "timeout": timedelta(seconds=timeout_s),
                "connect_timeout": timedelta(seconds=timeout_s / 4),
                "allow_http": allow_http,
            },
            retry_config={
                "max_retries": _MAX_RETRIES,
                "retry_timeout": timedelta(seconds=timeout_s / 2),  # a create may need one for its put and its read
                "backoff": {
                    "init_backoff": timedelta(seconds=_FIRST_PAUSE_S),
                    "max_backoff": timedelta(seconds=_MAX_PAUSE_S),
                    "base": 2,
                },
            },
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteStore) and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        check_name(name)
        token = os.urandom(16).hex()
        end_s = time.monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                self._put(name, data, token)
            except OSError as error:
                if error.errno in {errno.EACCES, errno.ENXIO}:
                    raise  # another attempt would not help
                problem = error
            else:
                return True
            writer = self.writer_of(name)
            if writer is not None:
                return writer == token
            if time.monotonic() > end_s:
                raise problem
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    def _put(self, name: str, data: bytes | memoryview, token: str) -> None:
        """Put what is not there. Any error, also that the name exists, may come from an attempt after one that won."""
        body = memoryview(data).cast("B") if data else b""  # obstore takes unsigned bytes, Arrow's are signed
        with _translated_errors(name):
            try:
                self._store.put(name, body, mode="create", use_multipart=False, attributes={_TOKEN: token})
            except FileNotFoundError as error:
                raise OSError(errno.ENXIO, f"no such bucket: {_first_line(error)}", name) from None

    def writer_of(self, name: str) -> str | None:
        """The token of the call that created a name; empty if it bears none, None if there is no such name."""
        try:
            with _translated_errors(name):
                found: dict[str, str] = self._store.get(name, options={"head": True}).attributes
        except FileNotFoundError:
            return None
        return found.get(_TOKEN, "")

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        return bytes(self._get(name, begin, end))

    def open(self, name: str) -> pa.NativeFile:
        import pyarrow as pa  # noqa: PLC0415 the public process runs without it

        return pa.BufferReader(pa.py_buffer(self._get(name, 0, None)))

    def _get(self, name: str, begin: int, end: int | None) -> obstore.Bytes:
        """The bytes of a range. A store refuses one that begins at the end of the object or after it."""
        options: dict[str, object] = {}
        if end is not None:
            options["range"] = (begin, end)
        elif begin:
            options["range"] = {"offset": begin}
        with _translated_errors(name):
            if end is not None and end <= begin:
                self._store.head(name)
                return obstore.Bytes()
            try:
                return self._store.get(name, options=options).bytes()
            except BaseError:
                if options and self._store.head(name)["size"] <= begin:
                    return obstore.Bytes()
                raise

    def exists(self, name: str) -> bool:
        return self.writer_of(name) is not None

    def changed_s(self, name: str) -> float:
        with _translated_errors(name):
            changed_s: float = self._store.head(name)["last_modified"].timestamp()
        return changed_s

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        below = f"{folder}/" if folder else ""
        with _translated_errors(folder):
            found = self._store.list(folder or None, chunk_size=1000).collect()
        stored = [StoredObject(each["path"], each["size"], each["last_modified"].timestamp()) for each in found]
        visible = [each for each in stored if "/." not in f"/{each.name.removeprefix(below)}"]
        return iter(sorted(visible))  # no provider but S3 documents an order

    def list_folders(self, folder: str = "") -> list[str]:
        with _translated_errors(folder):
            found = self._store.list_with_delimiter(folder or None)["common_prefixes"]
        names = (path.rpartition("/")[2] for path in found)
        return sorted(name for name in names if not name.startswith("."))

    def delete(self, name: str) -> None:
        with _translated_errors(name):
            try:
                self._store.delete(name)
            except FileNotFoundError:
                return  # not an error on S3; one on others

    def delete_folder(self, folder: str) -> None:
        with _translated_errors(folder):
            if found := [each["path"] for each in self._store.list(folder, chunk_size=1000).collect()]:
                self._store.delete(found)

    def delete_unfinished(self, folder: str, before_s: float) -> None:
        """Nothing is unfinished: an object is put in one request."""


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Raise what a file system would raise, with the first line of what obstore says."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such object", name) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, f"the object store refuses: {_first_line(error)}", name) from None
    except AlreadyExistsError as error:
        raise FileExistsError(errno.EEXIST, f"conflict in the object store: {_first_line(error)}", name) from None
    except (BaseError, ValueError) as error:  # a name that obstore cannot express is a ValueError
        raise OSError(errno.EIO, f"the object store failed: {_first_line(error)}", name) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
