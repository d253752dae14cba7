"""Fuzz every parser, and print executions and coverage of each. The exit code is 1 if a case was found.

Two processes share the targets. If one dies or hangs, the case that it was running is what was found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzzing.fuzz_loop import Fuzzer, FuzzTarget, check_case, resident_mb
from tests.fuzzing.targets import all_targets

_PROCESSES = 2
_HANG_S = 180.0  # beyond the time that a target has
_START_S = 180.0


def _print(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 this program prints counts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of all targets together, in two processes")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--only", action="append", help="only targets whose name contains this text; may be repeated")
    parser.add_argument("--found", type=Path, help="write each case that was found to this folder")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--case", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _work(options: argparse.Namespace) -> int:
    """Fuzz the targets of this process one after the other, and print each result as a line of JSON."""
    targets = all_targets()
    for name in json.loads(options.worker):
        target = targets[name]
        _print(json.dumps({"begins": name}))

        def needed_mb(data: bytes, target: FuzzTarget = target) -> float:
            return _memory_of(target, data)

        with options.case.open("r+b" if options.case.exists() else "w+b", buffering=0) as file:

            def before_case(data: bytes) -> None:
                file.seek(0)
                file.write(len(data).to_bytes(8, "little") + data)

            fuzzer = Fuzzer(target, options.seed, before_case=before_case, needed_mb=needed_mb)
            result = fuzzer.run(seconds=options.seconds)
        found = [[case.rule, case.detail, case.data.hex()] for case in result.found.values()]
        counts = {"executions": result.executions, "edges": result.edges, "kept": result.kept}
        _print(json.dumps({"ends": name, **counts, "found": found}))
    return 0


def _memory_of(target: FuzzTarget, data: bytes) -> float:
    """How much a case adds to the resident set of a new process [MB]."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        command = [sys.executable, "-m", "tests.fuzzing", "--memory-of", target.name, "--case", file.name]
        return float(subprocess.run(command, capture_output=True, check=True).stdout.split()[-1])


def _print_memory(options: argparse.Namespace) -> int:
    target, data = all_targets()[options.memory_of], options.case.read_bytes()
    for seed in target.seeds:
        check_case(target, seed)  # whatever is loaded at the first call
    before = resident_mb()
    check_case(target, data)
    _print(resident_mb() - before)
    return 0


@dataclass
class _Lane:
    """One process at a time, until its targets are done."""

    names: list[str]
    options: argparse.Namespace
    seconds: float
    folder: Path
    results: dict[str, dict] = field(default_factory=dict)

    def run(self) -> None:
        while left := [name for name in self.names if name not in self.results]:
            self._run_process(left)

    def _run_process(self, left: list[str]) -> None:
        case = self.folder / f"case-{left[0].replace(' ', '-')}"
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzzing", "--worker", json.dumps(left)]
        command += ["--seconds", str(self.seconds), "--seed", str(self.options.seed), "--case", str(case)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(len(left) * self.seconds + _HANG_S + _START_S, process.kill)
        timer.start()
        output, errors = process.communicate()
        timer.cancel()
        current = left[0]
        for line in map(json.loads, output.splitlines()):
            current = line.get("begins", current)
            if "ends" in line:
                self.results[line["ends"]] = line
        if process.returncode:
            if not case.exists() or current in self.results:
                raise RuntimeError(errors[-2000:])
            stored = case.read_bytes()
            data = stored[8 : 8 + int.from_bytes(stored[:8], "little")]
            detail = f"the process ended with {process.returncode}: {errors[-300:]}"
            self.results[current] = {"executions": 0, "edges": 0, "kept": 0, "found": [["crash", detail, data.hex()]]}


def main() -> int:
    options = _options()
    if options.worker:
        return _work(options)
    if options.memory_of:
        return _print_memory(options)
    begun = time.monotonic()
    names = [name for name in all_targets() if not options.only or any(text in name for text in options.only)]
    seconds = _PROCESSES * options.seconds / max(len(names), _PROCESSES)
    with tempfile.TemporaryDirectory() as folder:
        lanes = [_Lane(names[n::_PROCESSES], options, seconds, Path(folder)) for n in range(_PROCESSES)]
        threads = [threading.Thread(target=lane.run) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    results = {name: result for lane in lanes for name, result in lane.results.items()}
    _print(f"fuzzing, {time.monotonic() - begun:.0f} s, {seconds:.1f} s for each target")
    _print(f"  {'target':24} {'executions':>12} {'edges':>8} {'kept':>8} {'found':>8}")
    for name in names:
        result = results.get(name, {"executions": 0, "edges": 0, "kept": 0, "found": [["crash", "no result", ""]]})
        counts = [result["executions"], result["edges"], result["kept"], len(result["found"])]
        _print(f"  {name:24} {counts[0]:>12,} {counts[1]:>8,} {counts[2]:>8,} {counts[3]:>8,}")
        results[name] = result
    return _report_found(results, options.found)


def _report_found(results: dict[str, dict], folder: Path | None) -> int:
    count = 0
    for name, result in results.items():
        for rule, detail, case in result["found"]:
            count += 1
            data = bytes.fromhex(case)
            _print(f"  FOUND {name}: {rule}: {detail}\n        {data[:120]!r} ({len(data):,} bytes)")
            if folder is not None:
                path = folder / name.replace(" ", "-") / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
