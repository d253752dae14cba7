"""Exact moments of a sample, for the laboratory: those of its readings."""

import numpy as np
import pytest

from murmurate.errors import ModelError
from murmurate.lab.evaluate.sample_moments import SampleMoments

SLOTS = 24
READINGS = np.rint(np.random.default_rng(5).gamma(1.5, 250, (42 * SLOTS, 60))).astype(np.int64)


def test_moments_are_those_of_the_readings():
    sample = SampleMoments.from_readings(READINGS, (300, 1000, 100_000), SLOTS)
    assert sample.bounds_wh == (300, 1000, READINGS.max())
    assert np.allclose(sample.mean_wh[:, 1], np.minimum(READINGS, 1000).mean(axis=1))
    assert np.allclose(sample.variance[:, 2], READINGS.var(axis=1))
    assert 0 <= sample.lasting < 0.2  # households of the sample are alike
    with pytest.raises(ModelError, match="five weeks"):
        SampleMoments.from_readings(READINGS[:SLOTS], (300,), SLOTS)
