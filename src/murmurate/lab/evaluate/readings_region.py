"""A region made of the user's own readings: zones are groups of households, drawn at random.

Forecasts are fitted on what came before, week by week. What the filter knows comes from the first four weeks, and only
the days after them count. The filter runs from the third week on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from murmurate.errors import ReadingError
from murmurate.lab.evaluate.clipped_sums import BOUNDS_WH, MomentSums, sum_clipped
from murmurate.lab.evaluate.public_knowledge import SLOTS, UNKNOWN_COLD_K, PublicKnowledge
from murmurate.lab.evaluate.random_stream import Float32Array
from murmurate.lab.evaluate.readings_file import HouseholdReadings
from murmurate.lab.evaluate.region import Region, ZoneGroup
from murmurate.prediction.calendar import CalendarSlots, locate_intervals
from murmurate.prediction.forecast import fit_forecasts
from murmurate.units import FloatArray, IntArray

LEARNING_DAYS, FIRST_FIT_DAYS = 28, 14
_USUAL_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_MAX_ZONES = 16  # of one size


def choose_sizes(households: int, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that are wanted, or those of which there are two zones or more, and that of the whole file.

    Raises ReadingError if a zone would have more homes than there are.

    >>> choose_sizes(2500, ())
    (100, 300, 1000, 2500)
    """
    if max(wanted, default=0) > households:
        found = f"{max(wanted):,} homes, with readings of {households:,} households"
        raise ReadingError("sizes", found, f"must be at most {households:,}; leave --sizes out to see which do")
    return wanted or (*(size for size in _USUAL_SIZES if 2 * size <= households), households)


def region_of_readings(readings: HouseholdReadings, sizes: Sequence[int], seed: int) -> Region:
    """Return the region of some readings, with zones of some sizes: see `choose_sizes`."""
    energy, begin = readings.energy_wh, FIRST_FIT_DAYS * SLOTS
    interval = readings.first_day * SLOTS + np.arange(len(energy))
    when = locate_intervals(interval, SLOTS)
    moments = _learn(energy[: LEARNING_DAYS * SLOTS])
    known = PublicKnowledge.from_sample(moments.to_moments(), when[: LEARNING_DAYS * SLOTS], first_days=FIRST_FIT_DAYS)
    whole = _make_zones(energy, np.arange(readings.households)[None])
    expected = _roll_forecasts(whole[:, 0] / readings.households, when, begin)
    rng = np.random.default_rng(seed)
    groups = {size: _make_group(energy, size, expected, rng) for size in sizes}
    level = np.array([expected[:, -1].mean()])
    return Region(
        known=known,
        expected_wh=expected,
        cold_k=np.full(len(expected), UNKNOWN_COLD_K),
        counted=slice(LEARNING_DAYS * SLOTS - begin, None),
        whole=ZoneGroup(readings.households, level, whole[begin:]),
        zones=groups,
    )


def _learn(energy_wh: Float32Array) -> MomentSums:
    """Sums over all households, from which the moments of the first weeks follow."""
    sums = MomentSums(len(energy_wh))
    sums.homes = energy_wh.shape[1]
    for t, used in enumerate(energy_wh):
        sums.add_interval(t, used, energy_wh[t - SLOTS] if t >= SLOTS else np.zeros_like(used))
    return sums


def _make_zones(energy_wh: Float32Array, members: IntArray) -> FloatArray:
    """Sums of zones [interval, zone, bound] from their households [zone, household]."""
    order = members.ravel()
    return np.array([sum_clipped(used[order], len(members)) for used in energy_wh])


def _make_group(energy_wh: Float32Array, size: int, expected_wh: FloatArray, rng: np.random.Generator) -> ZoneGroup:
    """Zones of households drawn without repetition. Their level is that of the first four weeks."""
    households = energy_wh.shape[1]
    zones = min(households // size, _MAX_ZONES)
    demand = _make_zones(energy_wh, rng.permutation(households)[: zones * size].reshape(zones, size))
    before = slice(0, LEARNING_DAYS * SLOTS)
    share = demand[before, :, -1].mean(axis=0) / size / energy_wh[before].mean(dtype=np.float64)
    return ZoneGroup(size, share * expected_wh[:, -1].mean(), demand[FIRST_FIT_DAYS * SLOTS :])


def _roll_forecasts(mean_wh: FloatArray, when: CalendarSlots, begin: int) -> FloatArray:
    """Forecasts of a mean household for each week after `begin`, fitted on all before it [interval, bound]."""
    found = np.zeros((len(mean_wh) - begin, len(BOUNDS_WH)))
    for start in range(begin, len(mean_wh), 7 * SLOTS):
        now = slice(start, min(start + 7 * SLOTS, len(mean_wh)))
        fitted = fit_forecasts(mean_wh[:start], when[:start])
        found[now.start - begin : now.stop - begin] = np.stack([one.demand_wh(when[now]) for one in fitted], axis=1)
    return found
