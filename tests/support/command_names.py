"""The commands of the command line, those of its groups with the name of the group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def leaf_commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each command that does something, with its name as a person types it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaf_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command
