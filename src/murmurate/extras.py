"""Optional packages: whether they are installed, and the command that installs them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from murmurate.errors import MissingExtraError


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where this package came: an index, or a copy of the repository."""
    place = Path(__file__).parents[1]
    if (place.parent / "pyproject.toml").is_file():  # it runs from the copy
        return f'pip install --editable "{place.parent}[{extra}]"'
    for written in place.glob("murmurate-*.dist-info/direct_url.json"):
        origin = json.loads(written.read_text(encoding="utf-8"))
        folder = Path(unquote(urlsplit(origin["url"]).path))
        if "dir_info" in origin and folder.is_dir():
            return f'pip install "{folder}[{extra}]"'
    return f'pip install "murmurate[{extra}]"'


def require_extra(extra: str, *modules: str) -> None:
    """Raise MissingExtraError with the command to run, unless each of these modules is installed.

    >>> require_extra("lab", "math", "no_such_module")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    murmurate.errors.MissingExtraError: no_such_module is not installed: run pip install ...[lab]"
    """
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(module, "not installed", f"run {install_command(extra)}")
