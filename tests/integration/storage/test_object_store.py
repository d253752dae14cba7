"""The laws of `ObjectStore`, for a folder and for a bucket of a real Ceph; writers race in processes of their own."""

import os
import time

import pyarrow as pa
import pytest
from tests.support.ceph_gateway import environment_of
from tests.support.ports import free_port
from tests.support.store_writers import OverwritingStore, race

from murmurate.errors import MurmurateError
from murmurate.service.storage.object_store import FolderStore
from murmurate.service.storage.open_store import open_store

ODD_NAMES = [
    "_closed/20261114T1215Z.json",
    "a b/ü.json",
    "a-/before the slash",
    "a/50%.x",
    "a/%2F and %20",
    "a/q?x#y&z",
    "a/+01=2,3;4@5~6!$&'()*",
    'a/[x]{y}|z\\w^`"<>',
    "a/deep/er/still",
    "e\N{COMBINING ACUTE ACCENT}",
    "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "z" * 200,
]
RACES = int(os.environ.get("MURMURATE_RACES", "200"))


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.ceph)])
def address(request, tmp_path):
    """Where nothing is yet, for `open_store`."""
    return str(tmp_path) if request.param == "folder" else request.getfixturevalue("bucket_address")


@pytest.fixture
def store(address):
    return open_store(address)


def test_what_was_created_is_there_and_is_never_written_over(store):
    assert not store.exists("a/b")
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert not store.create("a/b", b"first")
    assert store.exists("a/b")
    assert store.read("a/b") == b"first"


def test_a_name_is_a_file_and_a_folder_is_none(store):
    store.create("a/b", b"")
    assert not store.exists("a")
    assert list(store.list_objects("a/b")) == store.list_folders("a/b") == []


def test_a_range_is_cut_at_the_end_of_the_object(store):
    data = bytes(range(100))
    store.create("ranges", memoryview(data)[:])
    for begin in (0, 1, 50, 99, 100, 200):
        for end in (None, 0, 1, 50, 99, 100, 101, 1000):
            assert store.read("ranges", begin, end) == data[begin:end], (begin, end)


def test_an_empty_object_is_one(store):
    assert store.create("empty", b"")
    assert store.create("empty view", memoryview(b""))
    assert store.exists("empty")
    assert store.read("empty") == store.read("empty", 0, 10) == store.read("empty view") == b""
    assert store.open("empty").read() == b""
    assert [each.size for each in store.list_objects("")] == [0, 0]


