"""Settings shared by all tests: Hypothesis profiles, time zones, and tests that need more than this machine has.

On a developer's machine a test whose server or program is missing is skipped. The end of the run names the reasons.
With HYPOTHESIS_PROFILE=ci a skipped test is a failure: nothing may be missing there, except OpenADR's document.
"""

import os
import zoneinfo
from collections import Counter
from pathlib import Path

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings

from tests.support.machine_requirements import markers_of, missing
from tests.support.openadr_schema import NO_DOCUMENT

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, max_examples=30)
settings.register_profile("long", settings.get_profile("default"), max_examples=500)
settings.register_profile("quick", settings.get_profile("default"), derandomize=True, max_examples=10)
settings.load_profile(PROFILE)

# A client waits for a service on a busy machine. Tests of what takes too long name their own limits.
for name in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, name, 60.0)

# Time zones come from the package tzdata, not from the system, here and in every process that a test starts.
os.environ["PYTHONTZPATH"] = ""
zoneinfo.reset_tzpath()

_ROOT = Path(__file__).parents[1]
_FIGURES: list[str] = []


@pytest.fixture
def figure():
    """Return a function that takes a line. The line is printed at the end of the run."""
    return _FIGURES.append


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(_ROOT):
            for marker in markers_of(item.path.relative_to(_ROOT)):
                item.add_marker(marker)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    reasons = {reason for marker in item.iter_markers() if (reason := missing(marker.name))}
    if reasons:
        pytest.skip("; ".join(sorted(reasons)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    if PROFILE == "ci" and report.skipped and not hasattr(report, "wasxfail") and NO_DOCUMENT not in _reason(report):
        report.outcome, report.longrepr = "failed", f"in CI no test may be skipped: {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter):
    if _FIGURES:
        terminalreporter.section("figures")
        for line in _FIGURES:
            terminalreporter.line(line)
    reasons = Counter(map(_reason, terminalreporter.stats.get("skipped", ())))
    if reasons:
        terminalreporter.section("skipped tests, and why")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5} {reason}")


def _reason(report):
    """The reason of a skipped test, from pytest's triple of file, line and reason."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
