"""Settings shared by all tests: Hypothesis is deterministic in CI, and what tests have counted is said at the end."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

_FIGURES: list[str] = []


@pytest.fixture
def figure():
    """Say what a test has counted, where whoever runs the tests sees it."""
    return _FIGURES.append


def pytest_terminal_summary(terminalreporter):
    if _FIGURES:
        terminalreporter.section("figures")
        for line in _FIGURES:
            terminalreporter.line(line)
