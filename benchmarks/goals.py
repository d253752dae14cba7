"""Figures with their goals: a line each, in one form, with the word MISSED where a goal is missed.

one release each:                                             11.2 s  at most 20
"""

from __future__ import annotations

import argparse
from math import inf
from typing import Any


def read_options(doc: str | None, **defaults: Any) -> argparse.Namespace:
    """Read the command line of a benchmark: an option for each default. One that is False is a switch."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
        else:
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args()


class Goals:
    """Prints figures and remembers whether one of them missed its goal."""

    def __init__(self) -> None:
        self._missed = False

    def print_figure(
        self, what: str, figure: float, unit: str = "", *, at_most: float = inf, at_least: float = -inf
    ) -> None:
        """Print a figure, and its goal if it has one."""
        limits = {"at most": at_most, "at least": at_least}
        goal = ", ".join(f"{words} {_format(limit)}" for words, limit in limits.items() if abs(limit) < inf)
        self._print_line(what, f"{_format(figure)} {unit}".rstrip(), goal, held=at_least <= figure <= at_most)

    def check(self, what: str, found: str, *, held: bool) -> None:
        """Print what was found where only right and wrong exist."""
        self._print_line(what, found, "", held=held)

    def exit_status(self) -> int:
        """Return 1 where a goal was missed."""
        return int(self._missed)

    def _print_line(self, what: str, found: str, goal: str, *, held: bool) -> None:
        self._missed |= not held
        print(f"{what + ':':<58} {found:>14}  {goal}{'' if held else '  MISSED'}".rstrip(), flush=True)


def _format(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
