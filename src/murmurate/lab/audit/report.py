"""The reports of `murmurate audit`: a table, Markdown, JSON and a figure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from murmurate import __version__
from murmurate.lab.audit.attack_result import FAMILYWISE_ERROR_RATE, AttackResult
from murmurate.lab.audit.figure import draw_attack_figure
from murmurate.lab.audit.run_attacks import audit_samples_needed
from murmurate.lab.audit.simulated_zone import target_kinds
from murmurate.planning.plan import Plan
from murmurate.planning.release_terms import compute_plan_digest

AUDIT_SEED = 1
_DRAWS_PER_SKIP = 1000  # one of so many draws is skipped, in the sentence on the power of the audit
_NO_BETTER_THAN_GUESSING = "no better than guessing"
ATTACK_COLUMNS = ("attack", "AUC, 95 %", "at most", "evidence", "at most", "verdict")


def write_audit_report(plan: Plan, attacks: tuple[AttackResult, ...], days: int, samples: int, out: Path) -> None:
    """Write `report.md`, `audit.json` and the figure."""
    (out / "report.md").write_text(markdown_report(plan, attacks, days, samples), encoding="utf-8")
    (out / "audit.json").write_text(json_report(plan, attacks, days, samples), encoding="utf-8")
    drawn = draw_attack_figure(plan, worst_results(attacks), days)
    for kind in ("png", "svg"):
        drawn.savefig(out / f"attacks.{kind}", dpi=200, metadata={"Date": None} if kind == "svg" else None)


def report_heading(plan: Plan, days: int, samples: int) -> str:
    zone = plan.zone
    duration = "one day" if days == 1 else f"{days:,} days"
    return f"Audit of {zone.name}: {zone.household_count:,} households, {duration}, {samples:,} samples"


def worst_results(attacks: tuple[AttackResult, ...]) -> list[AttackResult]:
    """Return the worst target of each attack, each followed by the same attack without noise."""
    shown = []
    for name in dict.fromkeys(attack.name for attack in attacks):
        alike = [attack for attack in attacks if attack.name == name]
        worst = max((attack for attack in alike if attack.noise), key=lambda attack: attack.severity)
        shown.append(worst)
        shown += [attack for attack in alike if not attack.noise and attack.target == worst.target]
    return shown


def attack_table(attacks: tuple[AttackResult, ...]) -> Table:
    """Return a table with one row per attack, within 80 columns."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(ATTACK_COLUMNS):
        table.add_column(name, justify="left" if number in {0, 5} else "right", no_wrap=True)
    for attack in worst_results(attacks):
        table.add_row(*_cells(attack), style="red" if not attack.ok else "" if attack.noise else "dim")
    return table


def _cells(attack: AttackResult) -> tuple[str, ...]:
    name = attack.name if attack.noise else "without noise"
    if not attack.was_run:
        return name, "", "", "", "", "not run"
    return (
        name,
        _format_auc(attack),
        "" if attack.auc is None else _format_bound(attack, attack.auc_bound),
        _format_measured(attack),
        "" if attack.measured is None else _format_bound(attack, attack.bound),
        _attack_verdict(attack),
    )


def _format_auc(attack: AttackResult) -> str:
    if attack.auc is None:
        return ""
    return (
        f"{attack.auc.mean:.3f} ± {attack.auc.half_width:.3f}"
        if attack.better_than_guessing
        else _NO_BETTER_THAN_GUESSING
    )


def _format_measured(attack: AttackResult) -> str:
    if attack.measured is None:
        return ""
    if attack.measured == 0:
        return "none"
    letter = {"posterior shift": "shift", "epsilon": "eps"}[attack.quantity]
    return f"{letter} {attack.measured:.3f}" if np.isfinite(attack.measured) else "certainty"


def _format_bound(attack: AttackResult, bound: float | None) -> str:
    if bound is None:
        return "no bound" if attack.noise else ""
    return f"{bound:.3f}"


def _attack_verdict(attack: AttackResult) -> str:
    if not attack.noise:
        return ""
    if attack.auc_bound is None and attack.bound is None:
        return "no bound"
    return "within" if attack.ok else "BROKEN"


