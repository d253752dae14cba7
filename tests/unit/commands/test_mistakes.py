"""Mistakes of a newcomer that need no server: each message names cause and remedy, and the status is documented."""

import errno
import os
from email.message import Message
from urllib.error import HTTPError

import pytest
from tests.support.mistaken_files import write_mistaken_files
from tests.support.mistakes import Mistake, check_message, run_as_program, run_in_process

from murmurate.files import describe_os_error

HELP = "-h' for help"
NO_FILE = "is not there: check the name"
AS_UTF_8 = "must be saved as UTF-8"
NOWHERE = "postgresql://postgres@127.0.0.1:1/x"
INGEST = "--landing landing --meters meters.csv"

MISTAKES = [
    # the command line
    Mistake("murmurate plann", "No such command 'plann'", "Did you mean 'plan'"),
    Mistake("murmurate plan right.toml --ouy x", "No such option: --ouy", "--out"),
    Mistake("murmurate log verify", "Missing argument 'sources'", HELP),
    Mistake("murmurate habits day.parquet", "Missing option '--epsilon'", HELP),
    Mistake("murmurate audit plan.json --days ten", "'--days'", "valid integer"),
    Mistake("murmurate readings ingest late.csv", "Missing option '--landing'", HELP),
    # zone files
    Mistake("murmurate plan", "the zone file is missing", "murmurate plan --example > zone.toml"),
    Mistake("murmurate plan gone.toml", "gone.toml", NO_FILE),
    Mistake("murmurate plan folder", "is a directory", HELP),
    Mistake("murmurate plan utf16-right.toml", "utf16-right.toml is UTF-16", AS_UTF_8),
    Mistake("murmurate plan latin.toml", "latin.toml is not UTF-8", AS_UTF_8),
    Mistake("murmurate plan unquoted.toml", "unquoted.toml:1: 'name = harbour'", 'in quotes, as in name = "harbour"'),
    Mistake("murmurate plan curly.toml", "curly.toml:1:", 'write straight quotes, as in "harbour"'),
    Mistake("murmurate plan twice.toml", "twice.toml:2:", "it is there twice; delete one"),
    Mistake("murmurate plan yaml.toml", "yaml.toml:1: 'name: harbour'", "write an equals sign"),
    Mistake("murmurate plan comma.toml", "'interval_minutes = 0,25'", "write a decimal point"),
    Mistake("murmurate plan misspelt.toml", "key is 'curency'", "did you mean 'currency'?"),
    Mistake("murmurate plan quoted.toml", "count is '800'", "must be a whole number"),
    Mistake("murmurate plan slash.toml", "name is 'east/1'", "no slash or backslash"),
    Mistake("murmurate plan nowhere.toml", "'Zurich'", "must be a name such as Europe/Zurich"),
    Mistake("murmurate plan promise.toml", "promise is 'epsilon one'", 'must read like "interval: 0.5"'),
    Mistake("murmurate plan minutes.toml", "interval_minutes is 7", "must divide a day"),
    Mistake("murmurate plan empty.toml", "households is missing", "must be given in the top of the file"),
    Mistake("murmurate plan plan.json", "plan.json:1: '{' is not TOML", 'must be TOML, such as name = "harbour"'),
    Mistake("murmurate plan forecast.toml", "file is gone.json", "murmurate forecast writes one"),
    Mistake("murmurate plan right.toml --out gone/p.json", "there is no folder gone", "mkdir -p gone"),
    Mistake("murmurate plan right.toml --registry plan.json", "plan.json is there already", "name another file"),
    # plans
    Mistake("murmurate audit gone.json", "gone.json", NO_FILE),
    Mistake("murmurate audit cut.json", "cut.json is no JSON from line", "murmurate plan zone.toml --out plan.json"),
    Mistake("murmurate audit nothing", "nothing is empty", "must be a whole plan.json"),
    Mistake("murmurate audit list.json", "list.json is no plan", "must be a whole plan.json"),
    Mistake("murmurate audit edited.json", "edited.json: digest", "the file was changed"),
    Mistake("murmurate audit later.json", "a plan of format 7", "make it again with murmurate plan"),
    Mistake("murmurate audit utf16-plan.json", "utf16-plan.json is UTF-16", AS_UTF_8),
    Mistake("murmurate audit plan.json --out file/audit", "file/audit", "part of this path is a file; choose another"),
    # evaluate
    Mistake("murmurate evaluate --readings gone.csv", "'gone.csv' does not exist", HELP),
    Mistake("murmurate evaluate --readings day.parquet", "1 whole day long", "must cover 35 days"),
    Mistake("murmurate evaluate --readings letters.csv", "not a Parquet file", "murmurate readings import letters.csv"),
    Mistake(
        "murmurate evaluate --readings fake.parquet", "not a Parquet file", "murmurate readings import fake.parquet"
    ),
    Mistake(
        "murmurate evaluate --quick --weather letters.csv", "--weather is letters.csv", "must come with --readings"
    ),
    Mistake("murmurate evaluate --quick --sizes many", "sizes is 'many'", "for example 300,1000,10000"),
    Mistake("murmurate evaluate --quick --supply free", "supply is free", "must be linear or convex"),
    # forecasts and habits
    Mistake("murmurate forecast", "source is missing", "must be one of --h25 3500"),
    Mistake("murmurate forecast --history history.csv", "--households is missing", "--households 1000"),
    Mistake("murmurate forecast --history history.csv --households 9", "96 intervals (1.0 days)", "five weeks"),
    Mistake("murmurate forecast --history utf16-history.csv --households 9", "is UTF-16", AS_UTF_8),
    Mistake("murmurate forecast --history local.csv --households 9", "local.csv line 2", "must have an offset"),
    Mistake("murmurate forecast --history folder --households 9", "folder is a folder", "name a file in it"),
    Mistake("murmurate forecast --sample day.parquet", "epsilon is missing", "--epsilon 1"),
    Mistake("murmurate forecast --sample day.parquet --epsilon 1", "sample is 96 intervals", "7 days"),
    Mistake("murmurate forecast --h25 3500 --holidays holidays.txt", "holidays.txt line 1 is 25.12.2025", "2025-12-25"),
    Mistake(
        "murmurate forecast --log plan.json --zone harbour",
        "plan.json, which is no public log",
        "zones/<zone>/log.jsonl",
    ),
    Mistake("murmurate habits letters.csv --epsilon 1", "not a Parquet file", "murmurate readings import letters.csv"),
    Mistake("murmurate habits day.parquet --epsilon 1", "households is 3", "must be 162 or more"),
    # import, ingest, aggregate
    Mistake("murmurate readings import", "the file is missing", "murmurate readings import --example ."),
    Mistake(
        "murmurate readings import import.csv", "the offset of times from UTC is missing", "--timezone Europe/Zurich"
    ),
    Mistake(
        "murmurate readings import import.csv --timezone UTC --out short",
        "That is 0.0 days",
        "Import the weeks",
        status=0,
    ),
    Mistake("murmurate readings import letters.csv", "with the columns a, b, c", "--meter-column"),
    Mistake(
        "murmurate readings import import.csv --timezone UTC --zone a/b", "--zone is 'a/b'", "no slash or backslash"
    ),
    Mistake("murmurate readings ingest gone.csv --landing landing --meters meters.csv", "gone.csv", NO_FILE),
    Mistake(
        "murmurate readings ingest folder --landing landing --meters meters.csv",
        "folder is a folder",
        "name a file in it",
    ),
    Mistake(
        "murmurate readings ingest late.csv --landing folder --meters meters.csv",
        "folder is not a folder for readings",
        "murmurate init",
    ),
    Mistake("murmurate readings ingest late.csv --landing landing --meters gone.csv", "gone.csv", NO_FILE),
    Mistake("murmurate readings ingest late.csv --landing landing --meters utf16-meters.csv", "is UTF-16", AS_UTF_8),
    Mistake(
        "murmurate readings ingest late.csv --landing landing --meters semicolons.csv",
        "without meter",
        "separated by commas",
    ),
    Mistake(f"murmurate readings ingest letters.csv {INGEST}", "header is not of readings", "must have meter_id"),
    Mistake(f"murmurate readings ingest utf16-late.csv {INGEST}", "is UTF-16", AS_UTF_8),
    Mistake(
        f"murmurate readings ingest late.csv {INGEST}",
        "0 readings accepted, 1 late",
        "murmurate readings import",
        status=1,
    ),
    Mistake(
        f"murmurate readings ingest unknown.csv {INGEST}",
        "line 2: is not a meter",
        "or the meter table",
        status=1,
    ),
    Mistake("murmurate step aggregate --landing landing", "--out is missing", "--out demand.parquet, or --state"),
    Mistake("murmurate step aggregate --landing landing --out d.parquet", "--meters is missing", "--meters meters.csv"),
    Mistake(
        "murmurate step aggregate --landing landing --meters meters.csv --out d.parquet --interval today",
        "--interval is today",
        "a time such as 2026-05-01T00:00Z",
    ),
    Mistake(
        "murmurate step aggregate --landing landing --out d.parquet --engine dask",
        "--engine is dask",
        "process or spark",
    ),
    # folders, keys, logs
    Mistake("murmurate init new --minutes 7", "--minutes is 7", "must divide a day"),
    Mistake("murmurate init --minutes 30", "a landing for 900 s", "use another folder"),
    Mistake(
        "murmurate step aggregate --landing gone --out d.parquet", "gone is not a folder for readings", "murmurate init"
    ),
    Mistake("murmurate log verify gone.tar", "gone.tar", NO_FILE),
    Mistake(
        "murmurate log verify plan.json",
        "plan.json, which is no public log",
        "the whole log at the address of the service",
    ),
    Mistake("murmurate log verify folder", "log is not in folder", "murmurate log export log.tar writes a log"),
    Mistake("murmurate log verify file --key zz", "--key is zz", "must be 64 hexadecimal digits"),
    Mistake(
        "murmurate log verify http://127.0.0.1:1/",
        "Connection refused",
        "check the address, and whether the service runs",
    ),
    # connection strings
    Mistake("murmurate zone open plan.json", "the state database is not named", "set MURMURATE_STATE"),
    Mistake(
        "murmurate init --state harbour --log hill", "named by no connection string", "postgresql://role:password@host"
    ),
    Mistake(f"murmurate client list --state {NOWHERE}", "no PostgreSQL server answers", "start it (pg_isready"),
    Mistake(
        f"murmurate log export log.tar --log {NOWHERE}", "no PostgreSQL server answers", "or correct host and port"
    ),
    Mistake("murmurate keys rotate --state postgresql://me:a@b@127.0.0.1/x --log x", "host name", "%40 for @"),
    Mistake("murmurate client remove", "the name of the client is missing", "murmurate client remove head-end"),
    Mistake("murmurate client delete head-end", "action is delete", "must be add, grant, revoke, remove or list"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("newcomer")
    write_mistaken_files(made)
    return made


def test_there_are_sixty_of_them():
    assert len({mistake.line for mistake in MISTAKES}) == len(MISTAKES) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.line.removeprefix("murmurate "))
def test_a_mistake_is_named_with_its_remedy(mistake, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*.json"))
    check_message(mistake, run_in_process(mistake.line, monkeypatch))
    assert sorted(folder.rglob("*.json")) == before


@pytest.mark.slow
def test_the_installed_program_says_the_same(folder):
    (unquoted,) = (mistake for mistake in MISTAKES if "unquoted" in mistake.line)
    check_message(unquoted, run_as_program(unquoted.line, folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "murmurate plan mark-right.toml --out marked.json",
        "murmurate plan right.toml --noise-of mark-plan.json --out marked.json",
    ],
)
def test_a_byte_order_mark_is_no_mistake(line, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert run_in_process(line, monkeypatch).status == 0
    (folder / "marked.json").unlink()


def test_a_meter_table_and_readings_with_a_byte_order_mark_are_read(folder, monkeypatch):
    monkeypatch.chdir(folder)
    line = "murmurate readings ingest mark-late.csv --landing landing --meters mark-meters.csv"
    assert "1 late, 0 refused" in run_in_process(line, monkeypatch).stdout


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "may not be read or written by this user: change its rights"),
        (errno.ENOSPC, "the disk is full; delete something"),
        (errno.EROFS, "name another place"),
        (errno.EEXIST, "name another one, or delete it first"),
        (errno.ELOOP, "name another one"),
    ],
)
def test_what_the_system_refuses_gets_a_remedy(number, remedy):
    said = describe_os_error(OSError(number, os.strerror(number), "out/plan.json"))
    assert said.startswith("out/plan.json ")
    assert remedy in said


def test_an_answer_of_a_server_is_described_by_what_it_said():
    """An HTTPError is an OSError without a number; it was described as None."""
    error = HTTPError("https://log.example/zones", 404, "Not Found", Message(), None)
    said = describe_os_error(error)
    assert said == "https://log.example/zones cannot be used (HTTP Error 404: Not Found): name another one"
