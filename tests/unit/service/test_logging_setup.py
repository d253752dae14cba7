"""The log of a service: one JSON object a line, whatever is logged and by whom."""

import json
import logging
import os
import subprocess
import sys

import pytest

from murmurate.service.logging_setup import JsonFormatter


def line_of(name, message, **extra):
    record = logging.makeLogRecord({"name": name, "levelname": "WARNING", "msg": message} | extra)
    text = JsonFormatter("worker").format(record)
    assert "\n" not in text
    return json.loads(text)


def test_an_event_has_its_time_its_level_its_process_and_its_facts():
    line = line_of("murmurate.service.worker", "aggregation failed", interval="20260101T0000Z", reason="disk is full")
    assert line.pop("at").endswith("+00:00")
    facts = {"interval": "20260101T0000Z", "reason": "disk is full"}
    assert line == {"level": "warning", "process": "worker", "event": "aggregation failed"} | facts


@pytest.mark.parametrize("name", ["uvicorn.error", "asyncio", "murmurates", "py.warnings"])
def test_the_message_of_another_library_never_reaches_the_log(name):
    line = line_of(name, "body was 271828")
    assert (line["event"], line["logger"]) == ("library message", name)
    assert "271828" not in json.dumps(line)


def test_whatever_is_logged_is_one_json_object_a_line():
    code = """
import logging, warnings
from murmurate.service.logging_setup import configure_logging
configure_logging("worker")
logging.getLogger("murmurate.x").info("first\\nsecond", extra={"path": {1, 2}, "text": "line\\nline"})
logging.getLogger("murmurate.x").debug("not shown")
logging.getLogger("other").warning("secret")
warnings.warn("secret")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("other").exception("secret")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events == ["first\nsecond", "library message", "library message", "library message"]
    assert "secret" not in done.stderr


def run_logging(code, **options):
    setup = 'from murmurate.service.logging_setup import configure_logging\nconfigure_logging("worker")\n'
    return subprocess.run([sys.executable, "-c", setup + code], capture_output=True, text=True, check=False, **options)


IN_A_THREAD = """
import threading
def work():
    raise KeyError("secret")
threading.Thread(target=work).start()
"""
IN_A_DESTRUCTOR = """
class Thing:
    def __del__(self):
        raise OSError("secret")
Thing()
"""
IN_A_TASK = """
import asyncio
async def work():
    raise OSError("secret")
async def main():
    task = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    del task
asyncio.run(main())
"""
LOGGED = """
import logging
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("murmurate.x").exception("failed")
"""


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise ValueError('secret')", "ValueError"),
        (IN_A_THREAD, "KeyError"),
        (IN_A_DESTRUCTOR, "OSError"),
        (IN_A_TASK, "OSError"),
        (LOGGED, "ZeroDivisionError"),
    ],
)
def test_an_error_is_one_line_with_its_type_and_where_it_was_raised(code, error):
    done = run_logging(code)
    (line,) = map(json.loads, done.stderr.splitlines())
    assert line["error"] == error
    assert any("<string>" in place for place in line["trace"])
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "print('secret\\nsecret')",
        "import sys; sys.stderr.write('secret')",
        "import traceback; traceback.print_stack()",
        "import sys; sys.exit('secret')",
        "import logging; logging.getLogger('murmurate.x').warning('%d', 'secret')",
    ],
)
def test_what_a_library_prints_is_one_line_without_its_text(code):
    done = run_logging(code)
    lines = [json.loads(line) for line in (done.stdout + done.stderr).splitlines()]
    assert lines
    assert "secret" not in done.stdout + done.stderr


def test_a_library_that_logs_what_clients_do_gets_a_line_a_second_and_the_rest_is_counted():
    code = """
import logging, time
from murmurate.service import logging_setup
logging_setup.RATE_PERIOD_S = 0.2
for _ in range(2):
    for _ in range(1000):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    time.sleep(0.3)
logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
"""
    lines = [json.loads(line) for line in run_logging(code).stderr.splitlines()]
    assert len(lines) + sum(line.get("suppressed", 0) for line in lines) == 2001
    assert len(lines) < 200


@pytest.mark.slow
def test_processes_that_write_to_one_pipe_at_once_never_share_a_line():
    code = (
        "import logging\nlogger = logging.getLogger('murmurate.x')\n"
        "for n in range(300):\n    logger.info('event', extra={'n': n, 'text': 'x' * 20_000 if n % 3 else 'short'})\n"
    )
    setup = 'from murmurate.service.logging_setup import configure_logging\nconfigure_logging("worker")\n'
    shell = " & ".join([f'"{sys.executable}" -c "$CODE"'] * 4)
    done = subprocess.run(
        ["bash", "-c", f"{{ {shell} & wait; }} 2>&1 | cat"],
        env=os.environ | {"CODE": setup + code}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["n"] for line in lines) == sorted([*range(300)] * 4)
    assert {line["event"] for line in lines} == {"event"}
