"""Fuzz every parser with atheris (libFuzzer), and print the cases and the coverage of each. Status 1: a case was found.

The product is loaded once, instrumented. Each target then has a process of its own, two at a time, with bounds on time
and memory. A case that seems slow or large counts only if it is so again in a new process, without instrumentation.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

from tests.fuzzing.fuzz_target import MAX_CASE_S, FuzzTarget, check_case, describe_error

_PROCESSES = 2
_HANG_S = 120  # of one case; longer than any that is slow
_MAX_RESIDENT_MB = 3000  # of a process; the largest target may add 1024
_MAX_WORD_BYTES = 64  # longer words cannot be in a dictionary of libFuzzer
_EDGES = [2**power + step for power in (7, 8, 15, 16, 31, 32, 53, 62, 63, 64) for step in (-1, 0, 1)]
_NUMBERS = [str(number).encode() for number in (*_EDGES, -1, 0, 1, 253402300799, 253402300800, int("9" * 40))]
_NUMBERS += [b"00", b"1.5", b"-0.0", b"1e9", b"1e308", b"1e-400", b"1e999999999", b"NaN", b"-Infinity", b"0x10"]
_NUMBERS += [b"1_000", "٣".encode()]


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201  this program prints counts


def _fuzz(name: str, options: argparse.Namespace, seconds: int, folder: Path) -> None:
    """Fuzz one target. This process ends in libFuzzer: with 0, or with another status if a case ends it or hangs."""
    import atheris  # noqa: PLC0415  only on Linux, and not on the newest Python

    tempfile.tempdir = str(folder)  # libFuzzer ends this process without cleaning up; the folder is removed afterwards
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    target = _load_targets(options.targets)[name]
    (folder / "corpus").mkdir()
    long_words = [word for word in target.words if len(word) > _MAX_WORD_BYTES]
    for number, seed in enumerate([*target.seeds, *target.stored_cases(), *long_words]):
        (folder / "corpus" / str(number)).write_bytes(seed)
    known: set[str] = set()
    words = [word for word in (*target.words, *_NUMBERS) if 0 < len(word) <= _MAX_WORD_BYTES]
    lines = ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in words]
    (folder / "words").write_text("".join(lines), encoding="ascii")

    def test_one_input(data: bytes) -> None:
        begun_mb, begun_s, why = _peak_mb(), time.process_time(), ""
        try:
            target.parse(data)
        except target.errors:
            pass
        except Exception as error:  # noqa: BLE001  any other error is what is searched for
            why = describe_error(error)
        costly = time.process_time() - begun_s > MAX_CASE_S or _peak_mb() - begun_mb > target.max_mb
        if costly and not known & {"slow", "large"}:
            (folder / "costly").write_bytes(data)
            command = [sys.executable, "-m", "tests.fuzzing", "--targets", options.targets]
            command += ["--replay", name, str(folder / "costly")]
            why = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        place = why.partition(": ")[0]  # one case for each line at which the parser fails
        if why and place not in known:
            known.add(place)
            (folder / f"found-{len(known)}").write_bytes(data)
            (folder / f"why-{len(known)}").write_text(why, encoding="utf-8")

    limits = [
        f"-runs={options.cases}",
        f"-max_total_time={seconds}",
        f"-timeout={_HANG_S}",
        f"-rss_limit_mb={_MAX_RESIDENT_MB}",
    ]
    places = [f"-dict={folder / 'words'}", f"-artifact_prefix={folder}/found-", str(folder / "corpus")]
    atheris.Setup([name, *limits, f"-seed={options.seed}", "-print_final_stats=1", *places], test_one_input)
    atheris.Fuzz()


def _peak_mb() -> float:
    """The largest resident set so far, at the price of one system call."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _load_targets(module: str) -> dict[str, FuzzTarget]:
    targets: dict[str, FuzzTarget] = importlib.import_module(module).all_targets()
    return targets


