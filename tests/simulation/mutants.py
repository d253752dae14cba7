"""Do the simulator and the tests of the chain see bugs? Plant one at a time and wait for somebody to notice.

`python -m tests.simulation.mutants` fails when a mutant survives that `survivors.py` does not argue for, or when it
argues for one that does not exist or does not survive. Each mutant is tried in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import io
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec
from types import ModuleType

from rich.console import Console

from tests.simulation.mutation import Mutant, full_name, original, systematic
from tests.simulation.seeded import seeded
from tests.simulation.survivors import SURVIVORS

CHAIN_TESTS = ("tests/publication/test_chain.py", "tests/publication/test_desk.py")
LOADED_ONCE = ("murmurate.curator.interval", "murmurate.curator.terms", "cryptography.fernet", "hypothesis", "pytest")
ALIVE = "survived"


class _TooLongError(BaseException):
    """The mutant runs in circles."""


class _Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the source of a mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = full_name(mutant.module)
        sys.modules.pop(self._name, None)
        self._source = mutant.source

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"mutant of {self._name}", "exec"), module.__dict__)  # noqa: S102


def trial(mutant: Mutant, seeds: int, patience_s: int) -> tuple[str, str, int]:
    """The mutant, what killed it, and after how many seeds. Called in a process that has not loaded the publisher."""
    sys.meta_path.insert(0, _Planted(mutant))
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, patience_s)  # of its own work: a busy machine kills no mutant
    try:
        death, seed = _simulated(seeds)
        if death == ALIVE:
            death = _tested()
    except _TooLongError:
        return mutant.name, "ran in circles", 0
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return mutant.name, death, seed


def _stop(*_: object) -> None:
    raise _TooLongError


def _simulated(seeds: int) -> tuple[str, int]:
    try:
        run = importlib.import_module("tests.simulation.run")
    except Exception as error:  # noqa: BLE001 - a mutant may break anything
        return f"does not load: {type(error).__name__}", 0
    for seed in range(1, seeds + 1):
        try:
            run.simulate(seed)
        except run.Failure as failure:
            return f"simulated: {failure.kind}", seed
        except Exception as error:  # noqa: BLE001
            return f"simulated: unforeseen {type(error).__name__}", seed
    return ALIVE, seeds


def _tested() -> str:
    pytest = importlib.import_module("pytest")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:warnings", *CHAIN_TESTS])
    return ALIVE if code == 0 else "tests of the chain"


def main() -> int:
    """Try every mutant and print how it died."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=800, help="tried on each mutant at most")
    parser.add_argument(
        "--patience", type=int, default=60, help="seconds of work after which a mutant counts as circling"
    )
    parser.add_argument("--only", default="", help="mutants whose name holds this text")
    asked = parser.parse_args()
    console = Console(soft_wrap=True)
    for name in LOADED_ONCE:  # and not in each process anew; the publisher itself must not be among them
        importlib.import_module(name)
    if [death for _, death, _ in _tried([original()], asked)] != [ALIVE]:
        console.print("The publisher itself does not survive: mend it, or the simulator, first.", style="bold red")
        return 1
    planted = [mutant for mutant in (*seeded(), *systematic()) if asked.only in mutant.name]
    began = time.monotonic()
    deaths: dict[str, str] = {}
    for number, (name, death, seed) in enumerate(_tried(planted, asked), 1):
        deaths[name] = death
        told = f"{number:4d}/{len(planted)}  {death} (seed {seed})  {name}"
        console.print(told, style="bold red" if death == ALIVE and name not in SURVIVORS else "", markup=False)
    return _verdict(console, deaths, time.monotonic() - began, whole=not asked.only)


def _tried(planted: list[Mutant], asked: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    tasks = [(mutant, asked.seeds, asked.patience) for mutant in planted]
    with multiprocessing.get_context("fork").Pool(asked.jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_trial, tasks)


def _trial(task: tuple[Mutant, int, int]) -> tuple[str, str, int]:
    return trial(*task)


def _verdict(console: Console, deaths: dict[str, str], seconds: float, *, whole: bool) -> int:
    alive = {name for name, death in deaths.items() if death == ALIVE}
    stale = {name for name in SURVIVORS if whole and name not in alive}
    for death, count in Counter(deaths.values()).most_common():
        console.print(f"{count:5d}  {death}", markup=False)
    for name in sorted(alive & SURVIVORS.keys()):
        console.print(f"argued: {name}\n        {SURVIVORS[name]}", markup=False)
    for name in sorted(stale):
        console.print(f"argued for, but dead or gone: {name}", style="bold red", markup=False)
    for name in sorted(alive - SURVIVORS.keys()):
        console.print(f"SURVIVED: {name}", style="bold red", markup=False)
    console.print(
        f"{len(deaths)} mutants, {len(deaths) - len(alive)} killed, {len(alive)} survived, "
        f"{len(alive & SURVIVORS.keys())} of them argued, {seconds:.0f} s"
    )
    return 1 if stale or alive - SURVIVORS.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
