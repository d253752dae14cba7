"""`murmurate audit`: what every adversary found out about a plan, for people, for programs and as a figure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from murmurate import __version__
from murmurate.curator.document import digest
from murmurate.curator.plan import Plan
from murmurate.curator.planfile import load_plan
from murmurate.lab.audit_run import CONFIDENCE, PHASES, Attack, run_audit
from murmurate.lab.audit_scene import target_kind
from murmurate.lab.figures import INK, MUTED, NAIVE, PRIVATE, title

_SEED = 1
_BROKEN = "#b3261e"
COLUMNS = ("attack", "AUC, 95 %", "at most", "evidence", "at most", "verdict")


def audit(plan_file: Path, out: Path, days: int) -> bool:
    """Attack the plan, print and write what came of it; whether every attack stayed within its bound."""
    plan = load_plan(plan_file.read_text(encoding="utf-8"))
    out.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("listening", total=PHASES * days)
        attacks = run_audit(plan, days, _SEED, lambda done: bar.advance(task, done))
    write(plan, attacks, days, out)
    console = Console(width=min(80, Console().width), highlight=False)
    console.print(heading(plan, days), markup=False, style="bold")
    console.print(table(attacks))
    console.print("\n".join(sentences(plan, attacks, days)), markup=False)
    console.print(f"\nreport.md, audit.json and attacks.png, .svg are in {out}/", markup=False, soft_wrap=True)
    return all(attack.ok for attack in attacks)


def write(plan: Plan, attacks: tuple[Attack, ...], days: int, out: Path) -> None:
    """`report.md`, `audit.json` and the figure."""
    (out / "report.md").write_text(markdown(plan, attacks, days), encoding="utf-8")
    (out / "audit.json").write_text(document(plan, attacks, days), encoding="utf-8")
    drawn = figure(plan, attacks, days)
    for kind in ("png", "svg"):
        drawn.savefig(out / f"attacks.{kind}", dpi=200, metadata={"Date": None} if kind == "svg" else None)


def heading(plan: Plan, days: int) -> str:
    zone = plan.zone
    lived = "one day" if days == 1 else f"{days:,} days"
    return f"Audit of {zone.name}: {zone.households:,} households, {lived}, target: a {target_kind(zone).name}"


def table(attacks: tuple[Attack, ...]) -> Table:
    """One row an attack, within 80 columns."""
    found = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(COLUMNS):
        found.add_column(name, justify="left" if number in {0, 5} else "right", no_wrap=True)
    for attack in attacks:
        found.add_row(*_cells(attack), style="" if attack.ok else "red")
    return found


def _cells(attack: Attack) -> tuple[str, ...]:
    if not attack.ran:
        return attack.name, "", "", "", "", "not run"
    ranked = attack.auc and f"{attack.auc.mean:.3f} ± {attack.auc.half_width:.3f}"
    letter = {"posterior shift": "shift", "epsilon": "eps"}.get(attack.quantity, "")
    bounded = attack.auc_bound is not None or attack.bound is not None
    return (
        attack.name,
        ranked or "",
        _number(attack.auc_bound) if attack.auc_bound is not None else "no bound",
        f"{letter} {_number(attack.measured)}" if attack.measured is not None else "",
        "" if attack.measured is None else "no bound" if attack.bound is None else _number(attack.bound),
        ("within" if attack.ok else "BROKEN") if bounded else "no bound",
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def sentences(plan: Plan, attacks: tuple[Attack, ...], days: int) -> list[str]:
    """What an attacker learned, what that proves, what was left out."""
    day = plan.zone.intervals_per_day
    said = []
    ranked = {attack.name: attack for attack in attacks if attack.auc is not None}
    if public := ranked.get("public"):
        said.append(f"A neighbour who has the model and the prices tells a day at home from one away {_often(public)}.")
    if strong := ranked.get("strong"):
        at = strong.worst_interval
        worst = (
            "" if at is None else f"; at best, at {_clock(at, day)}, {100 * (strong.auc_by_interval[at] or 0.5):.1f} %"
        )
        said.append(f"Who knows all other readings is right {_often(strong)}{worst}. Guessing is right 50 %.")
    broken = [attack.name for attack in attacks if not attack.ok]
    said.append(
        f"Broken by: {', '.join(broken)}. Do not publish under this plan."
        if broken
        else f"No attack passed the plan's bound in {days:,} days. That alone proves nothing; the plan's proof does."
    )
    said.append(f"Each verdict allows for chance at {100 * CONFIDENCE:g} %; eps is a lower bound at that confidence.")
    said += [f"{attack.name}: {attack.note}." for attack in attacks if attack.note]
    return said


def _often(attack: Attack) -> str:
    if attack.auc is None:
        return ""
    allowed = "" if attack.auc_bound is None else f" (at most {100 * attack.auc_bound:.1f} % allowed)"
    return f"{100 * attack.auc.mean:.1f} % of the time{allowed}"


def _clock(interval: int, day: int) -> str:
    minutes = interval * 1440 // day
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def markdown(plan: Plan, attacks: tuple[Attack, ...], days: int) -> str:
    """`report.md`."""
    lines = [f"# {heading(plan, days)}", "", f"Noise: discrete {plan.law.value}, plan {digest(plan.document())[:16]}."]
    lines += ["Promises: " + "; ".join(f"{c.promise} (costs {c.spent:.4g})" for c in plan.costs) + ".", ""]
    names = (*COLUMNS[:1], "knows", *COLUMNS[1:])
    lines += [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for attack in attacks:
        name, *rest = _cells(attack)
        lines.append(f"| {' | '.join([name, attack.knows, *rest])} |")
    lines += ["", *(f"- {sentence}" for sentence in sentences(plan, attacks, days)), "", "![attacks](attacks.svg)", ""]
    return "\n".join(lines)


def document(plan: Plan, attacks: tuple[Attack, ...], days: int) -> str:
    """`audit.json`: every number of the report; null where something was not measured or has no bound."""
    found: dict[str, Any] = {
        "murmurate": __version__,
        "rehearsal": True,
        "plan": digest(plan.document()),
        "days": days,
        "seed": _SEED,
        "confidence": CONFIDENCE,
        "ok": all(attack.ok for attack in attacks),
        "attacks": [
            asdict(attack) | {"auc": attack.auc and attack.auc._asdict(), "ran": attack.ran} for attack in attacks
        ],
    }
    return json.dumps(_finite(found), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same without infinities, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def figure(plan: Plan, attacks: tuple[Attack, ...], days: int) -> Figure:
    """Left: the AUC of each adversary and its bound. Right: what the strong one learns in the course of the day."""
    drawn = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(1, 1.15))
    _draw_auc(left, [attack for attack in attacks if attack.auc is not None])
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
        colour = PRIVATE if attack.ok else _BROKEN
        axes.barh(row, attack.auc.mean - 0.5, left=0.5, height=0.55, color=colour, alpha=0.85, lw=0)
        axes.plot([attack.auc.low, attack.auc.high], [row, row], color=INK, lw=1.4)
        if attack.auc_bound is not None:
            axes.plot([attack.auc_bound] * 2, [row - 0.4, row + 0.4], color=NAIVE, lw=3, solid_capstyle="butt")
    axes.plot([], [], color=NAIVE, lw=3, label="the plan's bound")
    axes.axvline(0.5, color=INK, lw=1)
    axes.set_yticks(range(len(attacks)), [attack.name for attack in attacks])
    axes.invert_yaxis()
    ends = [end for a in attacks if a.auc for end in (a.auc.low, a.auc.high, a.auc_bound or 0.5)]
    axes.set_xlim(min([0.48, *ends]) - 0.01, max([0.6, *ends]) + 0.03)
    axes.set_xlabel("area under the ROC curve")
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="lower right")


def _draw_day(axes: Axes, attacks: tuple[Attack, ...], day: int) -> None:
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
        axes.text(0.2, bound, "the plan's bound", va="bottom", color=MUTED, fontsize=9)
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 4), [f"{hour:02d}:00" for hour in range(0, 25, 4)])
    axes.set_ylim(0, 1.35 * max(top, bound or 0.0, 1e-6))
    axes.set_xlabel("time of day")
    axes.set_ylabel("posterior shift of the strong adversary")
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="upper right", ncols=2)
