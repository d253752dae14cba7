"""Connection strings and passwords from files that a variable names: `MURMURATE_STATE_FILE` and its like."""

import pytest
import typer
from typer.testing import CliRunner

from murmurate.errors import MurmurateError
from murmurate.files import read_secret
from murmurate.operations.options import Log, State

DSN = "postgresql://worker:p%40ss@state/murmurate"


@pytest.mark.parametrize(("text", "secret"), [(DSN, DSN), (f"{DSN}\n", DSN), (f"{DSN}\r\n", DSN), (" a \n\n", " a \n")])
def test_a_secret_is_the_content_of_its_file_without_the_last_newline(tmp_path, text, secret):
    (tmp_path / "state").write_bytes(text.encode())
    assert read_secret("MURMURATE_STATE", {"MURMURATE_STATE_FILE": str(tmp_path / "state")}) == secret


def test_without_a_file_a_secret_is_its_variable():
    assert read_secret("MURMURATE_STATE", {"MURMURATE_STATE": DSN, "MURMURATE_STATE_FILE": ""}) == DSN
    assert read_secret("MURMURATE_STATE", {}) is None


def test_a_value_and_a_file_are_refused_without_showing_either(tmp_path):
    (tmp_path / "state").write_text("other")
    both = {"MURMURATE_STATE": DSN, "MURMURATE_STATE_FILE": str(tmp_path / "state")}
    with pytest.raises(MurmurateError) as refused:
        read_secret("MURMURATE_STATE", both)
    assert str(refused.value) == (
        "MURMURATE_STATE_FILE is set together with MURMURATE_STATE: set one of them, a file or a text"
    )


@pytest.fixture
def shown(monkeypatch):
    """A function that returns what a command with both options gets under these arguments and variables."""
    app = typer.Typer()

    @app.command()
    def show(state: State = "", log: Log = "") -> None:
        typer.echo(f"{state}|{log}", nl=False)

    for name in ("MURMURATE_STATE", "MURMURATE_LOG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments, **environment):
        return CliRunner().invoke(app, arguments, env=environment)

    return run


def test_a_command_takes_the_option_then_the_variable_or_the_file(shown, tmp_path):
    (tmp_path / "log").write_text("from a file\n")
    file = str(tmp_path / "log")
    assert shown(MURMURATE_STATE="s", MURMURATE_LOG_FILE=file).output == "s|from a file"
    assert shown("--log", "option", MURMURATE_LOG_FILE=file).output == "|option"
    assert shown("--log", "option", MURMURATE_LOG="l", MURMURATE_LOG_FILE=file).output == "|option"
    assert isinstance(shown(MURMURATE_LOG="l", MURMURATE_LOG_FILE=file).exception, MurmurateError)
    assert isinstance(shown(MURMURATE_LOG_FILE=f"{file}.none").exception, FileNotFoundError)
    assert shown().output == "|"
