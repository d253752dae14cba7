"""The commands of an operator and of a verifier, typed as documented, against real databases and a real web server."""

import gzip
import json
import re
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import TileKind, parse_tile
from murmurate.public_log.zone_line import make_zone_line
from murmurate.service.storage.public_log_store import PostgresLogStore
from tests.support.operator_cli import PAYING, an_operator, decided_kinds, documented_commands, small_zone
from tests.support.sample_logs import edit_rows

QUARTER_S = 900
WITHOUT = """
import sys

OPTIONAL = {"dp_accounting", "matplotlib", "opendp", "psycopg", "pyarrow", "scipy", "starlette"}

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *more):
        return None if name.partition(".")[0] in OPTIONAL else self.finder.find_spec(name, *more)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path = [Without(finder) for finder in sys.meta_path]
from murmurate.cli import main

main()
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """An operator who has released an hour of measured prices, and exported the log and the lines of the zone."""
    with an_operator(tmp_path_factory.mktemp("published")) as operator:
        first = operator.open_and_find_first(hours_ago=1)
        operator.store_demand(first, first + 6)
        assert "1 of 1 zone up to date" in operator.run("murmurate step release --slot 0.02")
        operator.run("murmurate log export log.tar && murmurate log export log.tar.gz")
        operator.run(
            "murmurate log export --zone harbour log.jsonl && murmurate log export --zone harbour log.jsonl.gz"
        )
        yield operator


def follow(operator, page):
    for line, succeeds in documented_commands(page):
        operator.run(line, status=0 if succeeds else 1)


@contextmanager
def an_operator_who_followed(folder, page):
    """Follow a page, again if an interval ended meanwhile: a zone that is opened then enters an interval later."""
    for attempt in range(5):
        (folder / str(attempt)).mkdir()
        with an_operator(folder / str(attempt)) as operator:
            begin_s = time.time()
            try:
                follow(operator, page)
            except AssertionError:
                if int(begin_s) // QUARTER_S == int(time.time()) // QUARTER_S:
                    raise
                assert "has not entered its shard yet" in operator.shown
                continue
            yield operator
            return
    pytest.fail("an interval ended in each of five attempts")


def test_the_pages_on_publishing_and_verifying_run_as_written(tmp_path):
    with an_operator_who_followed(tmp_path, "how-to/publish.md") as operator:
        headers = [parse_tile(tile).header for tile in operator.export()]
        kinds = [header.kind for header in headers if header.kind is not TileKind.RELEASE]
        assert kinds == [TileKind.OPEN, TileKind.ZONES, TileKind.KEY, TileKind.ZONES]  # a plan, a key, the end
        operator.write("operator.key", headers[0].key)
        assert "Everything holds." in operator.run('murmurate log verify log.tar --key "$(cat operator.key)"')
        operator.run("murmurate log export --zone harbour log.jsonl")
        follow(operator, "how-to/verify.md")


def test_what_was_measured_is_published_and_holds(published):
    names = "log.tar log.tar.gz log.jsonl log.jsonl.gz"
    shown = published.run(f'murmurate log verify {names} --key "$(cat operator.key)"')
    kinds = decided_kinds(published.exported("log.tar"))
    assert kinds[:8] == ["open", *["measured"] * 7]
    assert set(kinds[8:]) == {"fallback"}
    for words in ("Everything holds.", "proven again", "any 24 h: epsilon 3", "What no such check shows"):
        assert words in shown
    assert "trusted because it came first" not in shown
    for name in ("log.tar", "log.jsonl"):
        packed = (published.folder / f"{name}.gz").read_bytes()
        assert gzip.decompress(packed) == (published.folder / name).read_bytes()


def test_releasing_again_changes_nothing(published):
    before = published.exported("log.tar")
    published.run("murmurate step release --slot 0.02")
    assert published.export("again.tar")[: len(before)] == before


def test_nothing_printed_or_published_holds_a_demand(published):
    files = [(published.folder / name).read_bytes() for name in ("log.tar", "log.jsonl")]
    everything = b"".join([published.shown.encode(), *files])
    forms = [str(PAYING), f"{PAYING:x}", f"{PAYING:,}", repr(float(PAYING))]
    raw = [struct.pack(order, PAYING) for order in ("<q", ">q", "<d", ">d")]
    for form in (*(text.encode() for text in forms), *raw):
        assert form not in everything


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def website(published):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=published.folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_log_is_verified_from_an_address_and_from_standard_input(published, website):
    for name in ("log.tar", "log.tar.gz", "log.jsonl.gz"):
        assert "Everything holds." in published.run(f"murmurate log verify {website}/{name}")
    for name in ("log.tar", "log.jsonl"):
        assert "Everything holds." in published.run(f"murmurate log verify - < {name}")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{website}/nothing.jsonl", "cannot be fetched (File not found)"),
        ("ftp://127.0.0.1/log.jsonl", "must be a file, - or an address that begins with http://, https:// or s3://"),
        ("file:///etc/hostname", "must be a file, - or an address"),
        ("nothing.jsonl", "nothing.jsonl is not there"),
        ("empty.jsonl", "no record to check"),
        ("long.jsonl", "has a line of more than 1,048,576 bytes"),
        ("damaged.jsonl.gz", "is damaged: it does not unpack"),
        ("log.jsonl --zone nowhere", "zone nowhere is not in log.jsonl"),
        ("log.jsonl --key 123", "must be 64 hexadecimal digits"),
    ],
)
def test_what_cannot_be_read_is_status_2_and_one_line(published, website, source, says):
    published.write("empty.jsonl", "")
    published.write("long.jsonl", "[" * (1 << 20) + "]\n")
    whole = (published.folder / "log.jsonl.gz").read_bytes()
    (published.folder / "damaged.jsonl.gz").write_bytes(whole[:500])
    shown = published.run(f"murmurate log verify {source.format(website=website)}", status=2)
    assert says in shown
    assert len(shown.strip().splitlines()) == 1


def second_value(published):
    """What a publisher that draws twice would have signed, as a line of the zone."""
    signer = Ed25519Signer(bytes.fromhex((published.folder / "keys" / "signing-001.key").read_text().strip()))
    log = PostgresLogStore(published.dsn("log"))
    ((_, table),) = log.read_heads(log.heads()).values()
    log.close()

    def edit(rows):
        rows["price_ticks"] = 1

    tile = edit_rows(parse_tile(published.exported("log.tar")[3]), table, edit, signer)
    return make_zone_line(tile, table, "harbour").to_json()


def test_two_values_print_and_write_a_proof_of_misbehaviour(published):
    published.write("shown-to-me.jsonl", second_value(published) + "\n")
    published.run("mkdir -p proofs")
    shown = published.run("murmurate log verify log.jsonl shown-to-me.jsonl --out proofs", status=1)
    assert "Proof of misbehaviour" in shown
    proof = json.loads((published.folder / "proofs" / "misbehaviour-1.json").read_text(encoding="utf-8"))
    assert proof["lines"] == [published.lines("log.jsonl")[4], second_value(published)]
    for line in proof["lines"]:
        assert line in shown


def test_without_extras_the_log_can_be_verified_and_the_rest_says_what_is_missing(published):
    def bare(*arguments):
        return subprocess.run(
            [sys.executable, "-c", WITHOUT, *arguments],
            cwd=published.folder,
            env=published.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    for name in ("log.tar", "log.jsonl"):
        assert "Everything holds." in bare("log", "verify", name).stdout
    for command in (
        ["init"],
        ["zone", "open", "plan.json"],
        ["step", "release"],
        ["log", "export", "x"],
        ["log", "repair"],
        ["keys", "rotate"],
    ):
        done = bare(*command)
        assert done.returncode == 2
        needs = r'murmurate: psycopg is not installed: run pip install .*\[service\]"'
        assert re.fullmatch(needs, done.stderr.strip())


@pytest.mark.parametrize(
    ("command", "dsn"),
    [
        ("murmurate zone open plan.json", "postgresql://me:geheim@127.0.0.1:5499/x"),
        ("murmurate step release", "host=127.0.0.1 port=5499 password=geheim"),
        ("murmurate zone change plan.json", "geheim geheim"),
        ("murmurate keys rotate", "postgresql://postgres:geheim@127.0.0.1:5432/nowhere"),
        ("murmurate log export x.tar", "host=127.0.0.1 port=geheim"),
        ("murmurate log repair", "postgresql://me:geheim@[127.0.0.1"),
        ("murmurate log repair", ""),
    ],
)
def test_a_database_that_is_not_there_is_said_without_a_password(published, command, dsn):
    shown = published.run(command, status=2, MURMURATE_STATE=dsn, MURMURATE_LOG=dsn)
    assert "geheim" not in shown
    line, *statements = shown.splitlines()
    assert line.startswith("murmurate: the ")
    assert "MURMURATE_" in line
    assert not statements or "CREATE DATABASE" in shown


def test_an_empty_database_says_how_to_prepare_it(tmp_path):
    with an_operator(tmp_path) as operator:
        operator.run("env -u MURMURATE_STATE -u MURMURATE_LOG murmurate init")
        for command in ("murmurate step release", "murmurate keys rotate", "murmurate log export x.tar"):
            assert "murmurate zone open plan.json prepares it" in operator.run(command, status=2)
        assert not (tmp_path / "x.tar").exists()


def test_opening_twice_is_opening_once_and_one_server_is_warned_about(published):
    before = published.exported("log.tar")
    shown = published.run("murmurate zone open plan.json --lead 7")
    assert "open already" in shown
    assert "Warning: state and log are on one server" in shown
    assert published.export("again.tar")[: len(before)] == before


def test_keys_are_never_overwritten_and_only_their_owner_reads_them(published):
    before = {path.name: path.read_bytes() for path in (published.folder / "keys").iterdir()}
    published.run("murmurate init --minutes 5")
    assert {path.name: path.read_bytes() for path in (published.folder / "keys").iterdir()} == before
    assert {path.stat().st_mode & 0o777 for path in (published.folder / "keys").iterdir()} == {0o600}


def test_a_time_without_a_zone_or_off_the_grid_is_refused(published):
    for first in ("2026-05-01T00:00", "2026-05-01T00:01Z", "yesterday"):
        assert "--first" in published.run(f"murmurate zone open plan.json --first {first}", status=2)


def test_a_key_that_is_missing_blocks_the_shard_and_is_named(published):
    published.run("rm -rf others && murmurate init others && mkdir -p lost && mv keys/signing-001.key lost/")
    try:
        published.run("cp others/keys/signing-001.key keys/signing-001.key")
        before = published.export("before.tar")
        shown = published.run("murmurate keys rotate", status=1)
        assert "-0000: blocked" in shown
        assert "is not among this publisher's keys" in shown
        assert published.export("after.tar") == before
    finally:
        published.run("mv lost/signing-001.key keys/signing-001.key")


def test_zones_may_be_called_anything_and_are_exported_one_by_one(tmp_path):
    name = "Zürich, unter dem Berg"
    with an_operator(tmp_path) as operator:
        operator.open(hours_ago=1, name=name)
        operator.write("zone-2.toml", small_zone("b"))
        operator.run("murmurate plan zone-2.toml --out plan-2.json && murmurate zone open plan-2.json --lead 60")
        assert "2 of 2 zones up to date" in operator.run("murmurate step release --slot 0.02")
        operator.run(f"murmurate log export --zone '{name}' one.jsonl && murmurate log export all.tar")
        assert "Everything holds." in operator.run("murmurate log verify one.jsonl")
        lines = [json.loads(line) for line in operator.lines("one.jsonl")]
        assert {line["zone"] for line in lines if "murmurate_zone" in line} == {name}
        assert "Everything holds." in operator.run("murmurate log verify all.tar")
        assert "is empty" in operator.run("murmurate log export --zone nowhere x.jsonl", status=2)
        assert not [path for path in tmp_path.iterdir() if path.name.endswith((".partial", "x.jsonl"))]


def test_a_change_that_breaks_windows_across_it_is_refused_and_a_safe_one_is_made(tmp_path):
    with an_operator(tmp_path) as operator:
        first = operator.open_and_find_first(hours_ago=1)
        operator.store_demand(first, first + 20)
        operator.run("murmurate step release --slot 0.02")
        operator.write("half.toml", small_zone(promise="any 12 h: epsilon 3"))
        operator.write("wider.toml", small_zone(promise="any 24 h: epsilon 4"))
        operator.run("murmurate plan half.toml --out half.json && murmurate plan wider.toml --out wider.json")
        refused = operator.run("murmurate zone change half.json", status=2)
        assert "must keep 'any 24 h: epsilon 3' across the change" in refused
        said, _, done = operator.run("murmurate zone change wider.json").partition("harbour: under plan")
        assert said == ("harbour: 'any 24 h: epsilon 3' becomes WEAKER: 'any 24 h: epsilon 4'. Pages say so at once.\n")
        assert "from the next interval on" in done
        assert "already" in operator.run("murmurate zone change wider.json")
        operator.run("murmurate keys rotate && murmurate keys rotate")
        kinds = decided_kinds(operator.export())
        assert (kinds.count("zones"), kinds.count("key")) == (1, 2)
        shown = operator.run("murmurate log verify log.tar")
        assert "Keys were changed 2 times" in shown
        assert "Everything holds." in shown
