"""docs/how-to/restore.md, followed word by word after real losses: no value changes, none is published twice."""

import json

from tests.support.operator_cli import PAYING, an_operator, documented_commands

PAGE = "how-to/restore.md"
CORRECTED = 271_828_182


def follow(operator, section, between=lambda _: None):
    """Type what a section of the runbook says; `between` happens after each command."""
    commands = documented_commands(PAGE, section)
    assert commands, section
    printed = []
    for line, succeeds in commands:
        printed.append(operator.run(line, status=0 if succeeds else 1))
        between(line)
    return printed


def entries(operator, name):
    return [line for line in operator.lines(name) if '"murmurate_plan"' not in line]


def kinds(lines):
    return [json.loads(line)["kind"] for line in lines]


def test_the_runbook_restores_every_loss(tmp_path):
    with an_operator(tmp_path) as operator:
        operator.open()
        first = json.loads(_export(operator, "begin.jsonl")[0])["interval"] + 1
        operator.store_demand(first, first + 40)
        operator.run("murmurate release --grace 4200 --slot 0.02")
        follow(operator, "Before")
        operator.run("murmurate release --grace 1800 --slot 0.02")
        before = _export(operator, "before.jsonl")
        assert kinds(before).count("measured") >= 15

        state_is_lost(operator, first)
        state_is_lost_without_a_backup(operator)
        log_has_lost_entries(operator)
        both_are_lost(operator)
        key_is_stolen(operator)

        assert _export(operator, "end.jsonl")[: len(before)] == before
        assert "Everything holds." in operator.run('murmurate verify end.jsonl --key "$(cat operator.key)"')
        for secret in (PAYING, CORRECTED):
            assert str(secret) not in operator.shown
            assert f"{secret:x}" not in operator.shown


def _export(operator, name):
    operator.run(f"murmurate export {name}")
    return entries(operator, name)


def state_is_lost(operator, first):
    """The demand is corrected in the meantime: a second draw would show the difference."""
    before = entries(operator, "before.jsonl")
    operator.lose("state")
    operator.create("state")

    def correct(line):
        if line.startswith("pg_restore"):
            operator.store_demand(first, first + 40, CORRECTED)

    follow(operator, "The state is lost, or old", correct)
    after = entries(operator, "after.jsonl")
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert set(kinds(after[1:])) == {"measured"}


def state_is_lost_without_a_backup(operator):
    before = _export(operator, "before.jsonl")
    operator.lose("state")
    operator.create("state")
    opened, _ = follow(operator, "The state is lost and there is no backup")
    assert "open already" in opened
    assert _export(operator, "after.jsonl")[: len(before)] == before


def log_has_lost_entries(operator):
    before = _export(operator, "before.jsonl")
    printed = follow(operator, "The log has lost entries", lambda _: None)
    assert "repair it first" in printed[1]
    assert "murmurate repair" in printed[1]
    assert "records restored" in printed[2]
    repaired = entries(operator, "repaired.jsonl")
    assert repaired[: len(before)] == before
    assert len(repaired) - len(before) <= 1  # an interval may have ended while we worked


def both_are_lost(operator):
    before = _export(operator, "copy.jsonl")
    for store in ("state", "log"):
        operator.run(f'pg_restore --clean --if-exists --dbname="$MURMURATE_{store.upper()}" {store}.dump')
    follow(operator, "Both are lost")
    assert _export(operator, "after.jsonl")[: len(before)] == before


def key_is_stolen(operator):
    follow(operator, "A key is stolen")
    assert kinds(_export(operator, "after.jsonl")).count("key") == 1


def test_a_log_that_was_set_back_and_written_to_is_not_repaired_but_shown(tmp_path):
    """The one loss that nothing repairs: another state published into the old log."""
    with an_operator(tmp_path) as operator:
        operator.open()
        first = json.loads(_export(operator, "begin.jsonl")[0])["interval"] + 1
        operator.store_demand(first, first + 40)
        for line, _ in documented_commands(PAGE, "Before"):
            operator.run(line)
        operator.run("murmurate release --grace 4200 --slot 0.02")
        ours = _export(operator, "ours.jsonl")
        operator.run('pg_restore --clean --if-exists --dbname="$MURMURATE_LOG" log.dump')
        seen, operator.names["state"] = operator.names["state"], f"{operator.names['state']}_other"
        operator.create("state")
        try:
            operator.run("murmurate open plan.json")
            operator.run("murmurate release --grace 4800 --slot 0.02")
            theirs = _export(operator, "theirs.jsonl")
        finally:
            operator.lose("state")
            operator.names["state"] = seen
        assert theirs[0] == ours[0]
        printed = operator.run("murmurate repair", status=1)
        assert ours[1] in printed
        assert theirs[1] in printed
        assert "two values" in printed
        assert _export(operator, "left.jsonl") == theirs
        convicted = operator.run("murmurate verify ours.jsonl theirs.jsonl", status=1)
        assert "Proof of misbehaviour" in convicted
        assert json.loads((tmp_path / "misbehaviour-1.json").read_text())["lines"] == [ours[1], theirs[1]]


def test_the_runbook_names_what_must_never_be_done():
    commands = [line for line, _ in documented_commands(PAGE)]
    for word in (
        "pg_dump",
        "pg_restore",
        "murmurate release",
        "murmurate repair",
        "murmurate open",
        "murmurate rotate",
    ):
        assert any(line.startswith(word) for line in commands), word
