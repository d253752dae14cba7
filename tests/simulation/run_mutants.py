"""Mutation testing: plant one bug at a time and check that the simulator or the tests of the chain find it.

`python -m tests.simulation.run_mutants` fails when a mutant survives that is not in `equivalent_mutants.py`, and when
that file lists one that does not exist or is killed. Each mutant runs in a process of its own. With `--changed` only
those run whose file has changed since the run that docs/evidence.md records; all, if what should find them has changed.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from rich.console import Console
from tools.evidence import recorded_commit

from tests.simulation.ast_mutations import Mutant, full_name, systematic_mutants, unmutated
from tests.simulation.equivalent_mutants import EQUIVALENT_MUTANTS
from tests.simulation.seeded_bugs import seeded_mutants

ROOT = Path(__file__).parents[2]
EVIDENCE = "seeded bugs of the publisher"  # the row of docs/evidence.md

CHAIN_TESTS = tuple(
    f"tests/unit/{name}.py"
    for name in (
        "public_log/test_merkle",
        "public_log/test_tile_chain",
        "public_log/test_closed_zones",
        "public_log/test_zone_line",
        "publisher/test_desired_state",
        "publisher/test_predicted_tiles",
        "publisher/test_protocol",
        "publisher/test_tile_writer",
    )
)
LOADED_ONCE = (
    "murmurate.release",
    "murmurate.planning.release_terms",
    "cryptography.fernet",
    "hypothesis",
    "psycopg",
    "pyarrow",
    "pytest",
)
_PREDICTION = "murmurate.prediction."
SURVIVED = "survived"
FIRST_SEEDS = 40  # run before the tests of the chain, which find what no publisher does


class _TimeoutReachedError(BaseException):
    """The mutant used more CPU time than allowed."""


class _MutantImporter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the source of a mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = full_name(mutant.module)
        for name in [name for name in sys.modules if name == self._name or name.startswith(_PREDICTION)]:
            del sys.modules[name]  # modules of the prediction import names of each other
        self._source = mutant.source

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"mutant of {self._name}", "exec"), module.__dict__)  # noqa: S102


def try_mutant(mutant: Mutant, seeds: int, timeout_s: int) -> tuple[str, str, int]:
    """Return the mutant's name, what killed it, and the seed. Runs in a process that has not imported the publisher."""
    sys.meta_path.insert(0, _MutantImporter(mutant))
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, timeout_s)  # CPU time, so that a busy machine kills no mutant
    try:
        result, seed = _run_simulation(range(1, 1 + min(seeds, FIRST_SEEDS)))
        if result == SURVIVED:
            result = _run_chain_tests()
        if result == SURVIVED:
            result, seed = _run_simulation(range(1 + FIRST_SEEDS, 1 + seeds))
    except _TimeoutReachedError:
        return mutant.name, "timeout", 0
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return mutant.name, result, seed


def _stop(*_: object) -> None:
    raise _TimeoutReachedError


def _run_simulation(seeds: range) -> tuple[str, int]:
    try:
        run = importlib.import_module("tests.simulation.run")
    except Exception as error:  # noqa: BLE001 - a mutant may break anything
        return f"does not load: {type(error).__name__}", 0
    for seed in seeds:
        try:
            run.simulate(seed)
        except run.SimulationFailure as failure:
            return f"simulated: {failure.kind}", seed
        except Exception as error:  # noqa: BLE001
            return f"simulated: unexpected {type(error).__name__}", seed
    return SURVIVED, seeds.stop


def _run_chain_tests() -> str:
    pytest, hypothesis = importlib.import_module("pytest"), importlib.import_module("hypothesis")
    fast = hypothesis.settings(max_examples=40, phases=[hypothesis.Phase.generate], database=None, deadline=None)
    hypothesis.settings.register_profile("mutants", fast)  # what is found need not be made smaller
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:warnings", *CHAIN_TESTS])
    return SURVIVED if code == 0 else "tests of the chain"


