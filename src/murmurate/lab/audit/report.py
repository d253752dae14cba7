"""The report of `murmurate audit`: what each attacker achieved, and the most that the plan allows."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from murmurate import __version__
from murmurate.lab.audit.attack import AUDIT_SEED, AttackResult
from murmurate.lab.audit.attack_verdict import FAMILYWISE_ERROR_RATE
from murmurate.lab.audit.run_attacks import audit_samples_needed
from murmurate.lab.audit.simulated_zone import target_kinds
from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, PRIVATE_COLOR, TEXT_COLOR, set_axes_title, style_axes
from murmurate.lab.report import Report
from murmurate.planning.plan import Plan
from murmurate.planning.release_terms import compute_plan_digest, format_range

_DRAWS_PER_SKIP = 1000  # the sentence on the power of the audit is about noise that is skipped once in this many draws
_NO_BETTER_THAN_GUESSING = "no better than guessing"
_COLUMNS = ("attack", "AUC, 95 %", "at most", "evidence", "at most", "verdict")
_BROKEN_COLOR = "#b3261e"
_NO_NOISE_COLOR = "#c9d1d9"


def make_audit_report(plan: Plan, attacks: tuple[AttackResult, ...], days: int, samples: int) -> Report:
    """Return the report of some attacks on a plan. A number is null if it was not measured or has no bound."""
    zone, digest = plan.zone, compute_plan_digest(plan.to_document())
    numbers = {
        "murmurate": __version__,
        "test_only": True,
        "plan": digest,
        "days": days,
        "samples": samples,
        "seed": AUDIT_SEED,
        "false_conviction": FAMILYWISE_ERROR_RATE,
        "ok": all(attack.ok for attack in attacks),
        "attacks": [
            asdict(attack)
            | {
                "auc": attack.auc and attack.auc._asdict(),
                "better_than_guessing": attack.better_than_guessing,
                "ran": attack.was_run,
            }
            for attack in attacks
        ],
    }
    duration = "one day" if days == 1 else f"{days:,} days"
    title = f"Audit of {zone.name}: {zone.household_count:,} households, {duration}, {samples:,} samples"
    report, shown = Report(title, numbers, "audit.json"), worst_results(attacks)
    report.add_text(f"Noise: discrete {plan.distribution.value}, plan {digest[:16]}.", brief=False)
    promises = "; ".join(f"{cost.promise} (costs {cost.spent:.4g})" for cost in plan.costs)
    report.add_text(f"Promises: {promises}.", brief=False)
    targets = target_kinds(zone)
    kinds = ", ".join(f"{kind.name} ({format_range(kind.bound_wh, kind.export_bound_wh)})" for kind in targets)
    report.add_text(f"Attacked: {kinds}.", brief=False)
    report.add_table(
        _COLUMNS, [attack_cells(attack) for attack in shown], kinds=[_row_kind(attack) for attack in shown]
    )
    report.add_list(summary_sentences(plan, attacks, samples))
    report.add_figure("attacks", draw_attack_figure(plan, shown, days), "Success of each attacker, and leakage by hour")
    report.add_heading("Every target")
    rows = []
    for attack in attacks:
        name, *cells = attack_cells(attack)
        rows.append([f"{name}: {attack.target}", *cells, attack.best_statistic, attack.knows])
    names = ("attack: target", *_COLUMNS[1:], "most telling", "the attacker knows")
    report.add_table(names, rows, kinds=[_row_kind(attack) for attack in attacks], brief=False)
    return report


def worst_results(attacks: tuple[AttackResult, ...]) -> list[AttackResult]:
    """Return the worst target of each attack, each followed by the same attack without noise."""
    shown = []
    for name in dict.fromkeys(attack.name for attack in attacks):
        alike = [attack for attack in attacks if attack.name == name]
        worst = max((attack for attack in alike if attack.noise), key=lambda attack: attack.severity)
        shown.append(worst)
        shown += [attack for attack in alike if not attack.noise and attack.target == worst.target]
    return shown


def _row_kind(attack: AttackResult) -> str:
    return "broken" if not attack.ok else "" if attack.noise else "muted"


def attack_cells(attack: AttackResult) -> tuple[str, ...]:
    """Return the row of an attack."""
    name = attack.name if attack.noise else "without noise"
    if not attack.was_run:
        return name, "", "", "", "", attack.verdict
    no_bound = "no bound" if attack.noise else ""
    auc, auc_bound = "", ""
    if attack.auc is not None:
        measured_auc = f"{attack.auc.mean:.3f} ± {attack.auc.half_width:.3f}"
        auc = measured_auc if attack.better_than_guessing else _NO_BETTER_THAN_GUESSING
        auc_bound = no_bound if attack.auc_bound is None else f"{attack.auc_bound:.3f}"
    measured, bound = "", ""
    if attack.measured is not None:
        bound = no_bound if attack.bound is None else f"{attack.bound:.3f}"
        letter = {"posterior shift": "shift", "epsilon": "eps"}[attack.quantity]
        measured = f"{letter} {attack.measured:.3f}" if np.isfinite(attack.measured) else "certainty"
        measured = measured if attack.measured else "none"
    return name, auc, auc_bound, measured, bound, attack.verdict


def summary_sentences(plan: Plan, attacks: tuple[AttackResult, ...], samples: int) -> list[str]:
    """Return sentences on the results of the attackers, the verdict, and attacks that were not run."""
    shown = worst_results(attacks)
    subjects = {
        "public": "A neighbour who has the model and the prices",
        "strong": "An attacker who knows all other readings",
    }
    sentences = []
    for name, subject in subjects.items():
        alike = [attack for attack in shown if attack.name == name]
        if any(attack.auc is not None for attack in alike):
            sentences.append(_success_sentence(subject, *alike))
    broken = []
    for attack in shown:
        if not attack.ok:
            measured, bound = attack_cells(attack)[3:5]
            evidence = measured and f": {measured}, at most {bound}"
            broken.append(
                f"{attack.name} ({', '.join(filter(None, (attack.target, attack.best_statistic)))}{evidence})"
            )
    sentences.append(
        f"Broken by {'; '.join(broken)}. Do not publish under this plan."
        if broken
        else "No attack passed the plan's bound. That alone proves nothing; the plan's proof does."
    )
    sentences.append(
        f"All verdicts together convict a plan that keeps its promise with a chance below {FAMILYWISE_ERROR_RATE:g}."
    )
    models = {kind.name: len(kind.models) for kind in target_kinds(plan.zone)}
    names = ", ".join(name if count == 1 else f"{name} ({count} models)" for name, count in models.items())
    is_only = sum(models.values()) == 1
    sentences.append(
        f"Target: {names}." if is_only else f"Targets: {names}. Each row shows the one that gave most away."
    )
    needed = audit_samples_needed(plan, 1 / _DRAWS_PER_SKIP)
    if needed is not None:
        step = 10 ** max(0, len(str(needed)) - 2)  # two digits are shown
        shown_needed = f"{-(-needed // step) * step:,}"
        sentences.append(
            f"Noise that is skipped once in {_DRAWS_PER_SKIP:,} draws is found from about {shown_needed} samples on; "
            f"this run had {samples:,}."
        )
    return sentences + [f"{attack.name}: {attack.note}." for attack in shown if attack.note]


def _success_sentence(words: str, noised: AttackResult, bare: AttackResult) -> str:
    rates = ["" if attack.auc is None else f"{100 * attack.auc.mean:.1f} %" for attack in (noised, bare)]
    allowed = "" if noised.auc_bound is None else f" (at most {100 * noised.auc_bound:.1f} % allowed)"
    without = f"; without noise it is right {rates[1]} of the time" if bare.better_than_guessing else ""
    if noised.better_than_guessing:
        return f"{words} tells home from away {rates[0]} of the time{allowed}{without}. Guessing is right 50 %."
    return f"{words} does no better than guessing whether the target is home{without or ', with noise or without'}."


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
        style_axes(axes)
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
                _NO_BETTER_THAN_GUESSING,
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
