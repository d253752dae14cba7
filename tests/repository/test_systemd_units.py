"""deploy/systemd: units that systemd accepts, that may do little on the machine, and that agree with each other."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.repository.repository_files import ROOT

FOLDER = ROOT / "deploy" / "systemd"
PROCESSES = ("private", "worker", "public")
MAX_EXPOSURE = 2.0
SANDBOX = "# What it may do on this machine"
PROGRAM = "/opt/murmurate/bin/murmurate"


def unit_text(process):
    return (FOLDER / f"murmurate-{process}.service").read_text(encoding="utf-8")


def analyze(folder, process, text, command):
    """What systemd-analyze prints about a unit, whose program is one that exists here, and its exit status."""
    path = folder / f"murmurate-{process}.service"
    path.write_text(text.replace(PROGRAM, "/bin/true"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", *command, path], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode


def exposure(folder, process, text):
    """How much of the machine a unit may reach, from 0 to 10, and whether it is below the limit."""
    command = ["security", "--offline=true", f"--threshold={MAX_EXPOSURE * 10:.0f}", "--no-pager"]
    printed, status = analyze(folder, process, text, command)
    (score,) = re.findall(r"exposure level for \S+: ([\d.]+)", printed)
    return float(score), status == 0


@pytest.mark.systemd
@pytest.mark.slow
@pytest.mark.parametrize("process", PROCESSES)
def test_systemd_accepts_a_unit_and_finds_a_key_that_it_does_not_know(process, tmp_path):
    text = unit_text(process)
    assert f"serve /etc/murmurate/service.toml --only {process}\n" in text
    assert analyze(tmp_path, process, text, ["verify"]) == ("", 0)
    misspelled = text.replace("MemoryDenyWriteExecute", "MemoryDenyWriteExec")
    assert "'MemoryDenyWriteExec'" in analyze(tmp_path, process, misspelled, ["verify"])[0]


@pytest.mark.systemd
@pytest.mark.slow
@pytest.mark.parametrize("process", PROCESSES)
def test_a_unit_may_do_little_on_the_machine_and_more_without_its_lines(process, tmp_path, capsys):
    text = unit_text(process)
    score, is_low = exposure(tmp_path, process, text)
    with capsys.disabled():
        print(f"\nmurmurate-{process}.service: exposure {score} of at most {MAX_EXPOSURE}", end=" ")  # noqa: T201
    assert is_low
    assert score <= MAX_EXPOSURE
    for line in (
        "CapabilityBoundingSet=\n",
        "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n",
    ):
        assert line in text
        assert exposure(tmp_path, process, text.replace(line, ""))[1] is False
    without, _ = exposure(tmp_path, process, text.replace("MemoryDenyWriteExecute=yes\n", ""))
    assert without > score


def test_the_units_have_the_same_sandbox_and_each_its_own_user():
    """So a line that one of them loses is found, whatever it weighs."""
    sandboxes = {unit_text(process).partition(SANDBOX)[2] for process in PROCESSES}
    assert len(sandboxes) == 1
    assert "MemoryDenyWriteExecute=yes" in sandboxes.pop()
    users = [re.findall(r"^User=(.*)$", unit_text(process), flags=re.MULTILINE) for process in PROCESSES]
    assert users == [[f"murmurate-{process}"] for process in PROCESSES]
    made = re.findall(r"^u (\S+)", (FOLDER / "sysusers.conf").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert made == [name for names in users for name in names]


def test_only_the_worker_gets_keys_and_the_public_process_nothing_of_the_state():
    loaded = {
        process: re.findall(r"^LoadCredential=(\w+):", unit_text(process), flags=re.MULTILINE) for process in PROCESSES
    }
    assert loaded == {"private": ["state", "log"], "worker": ["state", "log", "keys"], "public": ["log"]}
    assert "STATE" not in unit_text("public")


def test_the_folders_that_the_units_need_are_made():
    made = re.findall(r"^d (\S+)", (FOLDER / "tmpfiles.conf").read_text(encoding="utf-8"), flags=re.MULTILINE)
    needed = [
        path
        for process in PROCESSES
        for path in re.findall(r"(?:^ReadWritePaths=|=keys:)(\S+)", unit_text(process), flags=re.MULTILINE)
    ]
    assert len(needed) == 3
    assert set(needed) <= set(made)


@pytest.mark.mdwe
@pytest.mark.slow
@pytest.mark.parametrize(("absent", "status"), [(["polars"], 0), ([], 1)], ids=["extra service", "with polars"])
def test_noise_is_drawn_without_writable_code_unless_polars_is_installed(absent, status):
    """As MemoryDenyWriteExecute= has it. The environment of the tests has polars, the extra `service` has not."""
    command = [sys.executable, ROOT / "tests" / "support" / "noise_without_writable_code.py", *absent]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert ("mprotect" in done.stderr) is bool(status)
