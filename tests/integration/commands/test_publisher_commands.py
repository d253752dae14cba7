"""The commands of an operator and of a verifier, typed as documented, against real databases and a real web server."""

import gzip
import json
import re
import subprocess
import sys
import threading
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import psycopg
import pytest

from murmurate.public_log.signing import Ed25519Signer
from tests.support.operator_cli import DOCS, PAYING, an_operator, documented_commands, small_zone

WITHOUT = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *more):
        return None if name.partition(".")[0] == "psycopg" else self.finder.find_spec(name, *more)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path = [Without(finder) for finder in sys.meta_path]
from murmurate.cli import main

main()
"""


def interval_of(line):
    return json.loads(line)["interval"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """An operator who has released two hours of measured prices, and exported them."""
    with an_operator(tmp_path_factory.mktemp("published")) as operator:
        operator.open(hours_ago=1)
        operator.run("murmurate export log.jsonl")
        first = interval_of(operator.lines("log.jsonl")[-1]) + 1
        operator.store_demand(first, first + 6)
        assert "1 of 1 zone up to date" in operator.run("murmurate release --slot 0.02")
        operator.run("murmurate export log.jsonl && murmurate export log.jsonl.gz")
        yield operator


def follow(operator, page):
    for line, succeeds in documented_commands(page):
        operator.run(line, status=0 if succeeds else 1)


def test_the_pages_on_publishing_and_verifying_run_as_written(tmp_path):
    with an_operator(tmp_path) as operator:
        follow(operator, "how-to/publish.md")
        operator.run("murmurate export log.jsonl")
        operator.write("operator.key", json.loads(operator.lines("log.jsonl")[-3])["key"])
        kinds = [json.loads(line).get("kind") for line in operator.lines("log.jsonl")]
        assert [kind for kind in kinds if kind in {"open", "plan", "key"}] == ["open", "plan", "key"]
        follow(operator, "how-to/verify.md")


def test_what_was_measured_is_published_and_holds(published):
    shown = published.run('murmurate verify log.jsonl log.jsonl.gz --key "$(cat operator.key)"')
    kinds = [json.loads(line).get("kind") for line in published.lines("log.jsonl")[1:]]
    assert kinds[:8] == ["open", *["measured"] * 7]
    assert set(kinds[8:]) == {"forecast"}
    for words in ("Everything holds.", "proven anew", "any 24 h: epsilon 3", "What no such check shows"):
        assert words in shown
    assert "trusted because it came first" not in shown
    assert gzip.decompress((published.folder / "log.jsonl.gz").read_bytes()).decode().splitlines() == published.lines(
        "log.jsonl"
    )


def test_releasing_again_changes_nothing(published):
    before = published.lines("log.jsonl")
    published.run("murmurate release --slot 0.02")
    published.run("murmurate export again.jsonl")
    assert published.lines("again.jsonl")[: len(before)] == before


def test_nothing_printed_or_published_holds_a_demand(published):
    everything = published.shown + (published.folder / "log.jsonl").read_text(encoding="utf-8")
    for form in (str(PAYING), f"{PAYING:x}", f"{PAYING:,}", repr(float(PAYING))):
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
    for name in ("log.jsonl", "log.jsonl.gz"):
        assert "Everything holds." in published.run(f"murmurate verify {website}/{name}")
    assert "Everything holds." in published.run("murmurate verify - < log.jsonl")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{website}/nothing.jsonl", "cannot be fetched (File not found)"),
        ("ftp://127.0.0.1/log.jsonl", "must be a file, - or an address that begins with http:// or https://"),
        ("file:///etc/hostname", "must be a file, - or an address"),
        ("nothing.jsonl", "No such file or directory: nothing.jsonl"),
        ("empty.jsonl", "there is no record to check"),
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
    shown = published.run(f"murmurate verify {source.format(website=website)}", status=2)
    assert says in shown
    assert len(shown.strip().splitlines()) == 1


def test_a_missing_plan_is_status_3_until_it_is_given(published):
    published.write("bare.jsonl", "\n".join(published.lines("log.jsonl")[1:]) + "\n")
    assert "was not given" in published.run("murmurate verify bare.jsonl", status=3)
    assert "Everything holds." in published.run("murmurate verify bare.jsonl --plan plan.json")


def test_a_changed_price_is_status_1_and_names_the_record(published):
    lines = published.lines("log.jsonl")
    lines[4] = re.sub(r'"price_ticks":(\d+)', r'"price_ticks":1\1', lines[4])
    published.write("changed.jsonl", "\n".join(lines) + "\n")
    shown = published.run("murmurate verify changed.jsonl", status=1)
    assert "harbour, record 3: signature" in shown
    assert "This log is not right." in shown


def second_value(published):
    """What a publisher that draws twice would have signed."""
    secret = bytes.fromhex((published.folder / "keys" / "signing-001.key").read_text().strip())
    body = json.loads(published.lines("log.jsonl")[4])
    del body["signature"]
    text = json.dumps(body | {"price_ticks": 1}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f'{text[:-1]},"signature":"{Ed25519Signer(secret).sign(text.encode())}"}}'


def test_two_values_print_and_write_a_proof_of_misbehaviour(published):
    published.write("shown-to-me.jsonl", second_value(published) + "\n")
    published.run("mkdir -p proofs")
    shown = published.run("murmurate verify log.jsonl shown-to-me.jsonl --out proofs", status=1)
    assert "Proof of misbehaviour" in shown
    proof = json.loads((published.folder / "proofs" / "misbehaviour-1.json").read_text(encoding="utf-8"))
    assert proof["lines"] == [published.lines("log.jsonl")[4], second_value(published)]
    for line in proof["lines"]:
        assert line in shown


def test_the_twenty_lines_in_the_reference_check_a_log_with_nothing_of_ours(published):
    text = (DOCS / "reference" / "public-log.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(snippet.splitlines()) <= 24
    assert "import murmurate" not in snippet
    published.write("check.py", snippet)
    count = len(published.lines("log.jsonl")) - 1
    assert f"harbour: {count} records hold" in published.run("python -I check.py log.jsonl")
    for wrong in ("changed.jsonl", "omitted.jsonl"):
        lines = published.lines("log.jsonl")
        published.write("omitted.jsonl", "\n".join(lines[:3] + lines[4:]))
        published.write("changed.jsonl", "\n".join([*lines[:-1], lines[-1].replace("EUR", "CHF")]))
        done = subprocess.run(
            [sys.executable, "check.py", wrong], cwd=published.folder, capture_output=True, check=False
        )
        assert done.returncode != 0


def test_every_member_of_a_record_is_in_the_reference(published):
    text = (DOCS / "reference" / "public-log.md").read_text(encoding="utf-8")
    for member in json.loads(published.lines("log.jsonl")[4]):
        assert f"`{member}`" in text, member


def test_without_the_service_the_log_can_be_verified_and_the_rest_says_what_is_missing(published):
    def bare(*arguments):
        return subprocess.run(
            [sys.executable, "-c", WITHOUT, *arguments],
            cwd=published.folder,
            env=published.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert "Everything holds." in bare("verify", "log.jsonl").stdout
    for command in (["keys", "k"], ["open", "plan.json"], ["release"], ["export", "x"], ["repair"], ["rotate"]):
        done = bare(*command)
        assert done.returncode == 2
        needs = "murmurate: the service needs more than is installed. Run: pip install 'psycopg[binary]'"
        assert done.stderr.strip() == needs


@pytest.mark.parametrize(
    ("command", "dsn"),
    [
        ("murmurate open plan.json", "postgresql://me:geheim@127.0.0.1:5499/x"),
        ("murmurate release", "host=127.0.0.1 port=5499 password=geheim"),
        ("murmurate change plan.json", "geheim geheim"),
        ("murmurate rotate", "postgresql://postgres:geheim@127.0.0.1:5432/nowhere"),
        ("murmurate export x.jsonl", "host=127.0.0.1 port=geheim"),
        ("murmurate repair", "postgresql://me:geheim@[127.0.0.1"),
        ("murmurate repair", ""),
    ],
)
def test_a_database_that_is_not_there_is_one_line_without_a_password(published, command, dsn):
    shown = published.run(command, status=2, MURMURATE_STATE=dsn, MURMURATE_LOG=dsn)
    assert "geheim" not in shown
    (line,) = shown.splitlines()
    assert line.startswith("murmurate: the ")
    assert "MURMURATE_" in line


def test_an_empty_database_says_how_to_prepare_it(tmp_path):
    with an_operator(tmp_path) as operator:
        operator.run("murmurate keys keys")
        for command in ("murmurate release", "murmurate rotate", "murmurate export x.jsonl"):
            assert "murmurate open plan.json prepares it" in operator.run(command, status=2)
        assert not (tmp_path / "x.jsonl").exists()


def test_opening_twice_is_opening_once_and_one_server_is_warned_about(published):
    before = published.lines("log.jsonl")
    shown = published.run("murmurate open plan.json --lead 7")
    assert "open already" in shown
    assert "Warning: state and log are on one server" in shown
    published.run("murmurate export again.jsonl")
    assert published.lines("again.jsonl")[: len(before)] == before


def test_keys_are_never_overwritten_and_only_their_owner_reads_them(published):
    assert "has keys already" in published.run("murmurate keys keys", status=2)
    assert {path.stat().st_mode & 0o777 for path in (published.folder / "keys").iterdir()} == {0o600}


def test_a_time_without_a_zone_or_off_the_grid_is_refused(published):
    for first in ("2026-05-01T00:00", "2026-05-01T00:01Z", "yesterday"):
        assert "--first" in published.run(f"murmurate open plan.json --first {first}", status=2)


def test_a_key_that_is_missing_blocks_the_zone_and_is_named(published):
    published.run("rm -rf others && murmurate keys others && mkdir -p lost && mv keys/signing-001.key lost/")
    try:
        published.run("cp others/signing-001.key keys/signing-001.key")
        dsn = published.dsn("log")
        with psycopg.connect(dsn) as log:
            (count,) = log.execute("SELECT count(*) FROM public_log.entry").fetchone()
        shown = published.run("murmurate rotate", status=1)
        assert "harbour: blocked" in shown
        assert "is not among this publisher's keys" in shown
        with psycopg.connect(dsn) as log:
            assert log.execute("SELECT count(*) FROM public_log.entry").fetchone() == (count,)
    finally:
        published.run("mv lost/signing-001.key keys/signing-001.key")


def test_zones_may_be_called_anything_and_are_exported_one_by_one(tmp_path):
    name = "Zürich, unter dem Berg"
    with an_operator(tmp_path) as operator:
        operator.open(hours_ago=1, name=name)
        operator.write("zone-2.toml", small_zone("b"))
        operator.run("murmurate plan zone-2.toml --out plan-2.json && murmurate open plan-2.json")
        assert "2 of 2 zones up to date" in operator.run("murmurate release --slot 0.02")
        operator.run(f"murmurate export --zone '{name}' one.jsonl && murmurate export all.jsonl")
        assert "Everything holds." in operator.run("murmurate verify one.jsonl")
        assert {json.loads(line)["zone"] for line in operator.lines("one.jsonl")} == {name}
        assert "Everything holds." in operator.run("murmurate verify all.jsonl")
        assert len(operator.lines("all.jsonl")) > len(operator.lines("one.jsonl"))
        assert "is empty" in operator.run("murmurate export --zone nowhere x.jsonl", status=2)
        assert not [path for path in tmp_path.iterdir() if path.name.endswith((".partial", "x.jsonl"))]


def test_a_change_that_breaks_windows_across_it_is_refused_and_a_safe_one_is_made(tmp_path):
    with an_operator(tmp_path) as operator:
        operator.open(hours_ago=1)
        operator.run("murmurate export log.jsonl")
        first = interval_of(operator.lines("log.jsonl")[-1]) + 1
        operator.store_demand(first, first + 20)
        operator.run("murmurate release --slot 0.02")
        operator.write("half.toml", small_zone(promise="any 12 h: epsilon 3"))
        operator.write("wider.toml", small_zone(promise="any 24 h: epsilon 4"))
        operator.run("murmurate plan half.toml --out half.json && murmurate plan wider.toml --out wider.json")
        refused = operator.run("murmurate change half.json", status=2)
        assert "must keep 'any 24 h: epsilon 3' across the change" in refused
        assert "from the next interval on" in operator.run("murmurate change wider.json")
        assert "already" in operator.run("murmurate change wider.json")
        operator.run("murmurate rotate && murmurate rotate && murmurate export log.jsonl")
        shown = operator.run("murmurate verify log.jsonl")
        assert "Keys were changed 2 times" in shown
        kinds = [json.loads(line).get("kind") for line in operator.lines("log.jsonl")]
        assert (kinds.count("plan"), kinds.count("key")) == (1, 2)
        digest = sha256(operator.lines("log.jsonl")[-2].encode()).hexdigest()
        assert json.loads(operator.lines("log.jsonl")[-1])["prev"] == digest
