"""`--json` of each command: one object on standard output, with the keys that docs/reference/json-output.md names."""

import calendar
import json
import re
import time

import numpy as np
import pytest

from murmurate.cli import COMMANDS
from tests.support.labeled_samples import write_labeled_sample
from tests.support.operator_cli import DOCS, PAYING, STEP_S, made_plan, operator, small_zone  # noqa: F401

PAGE = DOCS / "reference" / "json-output.md"


def documented_keys(command):
    """The keys in the first column of the table of a command."""
    text = PAGE.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {command}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    cells = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


@pytest.fixture
def run(operator):  # noqa: F811
    """Run a command. Returns the object that it prints; its keys must be those of the page."""

    def run_command(line, status=0):
        found = json.loads(operator.run(f"murmurate {line} --json 2> errors.txt", status=status))
        name = next(name for name in COMMANDS if f"{line} ".startswith(f"{name} "))
        assert found.keys() == documented_keys(name) or line.startswith(
            ("client list", "client remove", "client grant", "client revoke")
        )
        return found

    return run_command


def test_a_script_gets_what_the_page_names(operator, run):  # noqa: F811
    operator.write("zone.toml", small_zone())
    plan = run("plan zone.toml")
    assert plan["promises"][0]["promise"] == "any 24 h: epsilon 3"
    assert run("init")["public_key"]
    begin_s = operator.made_s // STEP_S * STEP_S - 3600
    begin = time.strftime("%FT%TZ", time.gmtime(begin_s))
    (opened,) = run(f"zone open plan.json --lead 60 --first {begin}")["zones"]
    assert (opened["zone"], opened["plan"], opened["state"]) == ("harbour", plan["digest"], "open")
    assert opened["first_measured"] == begin
    assert run("client add head-end --zone harbour")["client_secret"]
    assert "client_secret" not in json.dumps(run("client list"))
    assert run("client add boss --operator")["zones"] == []
    assert run("client grant boss --zone harbour")["zones"] == ["harbour"]
    assert run("client revoke boss --zone harbour")["zones"] == []
    assert "is not open" in operator.run("murmurate client grant boss --zone hill", status=2)
    assert run("client remove head-end")["removed"]
    operator.store_demand(begin_s // STEP_S, begin_s // STEP_S + 20)
    assert run("step release")["up_to_date"] == 1
    operator.write("less.toml", small_zone(promise="any 24 h: epsilon 2"))
    less = run("plan less.toml --out less.json")["digest"]
    changed = run("zone change less.json")
    assert changed["changed"] == ["harbour"]
    (promise,) = changed["promises"]
    assert (promise["zones"], promise["change"]) == (["harbour"], "stronger")
    assert (promise["before"], promise["after"]) == ("any 24 h: epsilon 3", "any 24 h: epsilon 2")
    every_stretch_s = calendar.timegm(time.strptime(promise["every_stretch_from"], "%Y-%m-%dT%H:%M:%SZ"))
    earliest_s = begin_s + 3600 + 86_400 - STEP_S  # a stretch that begins with the interval of now, or with a later one
    assert earliest_s <= every_stretch_s <= earliest_s + 10 * STEP_S
    assert every_stretch_s % STEP_S == 0
    changed = run("zone change less.json")
    assert (changed["plan"], changed["changed"], changed["unchanged"]) == (less, [], ["harbour"])
    rotated = run("keys rotate")
    assert (rotated["zones"], rotated["signed"]) == (1, 1)
    assert run("log export log.tar")["records"] >= 10
    verified = run("log verify log.tar")
    assert verified["valid"]
    assert rotated["public_key"] in (operator.folder / "log.tar").read_bytes().decode(errors="replace")
    assert verified["zones"]["harbour"]["kinds"]["measured"] >= 10
    assert run("log repair")["restored"] == 0
    assert run("prices log.tar --zone harbour --last 5")["verified"]
    assert run("status", status=1)["zone_list"][0]["kind"] == "measured"  # no client may send readings any more
    assert str(PAYING) not in operator.shown


def test_readings_and_their_sums(operator, run):  # noqa: F811
    operator.write("plan.json", made_plan(small_zone()))
    operator.write("meters.csv", "meter,zone,bound_wh,imputed_wh,id\n0,harbour,1000,150,home-17\n")
    operator.run("murmurate init --minutes 5")
    start = time.strftime("%FT%TZ", time.gmtime(time.time() // STEP_S * STEP_S - STEP_S))
    operator.write("readings.csv", f"meter_id,interval_start,energy_wh\nhome-17,{start},777\nhome-1,{start},5\n")
    grace = 100_000
    ingested = run(f"readings ingest readings.csv --landing landing --meters meters.csv --grace {grace}", status=1)
    (file,) = ingested["files"]
    assert (file["accepted"], file["late"], file["refused"]) == (1, 0, 1)
    assert file["refusals"][0]["line"] == 3
    summed = run(
        f"step aggregate --landing landing --meters meters.csv --out demand.parquet --interval {start} --grace 0"
        " --keep-days 30"
    )
    assert (summed["intervals"], summed["reported"], summed["expected"]) == ([start], 1, 1)
    assert "777" not in json.dumps(summed).replace(start, "")
    assert summed["purged"] == 0


def test_what_is_learned_from_a_history_and_from_a_sample(operator, run):  # noqa: F811
    hours = [f"{np.datetime64(1_736_121_600 + 3600 * n, 's')}Z,{100 + n % 24}" for n in range(24 * 36)]
    operator.write("history.csv", "\n".join(["start,kwh", *hours]))
    made = run("forecast --history history.csv --households 500 --interval-minutes 60")
    assert made["error"] < 0.1
    assert made["zone_lines"] == ["[forecast]", 'file = "forecast.json"']
    write_labeled_sample(operator.folder / "sample.parquet", households=500, days=7, seed=3)
    learned = run("habits sample.parquet --epsilon 20 --interval-minutes 60")
    assert (learned["households"], learned["spent"], learned["runs"]) == (500, "20", 1)
    assert [chance["from"] for chance in learned["chances"]] == ["06:00", "09:00", "16:00", "22:00"]


def test_every_command_with_a_result_has_json_and_its_section():
    sections = set(re.findall(r"^## ([a-z]+(?: [a-z]+)?)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert sections == COMMANDS.keys() - {"demo", "serve"}
    for name in sections:
        assert "as_json" in {each.name for each in COMMANDS[name].load().params}, name
