"""Hours that a worker publishes to a log in an object store, and what verifies it from the store alone."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.support.interval_workers import FIRST_S, GRACE_S, WorkerSetup
from tests.support.operator_cli import STEP_S
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from typer.testing import CliRunner

from murmurate.cli import app
from murmurate.commands.close import close_zones
from murmurate.commands.rotate import rotate_keys
from murmurate.commands.verify import verify_logs
from murmurate.errors import MurmurateError
from murmurate.service.log_reader import tile_source
from murmurate.service.log_reader.follower import Follower
from murmurate.service.operator_api.status import BackgroundLogReader
from murmurate.service.storage import store_probe
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.object_log import claim_name
from murmurate.service.storage.open_store import open_log_store, open_store

HOURS = 8 * 3600 // STEP_S  # intervals


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.ceph)])
def address(request, tmp_path):
    if request.param == "bucket":
        return request.getfixturevalue("bucket_log_address")
    (tmp_path / "log").mkdir()
    return str(tmp_path / "log")


@pytest.fixture
def setup(tmp_path, state_dsn, address, monkeypatch):
    probed = []
    monkeypatch.setattr(store_probe, "probe_store", probed.append)  # it is tried in the test of all processes
    (tmp_path / "root").mkdir()
    made = WorkerSetup(tmp_path / "root", state_dsn, address)
    assert [store.address for store in probed] == [address] * address.startswith("s3://")
    yield made
    for worker in made.workers:
        worker.context.close()
        worker.ingest_store.close()


def verify(address, capsys, *arguments):
    capsys.readouterr()
    status = verify_logs([address], as_json=True, **dict(arguments))
    return status, json.loads(capsys.readouterr().out)


def test_hours_are_published_and_verified_from_the_store_alone(setup, address, state_dsn, capsys):
    setup.release(*range(HOURS - 2))
    setup.at(HOURS - 2, GRACE_S)  # without readings
    keys = setup.root / "keys"
    assert rotate_keys(state_dsn, address, keys, as_json=True) == 0
    setup.release(HOURS - 1)
    assert close_zones(["harbour"], state_dsn, address, keys, as_json=True) == 0
    status, report = verify(address, capsys)
    assert (status, report["valid"], report["complete"], report["findings"]) == (0, True, True, [])
    zone = report["zones"]["harbour"]
    assert zone["kinds"] == {"measured": HOURS - 1, "fallback": 1}
    first = FIRST_S // STEP_S
    last = first + HOURS - 1
    assert (zone["first_interval"], zone["last_interval"], zone["closed_after"]) == (first, last, last)
    report = setup.release_report()
    assert (report["blocked"], report["unfinished"], report["reasons"]) == (0, 0, {})


def test_a_second_worker_goes_on_and_a_lost_state_adopts_the_shard(setup, address, capsys):
    setup.release(0, 1)
    setup.worker = setup.new_worker()
    setup.release(2)
    assert verify(address, capsys)[1]["zones"]["harbour"]["kinds"] == {"measured": 3}


def test_a_follower_shows_the_prices_and_stops_at_a_tile_that_does_not_follow(setup, address, monkeypatch):
    monkeypatch.setattr(tile_source, "_POLL_S", 0.0)
    setup.release(*range(9))
    follower = Follower(tile_source.ObjectTiles(open_log_store(address)))
    assert [change.new_intervals for change in follower.refresh()] == [range(0)]
    assert len([*follower.backfill(60.0)]) == 1
    (view,) = follower.views()
    first = FIRST_S // STEP_S
    assert (view.first, view.last, view.head.tile.header.seq) == (first, first + 8, 9)
    setup.release(9)
    assert [change.new_intervals for change in follower.refresh()] == [range(first + 9, first + 10)]
    store = open_log_store(address)
    last = max(each.name for each in store.list_objects("tiles"))
    store.create(last.replace("10.tile", "11.tile"), store.read(last))
    assert [*follower.refresh()] == []
    assert "not valid" in follower.broken[view.name]
    again = Follower(tile_source.ObjectTiles(open_log_store(address)))
    assert [*again.refresh()] == []
    assert "not valid" in again.broken[view.name]


def test_a_follower_shows_no_zone_that_another_shard_has_claimed(setup, address):
    setup.release(0)
    store = open_log_store(address)
    store.delete(claim_name("harbour"))
    store.create(claim_name("harbour"), b'{"shard":"another","zone":"harbour"}')
    follower = Follower(tile_source.ObjectTiles(open_log_store(address)))
    assert [*follower.refresh()] == []
    assert ["must be claimed for" in reason for reason in follower.broken.values()] == [True]


def test_the_operators_page_and_status_read_the_log(setup, address, state_dsn):
    setup.release(0, 1)
    reader = BackgroundLogReader(setup.databases.log)
    reader.refresh()
    assert [shard.last for shard in reader.shards.values()] == [FIRST_S // STEP_S + 1]
    reader.close()
    (setup.root / "service.toml").write_text("")
    result = CliRunner().invoke(
        app, ["status", str(setup.root / "service.toml"), "--state", state_dsn, "--log", address]
    )
    assert "harbour" in result.output, (result.output, result.exception)


def test_the_whole_service_publishes_to_it_and_answers_from_it(setup, address, state_dsn, capsys):
    """All processes, as a supervisor starts them. The worker finds nothing to do: its zone is of another year."""
    setup.release(*range(5))
    public, private = free_port(), free_port()
    root = setup.root
    settings = f"""
        landing = "{setup.landing.store.address}"
        public = "127.0.0.1:{public}"
        private = "127.0.0.1:{private}"
        [clock]
        simulated_s = {FIRST_S + 6 * STEP_S}
        wall_s = {time.time()}
    """
    (root / "service.toml").write_text(settings)
    environment = os.environ | {"MURMURATE_STATE": state_dsn, "MURMURATE_LOG": address}
    environment |= {"MURMURATE_KAFKA_PASSWORD": "of readings"}
    command = [sys.executable, "-m", "murmurate", "serve", str(root / "service.toml")]
    with (
        (root / "out.txt").open("wb") as out,
        subprocess.Popen(command, env=environment, stdout=out, stderr=out) as service,
    ):
        try:
            url = f"http://127.0.0.1:{public}"
            assert wait_until(lambda: is_ready(url) and is_ready(f"http://127.0.0.1:{private}")), (
                root / "out.txt"
            ).read_text()
            secret = {"MURMURATE_STATE", "MURMURATE_KAFKA_PASSWORD"}
            assert secret <= started_with(service.pid, "private")
            assert not secret & started_with(service.pid, "public")
            zones = httpx.get(f"{url}/zones").text
            assert "harbour" in zones
            tiles = httpx.get(f"{url}/shards").json()
            assert [each["seq"] for each in tiles] == [5]
            for source in (f"{url}/", f"{url}/zones/harbour/log.jsonl"):
                status, report = verify(source, capsys)
                assert (status, report["zones"]["harbour"]["records"]) == (0, 5)
        finally:
            service.terminate()
            service.wait(60)
    if address.startswith("s3://"):
        assert [*open_log_store(address).list_objects("_probe")] == []
    assert "Traceback" not in (root / "out.txt").read_text()


def started_with(supervisor, process):
    """The names of the variables that a process of a service was started with."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (child,) = (pid for pid in children if f"--only\0{process}\0" in Path(f"/proc/{pid}/cmdline").read_text())
    return {pair.partition("=")[0] for pair in Path(f"/proc/{child}/environ").read_text().split("\0")}


