"""The log of a service: one JSON object a line, whatever is logged and by whom."""

import json
import logging
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
