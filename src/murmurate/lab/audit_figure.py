"""The figure of an audit: how well home is told from away, and what one moment leaks in the course of the day."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from murmurate.curator.plan import Plan
from murmurate.lab.audit_attack import Attack
from murmurate.lab.figures import INK, MUTED, NAIVE, PRIVATE, title

_BROKEN = "#b3261e"
_BARE = "#c9d1d9"


def figure(plan: Plan, attacks: list[Attack], days: int) -> Figure:
    """Left: the AUC of each adversary and its bound. Right: what the strong one learns in the course of the day."""
    ranked = [attack for attack in attacks if attack.auc is not None]
    drawn = Figure(figsize=(11, max(4.6, 0.46 * len(ranked) + 1.6)), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_auc(left, ranked)
    _draw_day(right, attacks, plan.zone.intervals_per_day)
    title(left, "How well home is told from away", f"{days:,} days; whiskers: 95 %; 0.5 is guessing")
    title(right, "What a day of prices tells of one moment", "largest change of the log odds, over all days")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
    return drawn


def _draw_auc(axes: Axes, attacks: list[Attack]) -> None:
    for row, attack in enumerate(attacks):
        if attack.auc is None:
            continue
        if attack.better_than_guessing:
            colour = _BARE if not attack.noise else PRIVATE if attack.ok else _BROKEN
            axes.barh(row, attack.auc.mean - 0.5, left=0.5, height=0.55, color=colour, lw=0)
            axes.plot([attack.auc.low, attack.auc.high], [row, row], color=INK, lw=1.4)
        else:
            axes.text(
                0.01 + max(0.5, attack.auc_bound or 0.5),
                row,
                "no better than guessing",
                va="center",
                color=MUTED,
                fontsize=9,
            )
        if attack.auc_bound is not None:
            axes.plot([attack.auc_bound] * 2, [row - 0.4, row + 0.4], color=NAIVE, lw=3, solid_capstyle="butt")
    axes.plot([], [], color=NAIVE, lw=3, label="the plan's bound")
    axes.axvline(0.5, color=INK, lw=1)
    names = [attack.name if attack.noise else "without noise" for attack in attacks]
    axes.set_yticks(range(len(attacks)), names)
    for label, attack in zip(axes.get_yticklabels(), attacks, strict=True):
        label.set_fontsize(10 if attack.noise else 8.5)
    axes.invert_yaxis()
    ends = [end for a in attacks if a.auc for end in (a.auc.high, a.auc_bound or 0.5)]
    axes.set_xlim(0.5, min(1.02, max([0.7, *ends]) + 0.03))
    axes.set_xlabel("area under the ROC curve")
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="lower right")


def _draw_day(axes: Axes, attacks: list[Attack], day: int) -> None:
    hours = np.arange(day) * 24 / day
    looks = {"strong": (PRIVATE, "its usual habits"), "extreme": (INK, "the most telling habits")}
    top, bound = 0.0, None
    for attack in attacks:
        if attack.name in looks and attack.shift_by_interval:
            colour, words = looks[attack.name]
            axes.plot(hours, attack.shift_by_interval, color=colour, lw=1.8, label=words)
            top, bound = max(top, *attack.shift_by_interval), attack.bound
    if bound is not None:
        axes.axhline(bound, color=NAIVE, lw=3)
        axes.text(0.2, 1.02 * bound, "the plan's bound", va="bottom", color=MUTED, fontsize=9)
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 4), [f"{hour:02d}:00" for hour in range(0, 25, 4)])
    axes.set_ylim(0, 1.35 * max(top, bound or 0.0, 1e-6))
    axes.set_xlabel("time of day")
    axes.set_ylabel("posterior shift of the strong adversary")
    if top:
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="upper right", ncols=2)
