"""`murmurate log export` from a real database: all tiles or one zone, into a file or a folder. `verify` takes each."""

import gzip
import json

import psycopg
import pytest

from murmurate.commands.export import export_log
from murmurate.commands.verify import verify_logs
from murmurate.errors import MurmurateError
from murmurate.operations.log_source import open_log_source
from murmurate.planning.release_terms import compact_plan
from murmurate.verification.verifier import check_log
from tests.support.sample_logs import DIGEST, FIRST, OTHER, PLAN, ShardLog, log, zone_row


def store(dsn, *shards):
    """Put tiles and documents into a log as they are; what the log accepts is tested elsewhere."""
    with psycopg.connect(dsn) as connection:
        documents = [(json.loads(text)["digest"], compact_plan(text)) for text in (PLAN, OTHER)]
        for shard in shards:
            last = shard.tiles[-1]
            tables = [(digest, table.text) for digest, table in shard.tables.items()]
            for document in documents + tables:
                connection.execute("INSERT INTO public_log.document VALUES (%s, %s) ON CONFLICT DO NOTHING", document)
            for tile in shard.tiles:
                header = tile.header
                row = (header.shard, header.seq, header.interval, tile.to_bytes())
                connection.execute(
                    "INSERT INTO public_log.tile (shard, seq, interval, body) VALUES (%s, %s, %s, %s)", row
                )
            for zone in shard.table.zones:
                connection.execute("INSERT INTO public_log.claim VALUES (%s, %s)", (zone, shard.shard))
            head = (shard.shard, last.header.seq, last.hash, last.key_in_force, last.header.table)
            connection.execute(
                "INSERT INTO public_log.head (shard, seq, hash, key, zones, interval, interval_s, lead)"
                " VALUES (%s, %s, %s, %s, %s, %s, 3600, 2)",
                (*head, last.header.interval),
            )


def test_an_exported_log_holds_in_a_file_a_packed_file_a_folder_and_from_the_database(log_dsn, tmp_path, capsys):
    store(log_dsn, log(), ShardLog("west", ("mill",)).release())
    (tmp_path / "folder").mkdir()
    for name in ("log.tar", "log.tar.gz", "folder"):
        export_log(tmp_path / name, log_dsn)
        assert f"28 records written to {tmp_path / name}." in capsys.readouterr().out
        assert verify_logs([str(tmp_path / name)], [], None, [], tmp_path) == 0
        assert "Records: 28 in 14 tiles" in capsys.readouterr().out
    assert verify_logs([log_dsn, str(tmp_path / "log.tar")], [], None, [], tmp_path) == 0
    shown = capsys.readouterr().out
    assert "28 in 14 tiles of the log database" in shown
    assert log_dsn not in shown
    assert gzip.decompress((tmp_path / "log.tar.gz").read_bytes()) == (tmp_path / "log.tar").read_bytes()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_the_lines_of_one_zone_are_exported_from_where_it_entered(log_dsn, tmp_path, name, capsys):
    west = ShardLog("west", ("mill",)).release(times=3)
    west = west.enter([*west.table.rows, zone_row("hill", DIGEST, FIRST + 3)]).release(times=2)
    store(log_dsn, ShardLog("east", ("harbour",)).release(times=3), west)
    export_log(tmp_path / name, log_dsn, "hill")
    assert f"2 records written to {tmp_path / name}." in capsys.readouterr().out
    report = check_log({"log": open_log_source(str(tmp_path / name))})
    assert (report.is_valid, report.is_complete) == (True, True)
    assert {zone: its.records for zone, its in report.zones.items()} == {"hill": 2}
    assert verify_logs([str(tmp_path / name)], [], None, [], tmp_path) == 0


def test_nothing_to_export_is_said_and_leaves_no_file(log_dsn, tmp_path):
    with pytest.raises(MurmurateError, match="nothing to export yet"):
        export_log(tmp_path / "log.tar", log_dsn)
    store(log_dsn, log())
    for zone, name in (("nowhere", "zone.jsonl"), ("nowhere", "zone.jsonl.gz")):
        with pytest.raises(MurmurateError, match="nothing to export yet"):
            export_log(tmp_path / name, log_dsn, zone)
    assert not list(tmp_path.iterdir())
