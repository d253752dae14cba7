"""The probe of an object store accepts Ceph, refuses stores that break a promise, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.interop_clients import environment
from tests.support.ceph_gateway import create_bucket, environment_of
from tests.support.ports import free_port
from tests.support.store_writers import OverwritingStore
from tests.support.waiting import wait_until

from murmurate.errors import MurmurateError
from murmurate.service.storage.open_store import open_store
from murmurate.service.storage.remote_store import RemoteStore
from murmurate.service.storage.store_probe import probe_store

MAX_OPENINGS = 5
OPENINGS = int(os.environ.get("MURMURATE_OPENINGS", "0"))  # all counted: .ci/long


class AskingStore(RemoteStore):
    """It asks whether there is a name, and then writes it: one writer cannot tell."""

    def create(self, name, data):
        return not self.exists(name) and bool(self._store.put(name, data, attributes={"writer": "x"}))


class SmallAskingStore(AskingStore):
    """It asks before it writes what is small, and is right where it is large."""

    def create(self, name, data):
        return (AskingStore if len(data) == 1 else RemoteStore).create(self, name, data)


class RefusingStore(RemoteStore):
    """It lets none of two writers win where they race."""

    def create(self, name, data):
        return super().create(name, data) and not name.endswith("0007")


class DroppingStore(RemoteStore):
    """It keeps no metadata, so that a writer cannot find out whether it was itself."""

    def create(self, name, data):
        try:
            return bool(self._store.put(name, data, mode="create"))
        except Exception:  # noqa: BLE001 of obstore, for a name that exists
            return False


class LateListingStore(RemoteStore):
    """Its listings lack the newest name."""

    def list_objects(self, folder):
        return iter(list(super().list_objects(folder))[:-1])


def test_ceph_is_accepted_and_nothing_is_left(bucket_address):
    store = RemoteStore(bucket_address)
    store.create("a", b"1")
    assert open_store(bucket_address, probe=True).read("a") == b"1"
    assert [each.name for each in store.list_objects("")] == ["a"]


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (OverwritingStore, "writing over what is there|dropping the metadata"),
        (AskingStore, "letting 2 of 2 writers win a name"),
        (SmallAskingStore, "letting 2 of 2 writers win a name"),
        (RefusingStore, "letting 0 of 2 writers win a name"),
        (DroppingStore, "dropping the metadata"),
        (LateListingStore, "listing less than what was created before"),
    ],
)
def test_a_store_that_breaks_a_promise_is_refused(bucket_address, kind, found):
    with pytest.raises(MurmurateError, match=found):
        probe_store(kind(bucket_address))


def test_a_store_that_cannot_be_reached_is_not_refused_for_what_it_does(monkeypatch):
    for name, value in environment_of(free_port()).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match="the object store failed"):
        probe_store(RemoteStore("s3://bucket/p", timeout_s=0.5))


@pytest.mark.clients
def test_moto_which_lets_two_win_now_and_then_is_refused(monkeypatch, tmp_path_factory, tmp_path, figure):
    """Moto asks and then writes: on a busy machine one opening in thirty misses it, and five in a row do not."""
    clients = environment(
        "MURMURATE_CLIENTS", "requirements.txt", Path(sys.executable), tmp_path_factory.getbasetemp().parent
    )
    port = free_port()
    for name, value in environment_of(port).items():
        monkeypatch.setenv(name, value)
    command = [str(clients.python), "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "moto.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as moto:
        try:
            assert wait_until(lambda: b"Running on" in (tmp_path / "moto.log").read_bytes())
            create_bucket(port, "landings")
            store = open_store("s3://landings/p")
            refusals = (refusal(store) for _ in range(OPENINGS or MAX_OPENINGS))
            if OPENINGS:
                refused = sum("letting 2 of 2 writers win" in each for each in refusals)
                figure(f"moto was refused in {refused} of {OPENINGS} openings")
                assert refused >= 0.95 * OPENINGS
            else:
                first = next(filter(None, refusals))
                figure(f"moto was refused: {first}")
                assert "letting 2 of 2 writers win" in first
        finally:
            moto.kill()


def refusal(store):
    """Why a store is refused; empty where it is accepted."""
    try:
        probe_store(store)
    except MurmurateError as error:
        return str(error)
    return ""
