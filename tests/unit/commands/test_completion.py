"""Shell completion, asked as bash, zsh and fish ask; and what `--help` costs beside a bare Typer app."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from murmurate.operations.options import complete_zone

COMMAND = Path(sysconfig.get_path("scripts")) / "murmurate"
BARE_APP = "import typer; app = typer.Typer(); app.command()(lambda: None); app()"
MAX_RATIO = 3.0


def ask(shell, line):
    """The words that a shell offers at the end of a line."""
    words = line.split(" ")
    asked = {"_MURMURATE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    asked |= {"_TYPER_COMPLETE_ARGS": line, "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([COMMAND], env=os.environ | asked, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_options_and_words_are_completed(shell):
    assert "prices" in ask(shell, "murmurate pri")
    assert "worker" in ask(shell, "murmurate serve --only w")


@pytest.mark.slow
def test_what_a_shell_installs_names_the_command():
    for shell in ("bash", "zsh", "fish"):
        asked = os.environ | {"_MURMURATE_COMPLETE": f"source_{shell}"}
        script = subprocess.run([COMMAND], env=asked, capture_output=True, text=True, check=True).stdout
        assert "_MURMURATE_COMPLETE=complete_" in script


def test_a_log_that_does_not_answer_offers_no_zone(monkeypatch):
    monkeypatch.delenv("MURMURATE_LOG", raising=False)
    assert complete_zone("") == []
    monkeypatch.setenv("MURMURATE_LOG", "postgresql://postgres@127.0.0.1:1/none")
    assert complete_zone("h") == []


def cpu_s(*command):
    before = os.times()
    subprocess.run(command, capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.slow
def test_help_takes_little_more_than_a_bare_typer_app():
    """CPU time of both, the lesser of two: other processes on the machine do not count."""
    bare = min(cpu_s(sys.executable, "-c", BARE_APP, "--help") for _ in range(2))
    ours = min(cpu_s(sys.executable, "-m", "murmurate", "--help") for _ in range(2))
    assert ours < MAX_RATIO * bare, (ours, bare)
