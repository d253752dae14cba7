"""Processes that end or stand still are started again: ever later, without end, and never while they are at work."""

import os
import signal
import sys
import time

import pytest

from murmurate.service import supervisor
from murmurate.service.supervisor import SupervisedProcess
from murmurate.service.watchdog import REPORT_VARIABLE, read_part_restarts

BEGIN = "import os, signal, sys, time; from murmurate.service.watchdog import report_progress; "
NOTE_START = "open(sys.argv[1], 'a').write(f'{time.monotonic()} '); "


def process_of(code, starts, watchdog_s=60.0):
    command = [sys.executable, "-c", BEGIN + NOTE_START + code, str(starts)]
    return SupervisedProcess(name="worker", command=command, environment=dict(os.environ), watchdog_s=watchdog_s)


def check_until(part, condition):
    """Look at the process as the supervisor does, until something holds."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        part.check()
        time.sleep(0.02)


@pytest.fixture
def end_processes():
    parts = []
    yield parts
    for part in parts:
        if part.process is not None:
            part.process.kill()
            part.process.wait()
        part.clear_process()


@pytest.mark.slow
def test_a_process_that_ends_at_once_is_started_ever_later_and_never_given_up(tmp_path, monkeypatch, end_processes):
    monkeypatch.setattr(supervisor, "MIN_RESTART_DELAY_S", 0.05)
    monkeypatch.setattr(supervisor, "MAX_RESTART_DELAY_S", 0.4)
    part = process_of("sys.exit(3)", tmp_path / "starts")
    part._delay_s = supervisor.MIN_RESTART_DELAY_S
    end_processes.append(part)
    delays = []

    def seven_restarts():
        delays.append(part._delay_s)
        return part.restarts >= 7

    check_until(part, seven_restarts)
    assert sorted(set(delays)) == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert len((tmp_path / "starts").read_text().split()) >= 7


def test_a_process_that_ran_for_a_while_is_started_again_soon(tmp_path, monkeypatch, end_processes):
    monkeypatch.setattr(supervisor, "STEADY_S", 0.0)
    part = process_of("sys.exit(0)", tmp_path / "starts")
    end_processes.append(part)
    part._delay_s = 60.0
    check_until(part, lambda: part.restarts == 1)


def test_a_process_that_was_stopped_is_killed_and_started_again(tmp_path, end_processes):
    part = process_of("report_progress(); os.kill(os.getpid(), signal.SIGSTOP)", tmp_path / "starts", watchdog_s=1.0)
    end_processes.append(part)
    check_until(part, lambda: part.restarts == 2)


def test_a_process_that_says_that_its_next_step_is_long_is_left_alone(tmp_path, end_processes):
    code = "report_progress(600); time.sleep(2); open(sys.argv[1] + '.done', 'w'); time.sleep(60)"
    part = process_of(code, tmp_path / "starts", watchdog_s=1.0)
    end_processes.append(part)
    check_until(part, (tmp_path / "starts.done").exists)
    assert part.restarts == 0


def test_a_long_step_that_is_over_is_no_excuse_for_standing_still(tmp_path, end_processes):
    code = "report_progress(600); report_progress(); os.kill(os.getpid(), signal.SIGSTOP)"
    part = process_of(code, tmp_path / "starts", watchdog_s=1.0)
    end_processes.append(part)
    check_until(part, lambda: part.restarts == 1)


@pytest.mark.slow
def test_a_machine_that_was_paused_is_no_reason_to_kill(tmp_path, end_processes):
    """The supervisor runs again before the part does, as after a pause of a virtual machine."""
    code = "[(report_progress(), time.sleep(0.05)) for _ in range(10_000)]"
    part = process_of(code, tmp_path / "starts", watchdog_s=2.0)
    end_processes.append(part)
    check_until(part, (tmp_path / "starts").exists)
    os.kill(part.process.pid, signal.SIGSTOP)
    part.check()  # reads what came before
    time.sleep(2.5)
    part.check()
    assert part.process.poll() is None
    os.kill(part.process.pid, signal.SIGCONT)
    end = time.monotonic() + 60
    while part._silence_left_s < 1.9:
        assert time.monotonic() < end
        part.check()
    assert part.restarts == 0


def test_restarts_reach_the_process_that_shows_them(tmp_path, monkeypatch):
    path = tmp_path / "restarts.json"
    monkeypatch.setenv(REPORT_VARIABLE, str(path))
    assert read_part_restarts() == {}
    part = process_of("", tmp_path / "starts")
    part.restarts = 4
    supervisor._write_report(path, [part])
    assert read_part_restarts() == {"worker": 4}
    path.write_text("[]")
    assert read_part_restarts() == {}
