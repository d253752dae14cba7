"""Packages that only some users need, and the one message where such a package is missing."""

from __future__ import annotations

from importlib.util import find_spec

from murmurate.errors import MissingExtraError


def require_extra(extra: str, *modules: str) -> None:
    """Raise MissingExtraError with the command to run, unless each of these modules is installed.

    >>> require_extra("lab", "math", "no_such_module")
    Traceback (most recent call last):
    murmurate.errors.MissingExtraError: no_such_module is not installed: run pip install "murmurate[lab]"
    """
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(module, "not installed", f'run pip install "murmurate[{extra}]"')
