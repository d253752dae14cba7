"""Named places at which a publisher may die, and loud stores that report every word of an error.

The service itself prints the name of a failure only. Here everything that an exception says is written down, so that
the search for canaries sees what a careless operator's log would.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import psycopg

STEPS = ("lock", "read", "recall", "save", "beat", "append")
POINTS = (
    *(f"{side} {step}" for step in STEPS for side in ("before", "after")),
    "at the commit of save",
    "at the commit of append",
)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives SIGKILL")


@dataclass(slots=True)
class Fate:
    """Where this process dies: at the k-th visit of a named point, or nowhere."""

    point: str | None = None
    visit: int = 1
    step: str = ""
    visits: dict[str, int] = field(default_factory=dict)

    def pass_by(self, point: str) -> None:
        self.visits[point] = self.visits.get(point, 0) + 1
        if point == self.point and self.visits[point] >= self.visit:
            die()

    def around(self, step: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """The same act, with a place to die before and after it, and loud when it fails."""

        def acted(*arguments: Any) -> Any:
            self.step = step
            self.pass_by(f"before {step}")
            try:
                answer = act(*arguments)
            except Exception:
                traceback.print_exc()
                raise
            self.pass_by(f"after {step}")
            return answer

        return acted

    def watch_commits(self) -> None:
        """A place to die where everything was sent but the COMMIT: psycopg sends each by this one method."""
        send = psycopg.Connection._exec_command

        def sent(connection: psycopg.Connection, command: Any, *rest: Any) -> Generator[Any, Any, Any]:
            if command == b"COMMIT":
                self.pass_by(f"at the commit of {self.step}")
            return (yield from send(connection, command, *rest))

        psycopg.Connection._exec_command = sent


class Mortal:
    """A store or clock whose named acts are places to die."""

    def __init__(self, store: object, fate: Fate, *steps: str) -> None:
        self._store = store
        self._acts = {step: fate.around(step, getattr(store, step)) for step in steps}

    def __getattr__(self, name: str) -> Any:
        acts = self.__dict__.get("_acts", {})
        return acts[name] if name in acts else getattr(self.__dict__["_store"], name)
