"""The table of commands: help without what a command loads, an example for each, one word for help everywhere."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from murmurate.cli import COMMANDS, GROUPS, PANELS, app

LOADED = """
import sys
from murmurate.cli import main
sys.argv = ["murmurate", *sys.argv[1:]]
try:
    main()
finally:
    print({"numpy", "scipy", "psycopg", "pyarrow", "opendp", "matplotlib"} & set(sys.modules))
"""
WITHOUT_EXTRAS = """
import sys
from importlib.abc import MetaPathFinder
from typer.testing import CliRunner

class NoExtras(MetaPathFinder):
    def find_spec(self, name, *_):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, NoExtras())
from murmurate.cli import COMMANDS, app
print(*(name for name in COMMANDS if CliRunner().invoke(app, [*name.split(), "--help"]).exit_code), sep=",")
"""


def test_each_command_and_group_is_in_one_panel():
    assert sorted(name for names in PANELS.values() for name in names) == sorted(
        {name.partition(" ")[0] for name in COMMANDS}
    )
    assert {name.partition(" ")[0] for name in COMMANDS if " " in name} == GROUPS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_summary_and_an_example_of_itself(name):
    shown = CliRunner().invoke(app, [*name.split(), "-h"])
    assert shown.exit_code == 0
    words = " ".join(shown.output.split())
    assert f"Example: murmurate {name}" in words
    assert COMMANDS[name].help.split(". ")[0].split()[0] in words


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["zone", "-h"], ["--version"]])
def test_help_of_the_table_loads_no_command(arguments):
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.slow
def test_the_help_of_every_command_works_without_the_packages_of_extras():
    extras = ",".join({module for command in COMMANDS.values() for module in command.needs[1:]})
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS, extras], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
