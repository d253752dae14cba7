"""What the first half of a data set teaches: a public forecast, and how households differ.

The first half stands for a trial in which households agreed that their readings are used. The second half is priced.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from murmurate.errors import ReadingError
from murmurate.lab.evaluate.public_knowledge import fit_public_forecast
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.corrections import Spread
from murmurate.prediction.forecast import USUAL_WEATHER, Weather, measure_residuals
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.units import IntArray
from research.data_sets.homes_data import HomesData

MIN_WEEKS = 20  # ten to learn from, four for corrections to settle, six to count
_BOUNDS_PER_MEAN = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)  # candidate bounds, over the mean reading


def learn_from_trial(energy_wh: IntArray, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> PublicForecast:
    """Return what readings [interval, household] of whole days teach."""
    bounds, used = candidate_bounds(energy_wh), energy_wh.astype(np.float64)
    mean_wh = np.stack([np.minimum(used, bound).mean(axis=1) for bound in bounds], axis=1)
    usual = used.reshape(-1, when.slots_per_day, used.shape[1]).mean(axis=0)  # of a household at a time of day
    lasting = float(usual.var(axis=1).mean())
    own = max(float(used.var(axis=1).mean()) - lasting, 0.0)
    spread = Spread(own=own**0.5 / float(used.mean()), lasting=lasting**0.5 / float(used.mean()))
    return fit_public_forecast(mean_wh, tuple(bounds), when, weather, spread)


def split_trial(data: HomesData) -> int:
    """Return the number of intervals of the trial: half of the whole weeks. Raises ReadingError if there are few."""
    weeks = data.days // 7
    if weeks < MIN_WEEKS:
        raise ReadingError(data.name, f"{weeks} weeks long", f"must have {MIN_WEEKS} weeks or more")
    return weeks // 2 * 7 * data.slots_per_day


def drop_useless_weather(data: HomesData, trial: int) -> HomesData:
    """Return the data without its temperature, unless forecasts of the trial are better with it, out of sample."""
    if data.temperature_c is None:
        return data
    demand_wh, when = data.energy_wh[:trial].sum(axis=1, dtype=np.float64)[:, None], data.calendar()[slice(0, trial)]
    errors = [
        float(np.mean(measure_residuals(demand_wh, when, weather) ** 2))
        for weather in (USUAL_WEATHER, Weather(data.temperature_c[:trial]))
    ]
    return data if errors[1] < errors[0] else replace(data, temperature_c=None)


def candidate_bounds(energy_wh: IntArray) -> list[int]:
    """Return bounds to choose from [Wh], ascending. The last one clips nothing."""
    top = int(energy_wh.max()) + 1
    bounds = {round(float(energy_wh.mean()) * share) for share in _BOUNDS_PER_MEAN}
    return [*sorted(bound for bound in bounds if 0 < bound < top), top]
