"""Names of the small files that one writer appends to a shard, and of the file that merges them.

    <run>-00000000.parquet, <run>-00000001.parquet, ..   the parts of a run, in the order in which they were appended
    <run>-merged-00000002.parquet                        the readings of its first two parts, and of no other

A merged file replaces the parts that it holds: where both are in a folder, the merged file counts and the parts do not.
So a merged file may appear at any time, without a lock, and no part is deleted before its interval is closed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

_RUN_FILE = re.compile(r"([0-9a-f]{24})-(merged-)?([0-9]{8})\.parquet")


def new_run_name() -> str:
    return os.urandom(12).hex()


def part_name(run: str, number: int) -> str:
    """The name of a part of a run, numbered from 0.

    >>> part_name("00112233445566778899aabb", 7)
    '00112233445566778899aabb-00000007.parquet'
    """
    return f"{run}-{number:08d}.parquet"


def merged_name(run: str, parts: int) -> str:
    """The name of the file that holds the readings of the first `parts` parts of a run."""
    return f"{run}-merged-{parts:08d}.parquet"


def list_merged(names: Iterable[str]) -> list[tuple[str, int, str]]:
    """The merged files of a folder as (run, parts that each one replaces, name): those with the most parts first."""
    matches = (_RUN_FILE.fullmatch(name) for name in names if "-merged-" in name)
    return sorted(((match[1], int(match[3]), match[0]) for match in matches if match), key=lambda file: -file[1])


def is_replaced(name: str, merged_parts: Mapping[str, int]) -> bool:
    """Whether a merged file replaces this one. `merged_parts` says how many parts were merged, by run.

    A merged file of fewer parts is replaced by one of more parts.
    """
    if name[:24] not in merged_parts or (match := _RUN_FILE.fullmatch(name)) is None:
        return False
    return int(match[3]) < merged_parts[match[1]]
