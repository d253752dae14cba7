"""Named points at which a publisher can be killed, and stores that print every error in full.

The service itself logs only the type of a failure. Here the whole exception is printed, so that the search for canaries
also covers a verbose log.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import psycopg

STEPS = ("lock", "read", "claim", "load_demand", "save", "wait_for_slot", "append")
POINTS = (
    *(f"{side} {step}" for step in STEPS for side in ("before", "after")),
    "at the commit of save",
    "at the commit of append",
)


def kill_self() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL did not end the process")


@dataclass(slots=True)
class KillPoint:
    """Kills this process at the k-th visit of a named point, or never."""

    point: str | None = None
    visit: int = 1
    step: str = ""
    visits: dict[str, int] = field(default_factory=dict)

    def reach(self, point: str) -> None:
        self.visits[point] = self.visits.get(point, 0) + 1
        if point == self.point and self.visits[point] >= self.visit:
            kill_self()

    def wrap_step(self, step: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a step with a kill point before and after it. The wrapper prints every error."""

        def wrapped(*arguments: Any) -> Any:
            self.step = step
            self.reach(f"before {step}")
            try:
                result = act(*arguments)
            except Exception:
                traceback.print_exc()
                raise
            self.reach(f"after {step}")
            return result

        return wrapped

    def watch_commits(self) -> None:
        """Add a kill point just before each COMMIT. psycopg sends every COMMIT by this one method."""
        send = psycopg.Connection._exec_command

        def exec_command(connection: psycopg.Connection, command: Any, *rest: Any) -> Generator[Any, Any, Any]:
            if command == b"COMMIT":
                self.reach(f"at the commit of {self.step}")
            return (yield from send(connection, command, *rest))

        psycopg.Connection._exec_command = exec_command


class WithKillPoints:
    """A store or clock with kill points around its named methods."""

    def __init__(self, store: object, kill_point: KillPoint, *steps: str) -> None:
        self._store = store
        self._steps = {step: kill_point.wrap_step(step, getattr(store, step)) for step in steps}

    def __getattr__(self, name: str) -> Any:
        steps = self.__dict__.get("_steps", {})
        return steps[name] if name in steps else getattr(self.__dict__["_store"], name)