def _run_all(options: argparse.Namespace, names: list[str], seconds: int, work: Path) -> None:
    """Run the targets, two processes at a time. One that outlives its time is killed, and is found."""
    fork = multiprocessing.get_context("fork")  # the product is loaded already, and instrumented
    waiting, running = list(names), {}
    while waiting or running:
        while waiting and len(running) < _PROCESSES:
            name = waiting.pop(0)
            (work / name).mkdir()
            process = fork.Process(name=name, target=_fuzz, args=(name, options, seconds, work / name))
            process.start()
            running[process] = time.monotonic() + seconds + 2 * _HANG_S
        for process, deadline in list(running.items()):
            process.join(0.2)
            if process.is_alive() and time.monotonic() > deadline:
                process.kill()
            elif not process.is_alive():
                (work / process.name / "status").write_text(str(process.exitcode), encoding="ascii")
                del running[process]


def _found_cases(folder: Path, log: str) -> Iterator[tuple[str, bytes]]:
    """What a target has found: why, and the case. The last one is that with which its process has ended."""
    for path in sorted(folder.glob("why-*")):
        yield path.read_text(encoding="utf-8"), path.with_name(path.name.replace("why", "found")).read_bytes()
    status = (folder / "status").read_text(encoding="ascii")
    if status != "0" or "stat::number_of_executed_units" not in log:
        cases = sorted([*folder.glob("found-crash*"), *folder.glob("found-timeout*"), *folder.glob("found-oom*")])
        why = re.search(r"ERROR: (libFuzzer: .*)", log)
        yield why[1] if why else f"status {status}: {log[-1000:]}", cases[0].read_bytes() if cases else b""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of all targets together, in two processes")
    parser.add_argument("--cases", type=int, default=-1, help="of each target, at most")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--only", action="append", help="only targets whose name contains this text; may be repeated")
    parser.add_argument("--found", type=Path, help="write each case that was found to this folder")
    parser.add_argument("--targets", default="tests.fuzzing.targets", help=argparse.SUPPRESS)
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"), help="run one case without atheris")
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.replay:
        name, file = options.replay
        target = _load_targets(options.targets)[name]
        for seed in target.seeds:
            check_case(target, seed)  # whatever is loaded at the first call
        _print(check_case(target, Path(file).read_bytes()) or "")
        return 0
    import atheris  # noqa: PLC0415

    begun = time.monotonic()
    with redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["murmurate", options.targets]):
        names = [name for name in _load_targets(options.targets) if any(text in name for text in options.only or [""])]
    seconds = max(1, round(_PROCESSES * options.seconds / max(len(names), _PROCESSES)))
    all_cases = all_found = 0
    memory = Path("/dev/shm")  # noqa: S108  a file for each case of some targets: fast, and no disk is worn
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as work:
        _run_all(options, names, seconds, Path(work))
        _print(f"  {'target':24} {'cases':>12} {'edges':>8} {'found':>8}")
        for name in names:
            log = (Path(work) / name / "log").read_text(encoding="utf-8", errors="replace")
            cases = re.search(r"stat::number_of_executed_units: (\d+)", log)
            edges = re.findall(r" cov: (\d+) ", log)
            found = list(_found_cases(Path(work) / name, log))
            counts = int(cases[1]) if cases else 0, int(edges[-1]) if edges else 0, len(found)
            all_cases, all_found = all_cases + counts[0], all_found + len(found)
            _print(f"  {name:24} {counts[0]:>12,} {counts[1]:>8,} {counts[2]:>8}")
            for why, data in found:
                _print(f"  FOUND {name}: {why}\n        {data[:120]!r} ({len(data):,} bytes)")
                if options.found:
                    path = options.found / name.replace(" ", "-") / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
    spent_s = time.monotonic() - begun
    _print(f"{len(names)} targets, {seconds} s each, {all_cases:,} cases, {all_found} found, {spent_s:.0f} s in all")
    return 1 if all_found else 0


if __name__ == "__main__":
    sys.exit(main())
