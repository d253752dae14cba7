"""The figures of the page on real homes: errors, attacks, and a day."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from murmurate.lab.audit.attack import Estimate
from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title, style_axes
from murmurate.units import WH_PER_KWH
from research.real_homes.homes_report import DayExample
from research.real_homes.occupancy_attack import AttackEstimate, OccupancyAttack
from research.real_homes.zone_errors import PRIVATE_WAYS, HomesWay, ZoneErrors

_WAY_LABELS = {
    HomesWay.LAST_WEEK: "last week, exact",
    HomesWay.FORECAST: "forecast",
    HomesWay.REFITTED: "forecast refitted\non exact readings",
    HomesWay.EXACT_ECHO: "echo of exact demand",
    HomesWay.NOISY_ECHO: "echo of noisy demand",
    HomesWay.PRIVATE: "private prediction",
    HomesWay.EXACT: "prediction from\nexact releases",
}
_SHADE_COLOR = "#eef2f5"
_PANELS_PER_ROW = 2


def draw_error_figure(zones: tuple[ZoneErrors, ...]) -> Figure:
    """Draw the error of each way in each zone, with its interval."""
    columns = min(_PANELS_PER_ROW, len(zones))
    rows = -(-len(zones) // columns)
    drawn = Figure(figsize=(11, 3.6 * rows), layout=ConstrainedLayoutEngine(hspace=0.08, wspace=0.04))
    panels = drawn.subplots(rows, columns, squeeze=False, sharey=True)
    for panel, zone in zip(panels.flat, zones, strict=False):
        _draw_errors(panel, zone)
    for panel in panels.flat[max(0, len(zones) - columns) : len(zones)]:
        panel.set_xlabel("error of the demand that is priced, % of the mean demand")
    for panel in panels.flat[len(zones) :]:
        panel.set_visible(False)
    return drawn


def _draw_errors(axes: Axes, zone: ZoneErrors) -> None:
    for row, (way, found) in enumerate(zone.ways.items()):
        colour = PRIVATE_COLOR if way in PRIVATE_WAYS else NAIVE_COLOR
        low, high = 100 * found.error.low, 100 * found.error.high
        axes.plot([low, high], [row, row], color=colour, lw=5, alpha=0.35, solid_capstyle="butt")
        axes.plot(100 * found.error.mean, row, "o", color=colour, ms=6)
        axes.text(high, row, f"  {100 * found.error.mean:.1f}", va="center", fontsize=8.5, color=TEXT_COLOR)
    axes.axvline(100 * zone.ways[HomesWay.FORECAST].error.mean, color=MUTED_COLOR, lw=1, ls=":")
    axes.set_yticks(range(len(zone.ways)), [_WAY_LABELS[way] for way in zone.ways])
    axes.set_ylim(len(zone.ways) - 0.5, -0.5)
    axes.set_xlim(0, 1.15 * max(100 * found.error.high for found in zone.ways.values()))
    kind = "measured" if zone.data.measured else "modelled"
    subtitle = f"{len(zone.data.households)} {kind} homes, {zone.counted_weeks} weeks; bars: 95 %"
    set_axes_title(axes, zone.data.name, f"{subtitle}; blue: shows no exact reading")
    style_axes(axes)


def draw_attack_figure_of_homes(attack: OccupancyAttack) -> Figure:
    """Draw the success of the attack by the size of the zone."""
    drawn = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = drawn.subplots(1, 2)
    _draw_by_size(left, attack, lambda found: found.above_clock)
    _draw_by_size(right, attack, lambda found: found.same_time_auc)
    left.set_ylabel("AUC above that of the clock alone")
    right.set_ylabel("area under the ROC curve")
    clock = attack.zones[0].clock.auc.mean
    set_axes_title(
        left, "Home or away: any two times", f"the clock alone has an AUC of {clock:.3f}; bars: 95 %, paired"
    )
    set_axes_title(right, "Home or away: two days at the same time", "0.5 is guessing; bars: 95 % over households")
    left.legend(frameon=False, fontsize=9, labelcolor=TEXT_COLOR, loc="upper right")
    return drawn


def _draw_by_size(axes: Axes, attack: OccupancyAttack, choose: Callable[[AttackEstimate], Estimate]) -> None:
    place = np.arange(len(attack.zones))
    axes.plot(
        place, [choose(zone.clock).mean for zone in attack.zones], color=TEXT_COLOR, lw=1.4, ls="--", label="clock"
    )
    series = (
        ("exact demand", NAIVE_COLOR, [choose(zone.exact) for zone in attack.zones], -0.06),
        ("noisy release", PRIVATE_COLOR, [choose(zone.noisy) for zone in attack.zones], 0.06),
    )
    for label, colour, found, shift in series:
        means = np.array([each.mean for each in found])
        below, above = (np.abs(np.array([each[end] for each in found]) - means) for end in (1, 2))
        axes.errorbar(
            place + shift, means, yerr=[below, above], fmt="o-", color=colour, lw=1.6, ms=5, capsize=3, label=label
        )
    names = [f"{zone.homes}" if zone.homes > 1 else "1, or all\nothers known" for zone in attack.zones]
    axes.set_xticks(place, names)
    axes.set_xlabel("homes in the zone")
    style_axes(axes)


def draw_day_figure(day: DayExample) -> Figure:
    """Draw one day of one household, of its zone, and of what is released."""
    drawn = Figure(figsize=(11, 7.6), layout="constrained")
    top, middle, bottom = drawn.subplots(3, 1, sharex=True)
    zone, slots = day.zone, day.zone.data.slots_per_day
    hours, width = np.arange(slots) * 24 / slots, 24 / slots
    shown = slice(day.first, day.first + slots)
    demand, release, predicted = (
        each[shown] / WH_PER_KWH for each in (zone.demand_wh, zone.release_wh, zone.predicted_wh)
    )
    top.bar(hours, day.reading_wh / WH_PER_KWH, width=0.9 * width, align="edge", color=TEXT_COLOR)
    middle.stairs(demand, np.append(hours, 24), baseline=None, color=NAIVE_COLOR, lw=2, label="exact demand")
    middle.stairs(
        predicted, np.append(hours, 24), baseline=None, color=PRIVATE_COLOR, lw=1.6, label="private prediction"
    )
    sd = zone.noise_sd_wh / WH_PER_KWH
    bottom.fill_between(hours + width / 2, demand - 2 * sd, demand + 2 * sd, color=PRIVATE_COLOR, alpha=0.12, lw=0)
    bottom.plot(hours + width / 2, release, "o", color=PRIVATE_COLOR, ms=5, label="noisy release")
    bottom.stairs(demand, np.append(hours, 24), baseline=None, color=NAIVE_COLOR, lw=2, label="exact demand")
    for axes in (top, middle, bottom):
        _shade_away(axes, day, width)
        axes.set_ylabel("kWh")
        style_axes(axes)
    top.set_ylim(bottom=0)
    middle.set_ylim(0, 1.35 * max(demand.max(), predicted.max()))
    for axes in (middle, bottom):
        axes.legend(frameon=False, fontsize=9, labelcolor=TEXT_COLOR, loc="upper left", ncols=2)
    away = "" if day.home is None else "; shaded: away"
    set_axes_title(top, "One household", f"{day.household}{away}")
    set_axes_title(middle, f"Its zone of {len(zone.data.households)} homes", zone.data.name)
    subtitle = f"readings clipped at {zone.bound_wh:,} Wh, noise of {sd:,.1f} kWh; shaded blue: two standard deviations"
    set_axes_title(bottom, "What is published of it", subtitle)
    bottom.set_xlim(0, 24)
    bottom.set_xticks(range(0, 25, 4), [f"{hour:02d}:00" for hour in range(0, 25, 4)])
    bottom.set_xlabel("time of day")
    return drawn


def _shade_away(axes: Axes, day: DayExample, width: float) -> None:
    if day.home is not None:
        for slot in np.flatnonzero(~day.home):
            axes.axvspan(slot * width, (slot + 1) * width, color=_SHADE_COLOR, lw=0, zorder=0)