@pytest.mark.ceph
def test_the_key_of_the_log_reads_no_readings(bucket_address, bucket_log_address):
    landing = open_store(bucket_address)
    assert landing.create("a.json", b"1")
    assert open_log_store(bucket_log_address).create("a.json", b"2")
    for other in (
        partial(open_log_store(bucket_address).read, "a.json"),
        partial(open_store(bucket_log_address).read, "a.json"),
    ):
        with pytest.raises(PermissionError):
            other()


def is_ready(url):
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_changed_tile_and_a_missing_one_are_found(setup, address, capsys, tmp_path):
    setup.release(*range(6))
    store = open_log_store(address)
    names = [each.name for each in store.list_objects("tiles")]
    data = store.read(names[3])
    store.delete(names[3])
    assert [each["rule"] for each in verify(address, capsys, ("out", tmp_path))[1]["findings"]] == ["gap"]
    store.create(names[3], data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    status, report = verify(address, capsys, ("out", tmp_path))
    assert (status, report["valid"]) == (1, False)


@pytest.mark.parametrize(
    "command", [["log", "repair"], ["log", "archive", "old"], ["log", "export", "log.tar"]], ids=str
)
def test_what_needs_postgresql_says_so(command, state_dsn, tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURATE_STATE", state_dsn)
    result = CliRunner().invoke(app, [*command, "--log", str(tmp_path)])
    assert "must be in PostgreSQL for this" in str(result.exception)


def test_a_folder_that_is_not_there_is_named(state_dsn, tmp_path):
    with pytest.raises(MurmurateError, match="must be a folder: create it"):
        Databases.from_dsns(state=state_dsn, log=str(tmp_path / "missing")).check_reachable(prepared=False)