def summary_sentences(plan: Plan, attacks: tuple[AttackResult, ...], samples: int) -> list[str]:
    """Return sentences on the results of the attackers, the verdict, and attacks that were not run."""
    shown = worst_results(attacks)
    subjects = {
        "public": "A neighbour who has the model and the prices",
        "strong": "An attacker who knows all other readings",
    }
    ranked = {attack.name for attack in shown if attack.auc is not None}
    sentences = [_success_sentence(subject, name, shown) for name, subject in subjects.items() if name in ranked]
    broken = [_describe_violation(attack) for attack in shown if not attack.ok]
    sentences.append(
        f"Broken by {'; '.join(broken)}. Do not publish under this plan."
        if broken
        else "No attack passed the plan's bound. That alone proves nothing; the plan's proof does."
    )
    sentences.append(
        f"All verdicts together convict a plan that keeps its promise with a chance below {FAMILYWISE_ERROR_RATE:g}."
    )
    sentences.append(_targets_sentence(plan))
    needed = audit_samples_needed(plan, 1 / _DRAWS_PER_SKIP)
    if needed is not None:
        sentences.append(
            f"Noise that is skipped once in {_DRAWS_PER_SKIP:,} draws is found from about {_round_up(needed):,} "
            f"samples on; this run had {samples:,}."
        )
    sentences += [f"{attack.name}: {attack.note}." for attack in shown if attack.note]
    return sentences


def _targets_sentence(plan: Plan) -> str:
    models = {kind.name: len(kind.models) for kind in target_kinds(plan.zone)}
    names = ", ".join(name if count == 1 else f"{name} ({count} models)" for name, count in models.items())
    if sum(models.values()) == 1:
        return f"Target: {names}."
    return f"Targets: {names}. Each row shows the one that gave most away."


def _round_up(number: int) -> int:
    """Round up to two significant digits."""
    step: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // step) * step


def _success_sentence(words: str, name: str, shown: list[AttackResult]) -> str:
    noised, bare = (attack for attack in shown if attack.name == name)
    allowed = "" if noised.auc_bound is None else f" (at most {100 * noised.auc_bound:.1f} % allowed)"
    without = f"; without noise it is right {_success_rate(bare)} of the time" if bare.better_than_guessing else ""
    if noised.better_than_guessing:
        success = f"{words} tells home from away {_success_rate(noised)} of the time"
        return f"{success}{allowed}{without}. Guessing is right 50 %."
    either = without or ", with noise or without"
    return f"{words} does no better than guessing whether the target is home{either}."


def _success_rate(attack: AttackResult) -> str:
    return "" if attack.auc is None else f"{100 * attack.auc.mean:.1f} %"


def _describe_violation(attack: AttackResult) -> str:
    facts = attack.best_statistic and f", {attack.best_statistic}"
    measured = (
        ""
        if attack.measured is None
        else f": {_format_measured(attack)}, at most {_format_bound(attack, attack.bound)}"
    )
    return f"{attack.name} ({attack.target}{facts}{measured})"


def markdown_report(plan: Plan, attacks: tuple[AttackResult, ...], days: int, samples: int) -> str:
    """Return `report.md`, with the rows of every target."""
    lines = [f"# {report_heading(plan, days, samples)}", ""]
    lines += [f"Noise: discrete {plan.distribution.value}, plan {compute_plan_digest(plan.to_document())[:16]}."]
    lines += ["Promises: " + "; ".join(f"{c.promise} (costs {c.spent:.4g})" for c in plan.costs) + "."]
    kinds = ", ".join(f"{kind.name} (up to {kind.bound_wh:,} Wh)" for kind in target_kinds(plan.zone))
    lines += [f"Attacked: {kinds}.", ""]
    names = (*ATTACK_COLUMNS[:1], "target", "knows", *ATTACK_COLUMNS[1:], "most telling")
    lines += [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for attack in attacks:
        name, *rest = _cells(attack)
        lines.append(f"| {' | '.join([name.strip(), attack.target, attack.knows, *rest, attack.best_statistic])} |")
    lines += ["", *(f"- {sentence}" for sentence in summary_sentences(plan, attacks, samples))]
    return "\n".join([*lines, "", "![attacks](attacks.svg)", ""])


def json_report(plan: Plan, attacks: tuple[AttackResult, ...], days: int, samples: int) -> str:
    """Return `audit.json`: every number of the report; null if it was not measured or has no bound."""
    document: dict[str, Any] = {
        "murmurate": __version__,
        "test_only": True,
        "plan": compute_plan_digest(plan.to_document()),
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
    return json.dumps(_without_infinities(document), indent=1, allow_nan=False) + "\n"


def _without_infinities(value: Any) -> Any:
    """Replace infinities, which JSON does not support, by the text "infinite"."""
    if isinstance(value, dict):
        return {key: _without_infinities(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(item) for item in value]
    return "infinite" if isinstance(value, float) and not np.isfinite(value) else value