def main() -> int:
    """Run every mutant and print what killed it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=800, help="maximum number of seeds for each mutant")
    parser.add_argument("--timeout", type=int, default=150, help="CPU seconds after which a mutant counts as killed")
    parser.add_argument("--kind", choices=("seeded", "systematic", "all"), default="all")
    parser.add_argument("--only", default="", help="run only the mutants whose name contains this text")
    parser.add_argument("--changed", action="store_true", help="run only mutants of files that have changed")
    parser.add_argument("--every", type=int, default=1, help="of the systematic mutants, run every n-th")
    options = parser.parse_args()
    console = Console(soft_wrap=True)
    seeded = [] if options.kind == "systematic" else list(seeded_mutants())
    systematic = [] if options.kind == "seeded" else list(systematic_mutants())
    mutants = [*seeded, *systematic[:: options.every]]
    mutants = [mutant for mutant in mutants if options.only in mutant.name]
    if options.changed:
        mutants = _mutants_of_changed_files(mutants, console)
    if not mutants:
        return 0 if options.changed else 1  # 1: none has such a name
    for name in LOADED_ONCE:  # shared by all processes; must not import the publisher
        importlib.import_module(name)
    if [result for _, result, _ in _try_all([unmutated()], options)] != [SURVIVED]:
        console.print("The publisher without a bug is killed: repair it, or the simulator, first.", style="bold red")
        return 1
    is_whole = bool(systematic) and options.every == 1 and not options.only
    started = time.monotonic()
    results: dict[str, str] = {}
    for number, (name, result, seed) in enumerate(_try_all(mutants, options), 1):
        results[name] = result
        progress_text = f"{number:4d}/{len(mutants)}  {result} (seed {seed})  {name}"
        console.print(
            progress_text,
            style="bold red" if result == SURVIVED and name not in EQUIVALENT_MUTANTS else "",
            markup=False,
        )
    return _print_result(console, results, time.monotonic() - started, whole=is_whole)


def _mutants_of_changed_files(mutants: list[Mutant], console: Console) -> list[Mutant]:
    commit = recorded_commit(ROOT, EVIDENCE)
    command = ["git", "diff", "--name-only", f"{commit}", "--", "src/murmurate", "tests/simulation", *CHAIN_TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not commit or done.returncode or "tests/" in done.stdout:
        console.print(f"all {len(mutants)}: no complete run with these tests is recorded")
        return mutants
    changed = [mutant for mutant in mutants if f"{full_name(mutant.module).replace('.', '/')}.py" in done.stdout]
    console.print(f"{len(changed)} of {len(mutants)}: the files of the others are those of {commit}")
    return changed


def _try_all(mutants: list[Mutant], options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    tasks = [(mutant, options.seeds, options.timeout) for mutant in mutants]
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_try_one, tasks)


def _try_one(task: tuple[Mutant, int, int]) -> tuple[str, str, int]:
    return try_mutant(*task)


def _print_result(console: Console, results: dict[str, str], seconds: float, *, whole: bool) -> int:
    survived = {name for name, result in results.items() if result == SURVIVED}
    stale = {name for name in EQUIVALENT_MUTANTS if whole and name not in survived}
    for result, count in Counter(results.values()).most_common():
        console.print(f"{count:5d}  {result}", markup=False)
    for name in sorted(survived & EQUIVALENT_MUTANTS.keys()):
        console.print(f"argued: {name}\n        {EQUIVALENT_MUTANTS[name]}", markup=False)
    for name in sorted(stale):
        console.print(f"in equivalent_mutants.py, but killed or not found: {name}", style="bold red", markup=False)
    for name in sorted(survived - EQUIVALENT_MUTANTS.keys()):
        console.print(f"SURVIVED: {name}", style="bold red", markup=False)
    console.print(
        f"{len(results)} mutants, {len(results) - len(survived)} killed, {len(survived)} survived, "
        f"{len(survived & EQUIVALENT_MUTANTS.keys())} of them argued, {seconds:.0f} s"
    )
    return 1 if stale or survived - EQUIVALENT_MUTANTS.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
