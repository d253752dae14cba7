"""The figure of an audit: the success of each adversary, and the leakage by hour."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from murmurate.lab.audit.attack_result import AttackResult
from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title
from murmurate.planning.plan import Plan

_BROKEN_COLOR = "#b3261e"
_NO_NOISE_COLOR = "#c9d1d9"


def draw_attack_figure(plan: Plan, attacks: list[AttackResult], days: int) -> Figure:
    """Draw the AUC of each adversary with its bound, and the posterior shift of the strong adversary by hour."""
    ranked = [attack for attack in attacks if attack.auc is not None]
    drawn = Figure(figsize=(11, max(4.6, 0.46 * len(ranked) + 1.6)), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_auc(left, ranked)
    _draw_shift_by_hour(right, attacks, plan.zone.intervals_per_day)
    set_axes_title(left, "Telling home from away", f"{days:,} days; whiskers: 95 %; 0.5 is guessing")
    set_axes_title(right, "What a day of prices reveals of one moment", "largest change of the log odds, over all days")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=TEXT_COLOR)
        axes.xaxis.label.set_color(TEXT_COLOR)
        axes.yaxis.label.set_color(TEXT_COLOR)
    return drawn


def _draw_auc(axes: Axes, attacks: list[AttackResult]) -> None:
    for row, attack in enumerate(attacks):
        if attack.auc is None:
            continue
        if attack.better_than_guessing:
            colour = _NO_NOISE_COLOR if not attack.noise else PRIVATE_COLOR if attack.ok else _BROKEN_COLOR
            axes.barh(row, attack.auc.mean - 0.5, left=0.5, height=0.55, color=colour, lw=0)
            axes.plot([attack.auc.low, attack.auc.high], [row, row], color=TEXT_COLOR, lw=1.4)
        else:
            axes.text(
                0.01 + max(0.5, attack.auc_bound or 0.5),
                row,
                "no better than guessing",
                va="center",
                color=MUTED_COLOR,
                fontsize=9,
            )
        if attack.auc_bound is not None:
            axes.plot([attack.auc_bound] * 2, [row - 0.4, row + 0.4], color=NAIVE_COLOR, lw=3, solid_capstyle="butt")
    axes.plot([], [], color=NAIVE_COLOR, lw=3, label="the plan's bound")
    axes.axvline(0.5, color=TEXT_COLOR, lw=1)
    names = [attack.name if attack.noise else "without noise" for attack in attacks]
    axes.set_yticks(range(len(attacks)), names)
    for label, attack in zip(axes.get_yticklabels(), attacks, strict=True):
        label.set_fontsize(10 if attack.noise else 8.5)
    axes.invert_yaxis()
    ends = [end for a in attacks if a.auc for end in (a.auc.high, a.auc_bound or 0.5)]
    axes.set_xlim(0.5, min(1.02, max([0.7, *ends]) + 0.03))
    axes.set_xlabel("area under the ROC curve")
    axes.legend(frameon=False, fontsize=9, labelcolor=TEXT_COLOR, loc="lower right")


def _draw_shift_by_hour(axes: Axes, attacks: list[AttackResult], day: int) -> None:
    hours = np.arange(day) * 24 / day
    looks = {"strong": (PRIVATE_COLOR, "its usual habits"), "extreme": (TEXT_COLOR, "the most revealing habits")}
    top, bound = 0.0, None
    for attack in attacks:
        if attack.name in looks and attack.shift_by_interval:
            colour, words = looks[attack.name]
            axes.plot(hours, attack.shift_by_interval, color=colour, lw=1.8, label=words)
            top, bound = max(top, *attack.shift_by_interval), attack.bound
    if bound is not None:
        axes.axhline(bound, color=NAIVE_COLOR, lw=3)
        axes.text(0.2, 1.02 * bound, "the plan's bound", va="bottom", color=MUTED_COLOR, fontsize=9)
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 4), [f"{hour:02d}:00" for hour in range(0, 25, 4)])
    axes.set_ylim(0, 1.35 * max(top, bound or 0.0, 1e-6))
    axes.set_xlabel("time of day")
    axes.set_ylabel("posterior shift of the strong adversary")
    if top:
        axes.legend(frameon=False, fontsize=9, labelcolor=TEXT_COLOR, loc="upper right", ncols=2)
