"""A disk that never waits, for the tests in which no power is cut."""

import pytest

from tests.gathering.worlds import no_waiting


@pytest.fixture
def quick_disk():
    with no_waiting():
        yield
