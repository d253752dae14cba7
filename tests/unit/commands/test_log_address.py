"""`murmurate log verify` at the address of a service, and of any web server that carries the same files."""

import json

import pytest
from tests.support.sample_logs import OTHER, PLAN, ShardLog, check_log, log
from tests.support.web_server import web_server

from murmurate.errors import MurmurateError
from murmurate.operations.log_source import open_log_source


def write_site(folder, *shards):
    """The files of a log under the paths that a service has."""
    found = {f"documents/{json.loads(text)['digest']}": text.encode() for text in (PLAN, OTHER)}
    for shard in shards:
        found |= {f"documents/{digest}": table.text.encode() for digest, table in shard.tables.items()}
        found |= {f"tiles/{shard.shard}/{tile.header.seq}": tile.to_bytes() for tile in shard.tiles}
    listed = [{"shard": shard.shard, "seq": len(shard.tiles) - 1, "zones": 3} for shard in shards]
    for name, data in (found | {"shards": json.dumps(listed).encode()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "/", "/shards", "/prices/", "/prices/shards"])
def test_the_whole_log_is_read_from_the_address_of_a_service(tmp_path, path):
    site = tmp_path / "prices" if "prices" in path else tmp_path
    write_site(site, log(), ShardLog("ünder the hill", zones=("mill",)).release(times=12))
    with web_server(tmp_path) as address:
        report = check_log({"site": open_log_source(address + path)})
    assert (report.is_valid, report.is_complete) == (True, True)
    assert report.tiles_by_source == {"site": len(log().tiles) + 13}


def test_the_same_files_in_a_folder_are_a_copy_with_tiles_in_the_order_of_their_numbers(tmp_path):
    write_site(tmp_path, log())
    (tmp_path / "tiles" / "east" / ".12.55.ab").write_bytes(b"half a")
    names = [item.name for item in open_log_source(str(tmp_path))() if item.name.startswith("tiles")]
    assert names == [f"tiles/east/{seq}" for seq in range(len(log().tiles))]
    report = check_log({"folder": open_log_source(str(tmp_path))})
    assert (report.is_valid, report.is_complete) == (True, True)


def test_a_tile_that_was_changed_on_the_way_is_found(tmp_path):
    write_site(tmp_path, log())
    tile = tmp_path / "tiles" / "east" / "2"
    tile.write_bytes(tile.read_bytes()[:-1] + b"\x99")
    with web_server(tmp_path) as address:
        assert not check_log({"site": open_log_source(address)}).is_valid


def test_a_tile_that_the_list_names_and_that_is_not_there_stops_the_check(tmp_path):
    write_site(tmp_path, log())
    (tmp_path / "tiles" / "east" / "2").unlink()
    with web_server(tmp_path) as address, pytest.raises(MurmurateError, match=r"tiles/east/2: cannot be fetched"):
        open_log_source(address)


@pytest.mark.parametrize("text", ["<html>", "{}", '{"title": "x"}', "[1]", '[{"shard": 1, "seq": 2}]', '["east"]', "["])
def test_an_address_that_lists_no_shards_is_refused_in_words(tmp_path, text):
    (tmp_path / "shards").write_text(text)
    with web_server(tmp_path) as address, pytest.raises(MurmurateError, match="shard"):
        open_log_source(address)


@pytest.mark.parametrize("header", [b"[]\n", b"{\n", b'{"table": 5}\n', b'{"table": "../../etc"}\n', b"\xff\xfe"])
def test_a_tile_that_is_none_is_a_finding_and_asks_for_nothing_else(tmp_path, header):
    write_site(tmp_path, log())
    (tmp_path / "tiles" / "east" / "0").write_bytes(header)
    with web_server(tmp_path) as address:
        report = check_log({"site": open_log_source(address)})
    assert not report.is_valid
