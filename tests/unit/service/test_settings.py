"""Settings that would delete readings before they count are refused, with what to do."""

import pytest

from murmurate.errors import MurmurateError
from murmurate.service.settings import ServiceSettings


@pytest.mark.parametrize("keep_days", [0, -1])
def test_readings_must_be_kept_for_some_time(keep_days):
    with pytest.raises(MurmurateError, match=r"keep_days is .*: must be at least two intervals and grace_s, such as 7"):
        ServiceSettings(keep_days=keep_days)


@pytest.mark.parametrize(("interval_s", "least_s"), [(900, 1860), (60, 180)])
def test_readings_must_be_kept_for_two_intervals_and_the_grace(interval_s, least_s):
    ServiceSettings(keep_days=least_s / 86_400).check_keep_days(interval_s)
    with pytest.raises(MurmurateError, match=f"two intervals of {interval_s} s and grace_s: raise it"):
        ServiceSettings(keep_days=(least_s - 1) / 86_400).check_keep_days(interval_s)
