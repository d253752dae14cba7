"""Third-party clients, each in its own environment, and the commands that they run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "clients"
OPENADR = "/openadr3/3.1.0"
LONGEST_S = 3600  # a day at the slowest speed, and what comes before and after it; its end is asked for
TOO_OLD = "no Python that is new enough here"


@dataclass(frozen=True)
class Environment:
    """A Python that has the packages, or the reason why there is none."""

    python: Path | None
    why: str = ""

    def ask(self, script: str, *words: str) -> dict:
        """What a client prints."""
        done = subprocess.run(self._command(script, words), capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    def listen(self, url: str) -> Listener:
        words = ("listen", url, str(LONGEST_S))
        process = subprocess.Popen(
            self._command("oa3_client.py", words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = process.stderr.readline()
        assert line == "listening\n", line + process.communicate()[1]
        return Listener(process)

    def _command(self, script: str, words: tuple[str, ...]) -> list[str]:
        assert self.python is not None, self.why
        return [str(self.python), str(SCRIPTS / script), *words]


@dataclass
class Listener:
    """A client that receives the notifications of the broker."""

    process: subprocess.Popen[str]

    def received(self) -> dict:
        """Stop the client. Return all that it received."""
        out, errors = self.process.communicate(timeout=300)  # closes its stdin
        assert self.process.returncode == 0, errors[-3000:]
        return json.loads(out)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def environment(variable: str, requirements: str | Path, interpreter: Path | None, cache: Path) -> Environment:
    """The interpreter that a variable names; else one that is made here, once."""
    named = os.environ.get(variable)
    if named:
        return Environment(Path(named))
    if interpreter is None:
        return Environment(None, TOO_OLD)
    wanted = SCRIPTS / requirements
    digest = hashlib.sha256(wanted.read_bytes() + str(interpreter.resolve()).encode()).hexdigest()
    home = cache / f"murmurate-clients-{digest[:12]}"
    if not home.exists():
        making = cache / f"{home.name}-{uuid.uuid4().hex}"
        try:
            _run(interpreter, "-m", "venv", making)
            _run(making / "bin" / "python", "-m", "pip", "install", "--quiet", "--requirement", wanted)
            making.rename(home)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(making, ignore_errors=True)
            if not home.exists():  # else another process was faster
                return Environment(None, f"{error}: {getattr(error, 'stderr', '')}")
    return Environment(home / "bin" / "python")


def newer_python(minor: int = 12) -> Path | None:
    """A Python 3.12 or what is asked for, or later: this one, by its name, from pyenv, or next to this one."""
    minors = range(minor, 20)
    named = [Path(found) for minor in minors if (found := shutil.which(f"python3.{minor}"))]
    homes = [Path(sys.base_prefix).parent]
    if shutil.which("pyenv"):
        homes.insert(0, Path(_run("pyenv", "root").strip()) / "versions")
    others = [found for home in homes for minor in minors for found in home.glob(f"3.{minor}.*/bin/python3")]
    candidates = [Path(sys.executable), *named, *others]
    return next((python for python in candidates if _is_new(python, minor)), None)


def _is_new(python: Path, minor: int) -> bool:
    """Whether it runs and is new enough: a name on the path may be a shim for a version that is not there."""
    question = f"import sys, venv; raise SystemExit(sys.version_info < (3, {minor}))"
    return subprocess.run([python, "-c", question], capture_output=True, check=False).returncode == 0


def _run(*command: object) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
