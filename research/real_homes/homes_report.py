"""Evaluate data sets of households: the error of prices, an attack on occupancy, and a day as an example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate import __version__
from murmurate.lab.audit.attack import Estimate
from murmurate.units import BoolArray, FloatArray, IntArray
from research.data_sets.homes_data import HomesData
from research.real_homes.occupancy_attack import AttackEstimate, OccupancyAttack, attack_occupancy
from research.real_homes.release_noise import ExampleNoise
from research.real_homes.zone_errors import LEAD, NOISE_DRAWS, ZoneErrors, measure_zone_errors

HOMES_SEED = 1
_FIRST_SHOWN_DAY = 28  # of the priced half
_AWAY_HOURS = (5, 11)  # of the day that is shown
_ERROR_SHARE = 0.5  # of the progress, where occupancy is known

HomesProgress = Callable[[str, float], None]  # gets what is done, and its share of the work


@dataclass(frozen=True, slots=True, eq=False)
class DayExample:
    """One day of one household and of its zone."""

    zone: ZoneErrors
    household: str
    first: int  # interval of the priced half
    reading_wh: FloatArray  # [slot]
    home: BoolArray | None  # [slot]


@dataclass(frozen=True, slots=True, eq=False)
class HomesReport:
    """All that the page shows."""

    noise: ExampleNoise
    zones: tuple[ZoneErrors, ...]
    attack: OccupancyAttack | None  # None: no data set says who was home
    day: DayExample


def evaluate_homes(data_sets: Sequence[HomesData], max_targets: int, progress: HomesProgress) -> HomesReport:
    """Evaluate data sets with intervals of one length, each as one zone."""
    noise = ExampleNoise.of_example(data_sets[0].interval_s)
    known = [data.occupied is not None for data in data_sets]
    share = (_ERROR_SHARE if any(known) else 1.0) / len(data_sets)
    zones = []
    for data in data_sets:
        zones.append(measure_zone_errors(data.whole_days().complete_households(), noise, HOMES_SEED))
        progress(data.name, share)
    attack = None
    if any(known):
        attacked = [(zone.data, zone.bound_wh) for zone in zones if zone.data.occupied is not None]
        attack = attack_occupancy(
            attacked,
            noise,
            HOMES_SEED,
            max_targets=max_targets,
            progress=lambda done: progress("attacking", (1 - _ERROR_SHARE) * done),
        )
        if not attack.targets:
            attack = None
    return HomesReport(noise, tuple(zones), attack, _choose_day(zones))


def _choose_day(zones: Sequence[ZoneErrors]) -> DayExample:
    """Return a day after four weeks: of days with some hours away, the one whose readings show it best."""
    best, found = 0.0, _show_day(zones[0], _FIRST_SHOWN_DAY * zones[0].data.slots_per_day, 0)
    for zone in zones:
        slots, occupied = zone.data.slots_per_day, zone.data.occupied
        if occupied is None:
            continue
        for day in range(_FIRST_SHOWN_DAY, min(2 * _FIRST_SHOWN_DAY, len(zone.demand_wh) // slots)):
            begin = zone.trial_intervals + day * slots
            contrast = _contrast(zone.data.energy_wh[begin : begin + slots], occupied[begin : begin + slots])
            household = int(contrast.argmax())
            if contrast[household] > best:
                best, found = float(contrast[household]), _show_day(zone, day * slots, household)
        if best > 0:
            break
    return found


def _contrast(reading_wh: IntArray, home: BoolArray) -> FloatArray:
    """Return the median reading home over that away, or 0 where a household is not away once, for hours [household]."""
    slots, away = len(home), (~home).sum(axis=0)
    once = (np.diff(home.astype(np.int8), axis=0) != 0).sum(axis=0) == 2
    shown = home[0] & home[-1] & once & (away * 24 >= _AWAY_HOURS[0] * slots) & (away * 24 <= _AWAY_HOURS[1] * slots)
    ratio = np.zeros(home.shape[1])
    for household in np.flatnonzero(shown):
        used_home, used_away = (
            np.median(reading_wh[at, household]) for at in (home[:, household], ~home[:, household])
        )
        ratio[household] = used_home / max(used_away, 1.0)
    return ratio


def _show_day(zone: ZoneErrors, first: int, household: int) -> DayExample:
    data = zone.data
    day = slice(zone.trial_intervals + first, zone.trial_intervals + first + data.slots_per_day)
    home = None if data.occupied is None else data.occupied[day, household]
    return DayExample(zone, data.households[household], first, data.energy_wh[day, household].astype(np.float64), home)


def report_numbers(report: HomesReport) -> dict[str, Any]:
    """Return `homes.json`: every number of the page."""
    return {
        "murmurate": __version__,
        "test_only": True,
        "seed": HOMES_SEED,
        "promises": report.noise.promises,
        "lead_intervals": LEAD,
        "noise_draws": NOISE_DRAWS,
        "zones": [_zone_numbers(zone) for zone in report.zones],
        "attack": None if report.attack is None else _attack_numbers(report.attack),
    }


def _zone_numbers(zone: ZoneErrors) -> dict[str, Any]:
    return {
        "name": zone.data.name,
        "licence": zone.data.licence,
        "measured": zone.data.measured,
        "households": len(zone.data.households),
        "interval_s": zone.data.interval_s,
        "counted_weeks": zone.counted_weeks,
        "mean_demand_wh": zone.mean_wh,
        "bound_wh": zone.bound_wh,
        "echo_bound_wh": zone.echo_bound_wh,
        "noise_sd_wh": zone.noise_sd_wh,
        "ways": {
            way.name.lower(): {
                "error": _interval_numbers(each.error),
                "against_forecast": _interval_numbers(each.against_forecast),
            }
            for way, each in zone.ways.items()
        },
    }


def _attack_numbers(attack: OccupancyAttack) -> dict[str, Any]:
    return {
        "households": attack.households,
        "eligible": attack.eligible,
        "targets": attack.targets,
        "home_share": attack.home_share,
        "zones": [
            {
                "homes": zone.homes,
                "targets": zone.targets,
                "clock": _estimate_numbers(zone.clock),
                "exact": _estimate_numbers(zone.exact),
                "noisy": _estimate_numbers(zone.noisy),
            }
            for zone in attack.zones
        ],
    }


def _estimate_numbers(found: AttackEstimate) -> dict[str, Any]:
    return {
        "auc": _interval_numbers(found.auc),
        "above_clock": _interval_numbers(found.above_clock),
        "same_time_auc": _interval_numbers(found.same_time_auc),
    }


def _interval_numbers(estimate: Estimate) -> dict[str, float | None]:
    return {name: float(value) if np.isfinite(value) else None for name, value in estimate._asdict().items()}