def test_an_open_file_stays_as_it_was(store):
    table = pa.table({"meter": [1, 2], "energy_wh": [3, 4]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    store.create("table", memoryview(sink.getvalue()))
    with store.open("table") as file:
        store.delete("table")
        assert pa.ipc.open_file(file).read_all() == table


def test_what_is_missing_is_not_found(store):
    for read in (store.read, store.open, lambda name: store.read(name, 3), lambda name: store.read(name, 0, 0)):
        with pytest.raises(FileNotFoundError):
            read("missing")
    assert list(store.list_objects("missing")) == store.list_folders("missing") == []


def test_deleting_twice_is_deleting_once_and_the_name_is_free_again(store):
    store.create("a/b", b"1")
    store.create("a/c", b"2")
    store.delete("a/b")
    store.delete("a/b")
    assert not store.exists("a/b")
    assert [each.name for each in store.list_objects("a")] == ["a/c"]
    assert store.create("a/b", b"3")
    assert store.read("a/b") == b"3"


def test_names_with_odd_characters_are_listed_as_they_were_created_in_order(store):
    for number, name in enumerate(ODD_NAMES):
        assert store.create(name, bytes(number))
    assert [each.name for each in store.list_objects("")] == sorted(ODD_NAMES)
    for number, name in enumerate(ODD_NAMES):
        assert store.read(name) == bytes(number)
    assert [each.name for each in store.list_objects("a")] == sorted(n for n in ODD_NAMES if n.startswith("a/"))
    assert store.list_folders() == ["_closed", "a", "a b", "a-"]
    assert store.list_folders("a") == ["deep"]
    assert store.list_folders("a/deep/er") == []


def test_a_listing_has_what_was_created_before_with_its_size_and_time(store):
    begin_s = time.time()
    for number in range(30):
        store.create(f"days/{number:03}", bytes(number))
        listed = list(store.list_objects("days"))
        assert [each.name for each in listed] == [f"days/{n:03}" for n in range(number + 1)]
    assert [each.size for each in listed] == list(range(30))
    assert all(begin_s - 2 <= each.changed_s <= time.time() + 2 for each in listed)
    store.delete("days/007")
    assert "days/007" not in [each.name for each in store.list_objects("days")]


@pytest.mark.usefixtures("quick_disk")
def test_more_names_than_a_page_of_the_store_are_listed(store):
    names = [f"many/{number % 7}/{number:04}" for number in range(2100)]
    for name in names:
        store.create(name, b"")
    assert [each.name for each in store.list_objects("many")] == sorted(names)
    assert store.list_folders("many") == list("0123456")


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.part", ".a/b", "a\nb", "a\0b"])
def test_a_name_that_would_not_be_listed_cannot_be_created(store, name):
    with pytest.raises(MurmurateError, match=r"must have no part that is empty or begins with a dot"):
        store.create(name, b"")
    assert list(store.list_objects("")) == []


def test_hidden_files_of_other_programs_are_not_listed(address):
    store = open_store(address)
    store.create("a/visible", b"")
    hidden = ["a/.part", ".temporary/a", "a/.b/c"]
    if isinstance(store, FolderStore):
        for name in hidden:
            (store.root / name).parent.mkdir(exist_ok=True)
            (store.root / name).touch()
    else:
        for name in hidden:
            store._store.put(name, b"")
    assert [each.name for each in store.list_objects("")] == ["a/visible"]
    assert store.list_folders() == ["a"]
    assert store.list_folders("a") == []


def test_another_machine_opens_the_address_and_sees_the_same(store):
    store.create("a", b"1")
    other = open_store(store.address)
    assert other.address == store.address
    assert other.read("a") == b"1"


def test_of_writers_that_race_for_a_name_one_wins(address, figure):
    counts = race(address, [{}] * 4, RACES)
    figure(f"object store, {address.partition('://')[0][:3]}: {counts}")
    assert counts.doubles == counts.without_winner == counts.wrong == counts.doubts == 0


@pytest.mark.ceph
def test_races_find_a_store_that_writes_over(bucket_address):
    counts = race(bucket_address, [{}] * 4, 10, opener=OverwritingStore)
    assert counts.doubles == 10
    assert counts.wrong > 0


@pytest.mark.parametrize(
    "address", ["s3://", "s3://key:secret@bucket/p", "s3://b/p?x", "ftp://b/p", "s3://b/../c", "s3://b//p"]
)
def test_an_address_that_is_none_is_refused_and_not_repeated(address):
    with pytest.raises(MurmurateError, match=r"must be s3://bucket/prefix, without credentials") as refused:
        open_store(address)
    assert "secret" not in str(refused.value)


def test_an_endpoint_without_tls_needs_a_permission(monkeypatch):
    for name, value in environment_of(free_port()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(MurmurateError, match="AWS_ENDPOINT_URL is without TLS: must begin with https://"):
        open_store("s3://bucket/p")


def _calls(store):
    return {
        "create": lambda: store.create("a", b""),
        "read": lambda: store.read("a"),
        "range": lambda: store.read("a", 1, 5),
        "open": lambda: store.open("a"),
        "exists": lambda: store.exists("a"),
        "list": lambda: list(store.list_objects("")),
        "folders": lambda: store.list_folders(""),
        "delete": lambda: store.delete("a"),
    }


@pytest.mark.parametrize("call", _calls(None))
def test_a_store_that_cannot_be_reached_raises_within_its_time(call, monkeypatch):
    for name, value in environment_of(free_port()).items():
        monkeypatch.setenv(name, value)
    begin_s = time.monotonic()
    with pytest.raises(OSError, match="the object store failed"):
        _calls(open_store("s3://bucket/p", timeout_s=1))[call]()
    assert time.monotonic() - begin_s < 60  # obstore alone would try for three minutes
