"""Work in several processes, with the same result for every number of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

TaskItem = TypeVar("TaskItem")
TaskResult = TypeVar("TaskResult")


def run_tasks(
    work: Callable[[TaskItem], TaskResult],
    items: Sequence[TaskItem],
    jobs: int,
    progress: Callable[[TaskItem], None] = lambda _: None,
) -> list[TaskResult]:
    """Return the result for each item, in their order. `jobs` is the number of processes, 0: one for each core.

    `progress` gets each item that is done.
    """
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(items))
    found: dict[int, TaskResult] = {}
    if jobs <= 1:
        for number, item in enumerate(items):
            found[number] = work(item)
            progress(item)
        return list(found.values())
    pool = ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        futures = {pool.submit(work, item): number for number, item in enumerate(items)}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            progress(items[futures[future]])
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return [found[number] for number in range(len(items))]
