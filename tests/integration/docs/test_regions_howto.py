"""docs/how-to/regions.md runs as written, and no region takes a zone of another one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
from tests.support.databases import database

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "regions.md"
SHARDS = "SELECT shard, zone FROM curator.zone"


def test_two_regions_share_a_log_and_neither_takes_a_zone_of_the_other(tmp_path):
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    with database("state") as north, database("state") as south, database("log") as log:
        dsns = {"NORTH": north, "SOUTH": south, "MURMURATE_LOG": log}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | dsns | {"PATH": path, "COLUMNS": "200"}
        for command, printed in re.findall(r"^\$ (.*?)\n((?:[^$].*?\n)*)", "".join(blocks), flags=re.MULTILINE):
            done = subprocess.run(
                ["bash", "-ec", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            if printed in {"", "...\n"}:
                assert done.returncode == 0, done
                continue
            assert done.returncode == 2, done
            *_, refusal = done.stderr.splitlines()
            shard = re.compile(r"shard [0-9a-f]{8}-")
            assert shard.sub("", refusal) == shard.sub("", printed.rstrip("\n"))
        assert "harbour" in done.stderr
        zones = []
        for state in (north, south):
            with psycopg.connect(state) as connection:
                zones += connection.execute(SHARDS).fetchall()
    shards, names = zip(*zones, strict=True)
    assert (names, len(set(shards))) == (("harbour", "hill"), 2)
