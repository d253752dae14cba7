"""Every parser that reads what a client, a meter, another publisher or an operator wrote."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzzing.api_targets import api_targets
from tests.fuzzing.file_targets import file_targets
from tests.fuzzing.fuzz_target import FuzzTarget
from tests.fuzzing.log_targets import log_targets
from tests.fuzzing.reading_targets import reading_targets

MAKERS: dict[str, Callable[[], list[FuzzTarget]]] = {
    "readings": reading_targets,
    "apis": api_targets,
    "logs": log_targets,
    "files": file_targets,
}


def all_targets() -> dict[str, FuzzTarget]:
    """The targets by name."""
    return {target.name: target for make in MAKERS.values() for target in make()}
