"""`murmurate audit`: what every adversary found out about a plan, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from murmurate import __version__
from murmurate.curator.document import digest
from murmurate.curator.plan import Plan
from murmurate.curator.planfile import load_plan
from murmurate.lab.audit_attack import FALSE_CONVICTION, Attack
from murmurate.lab.audit_figure import figure
from murmurate.lab.audit_run import run_audit, samples_to_find
from murmurate.lab.audit_scene import target_kinds

_SEED = 1
_RARELY = 1000  # draws of which one is forgotten, in the sentence on what the audit can see
_GUESSING = "no better than guessing"
COLUMNS = ("attack", "AUC, 95 %", "at most", "evidence", "at most", "verdict")


def audit(plan_file: Path, out: Path, days: int, samples: int) -> bool:
    """Attack the plan, print and write what came of it; whether every attack stayed within its bound."""
    plan = load_plan(plan_file.read_text(encoding="utf-8"))
    out.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("attacking", total=1.0)
        attacks = run_audit(plan, days, _SEED, lambda share: bar.advance(task, share), samples=samples)
    write(plan, attacks, days, samples, out)
    console = Console(width=min(80, Console().width), highlight=False)
    console.print(heading(plan, days, samples), markup=False, style="bold")
    console.print("", table(attacks), "", sep="\n")
    console.print("\n".join(sentences(plan, attacks, samples)), markup=False)
    console.print(f"\nreport.md, audit.json and attacks.png, .svg are in {out}/", markup=False, soft_wrap=True)
    return all(attack.ok for attack in attacks)


def write(plan: Plan, attacks: tuple[Attack, ...], days: int, samples: int, out: Path) -> None:
    """`report.md`, `audit.json` and the figure."""
    (out / "report.md").write_text(markdown(plan, attacks, days, samples), encoding="utf-8")
    (out / "audit.json").write_text(document(plan, attacks, days, samples), encoding="utf-8")
    drawn = figure(plan, most_telling(attacks), days)
    for kind in ("png", "svg"):
        drawn.savefig(out / f"attacks.{kind}", dpi=200, metadata={"Date": None} if kind == "svg" else None)


def heading(plan: Plan, days: int, samples: int) -> str:
    zone = plan.zone
    lived = "one day" if days == 1 else f"{days:,} days"
    return f"Audit of {zone.name}: {zone.households:,} households, {lived}, {samples:,} samples"


def most_telling(attacks: tuple[Attack, ...]) -> list[Attack]:
    """Of each attack the target that gave most away, each followed by the same attack without noise."""
    shown = []
    for name in dict.fromkeys(attack.name for attack in attacks):
        alike = [attack for attack in attacks if attack.name == name]
        worst = max((attack for attack in alike if attack.noise), key=lambda attack: attack.severity)
        shown.append(worst)
        shown += [attack for attack in alike if not attack.noise and attack.target == worst.target]
    return shown


def table(attacks: tuple[Attack, ...]) -> Table:
    """One row an attack, within 80 columns."""
    found = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(COLUMNS):
        found.add_column(name, justify="left" if number in {0, 5} else "right", no_wrap=True)
    for attack in most_telling(attacks):
        found.add_row(*_cells(attack), style="red" if not attack.ok else "" if attack.noise else "dim")
    return found


def _cells(attack: Attack) -> tuple[str, ...]:
    name = attack.name if attack.noise else "without noise"
    if not attack.ran:
        return name, "", "", "", "", "not run"
    return (
        name,
        _auc(attack),
        "" if attack.auc is None else _bound(attack, attack.auc_bound),
        _evidence(attack),
        "" if attack.measured is None else _bound(attack, attack.bound),
        _verdict(attack),
    )


def _auc(attack: Attack) -> str:
    if attack.auc is None:
        return ""
    return f"{attack.auc.mean:.3f} ± {attack.auc.half_width:.3f}" if attack.better_than_guessing else _GUESSING


def _evidence(attack: Attack) -> str:
    if attack.measured is None:
        return ""
    if attack.measured == 0:
        return "none"
    letter = {"posterior shift": "shift", "epsilon": "eps"}[attack.quantity]
    return f"{letter} {attack.measured:.3f}" if np.isfinite(attack.measured) else "certainty"


def _bound(attack: Attack, bound: float | None) -> str:
    if bound is None:
        return "no bound" if attack.noise else ""
    return f"{bound:.3f}"


def _verdict(attack: Attack) -> str:
    if not attack.noise:
        return ""
    if attack.auc_bound is None and attack.bound is None:
        return "no bound"
    return "within" if attack.ok else "BROKEN"


def sentences(plan: Plan, attacks: tuple[Attack, ...], samples: int) -> list[str]:
    """What an attacker learned, what that proves, what was left out."""
    shown = most_telling(attacks)
    who = {
        "public": "A neighbour who has the model and the prices",
        "strong": "An attacker who knows all other readings",
    }
    ranked = {attack.name for attack in shown if attack.auc is not None}
    said = [_learned(words, name, shown) for name, words in who.items() if name in ranked]
    broken = [_conviction(attack) for attack in shown if not attack.ok]
    said.append(
        f"Broken by {'; '.join(broken)}. Do not publish under this plan."
        if broken
        else "No attack passed the plan's bound. That alone proves nothing; the plan's proof does."
    )
    said.append(
        f"All verdicts together convict a plan that keeps its promise with a chance below {FALSE_CONVICTION:g}."
    )
    said.append(_targets(plan))
    needed = samples_to_find(plan, 1 / _RARELY)
    if needed is not None:
        said.append(
            f"Noise that is forgotten once in {_RARELY:,} draws is found from about {_rounded(needed):,} samples on; "
            f"this run had {samples:,}."
        )
    said += [f"{attack.name}: {attack.note}." for attack in shown if attack.note]
    return said


def _targets(plan: Plan) -> str:
    models = {kind.name: len(kind.models) for kind in target_kinds(plan.zone)}
    names = ", ".join(name if many == 1 else f"{name} ({many} models)" for name, many in models.items())
    if sum(models.values()) == 1:
        return f"Target: {names}."
    return f"Targets: {names}. Each row shows the one that gave most away."


def _rounded(number: int) -> int:
    """Two digits are enough, rounded up."""
    step: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // step) * step


def _learned(words: str, name: str, shown: list[Attack]) -> str:
    noised, bare = (attack for attack in shown if attack.name == name)
    allowed = "" if noised.auc_bound is None else f" (at most {100 * noised.auc_bound:.1f} % allowed)"
    without = f"; without noise it is right {_often(bare)} of the time" if bare.better_than_guessing else ""
    if noised.better_than_guessing:
        return f"{words} tells home from away {_often(noised)} of the time{allowed}{without}. Guessing is right 50 %."
    either = without or ", with noise or without"
    return f"{words} does no better than guessing whether the target is home{either}."


def _often(attack: Attack) -> str:
    return "" if attack.auc is None else f"{100 * attack.auc.mean:.1f} %"


def _conviction(attack: Attack) -> str:
    facts = attack.worlds and f", {attack.worlds}"
    measured = "" if attack.measured is None else f": {_evidence(attack)}, at most {_bound(attack, attack.bound)}"
    return f"{attack.name} ({attack.target}{facts}{measured})"


def markdown(plan: Plan, attacks: tuple[Attack, ...], days: int, samples: int) -> str:
    """`report.md`: every target has its rows."""
    lines = [f"# {heading(plan, days, samples)}", ""]
    lines += [f"Noise: discrete {plan.law.value}, plan {digest(plan.document())[:16]}."]
    lines += ["Promises: " + "; ".join(f"{c.promise} (costs {c.spent:.4g})" for c in plan.costs) + "."]
    kinds = ", ".join(f"{kind.name} (up to {kind.bound_wh:,} Wh)" for kind in target_kinds(plan.zone))
    lines += [f"Attacked: {kinds}.", ""]
    names = (*COLUMNS[:1], "target", "knows", *COLUMNS[1:], "most telling")
    lines += [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for attack in attacks:
        name, *rest = _cells(attack)
        lines.append(f"| {' | '.join([name.strip(), attack.target, attack.knows, *rest, attack.worlds])} |")
    lines += ["", *(f"- {sentence}" for sentence in sentences(plan, attacks, samples))]
    return "\n".join([*lines, "", "![attacks](attacks.svg)", ""])


def document(plan: Plan, attacks: tuple[Attack, ...], days: int, samples: int) -> str:
    """`audit.json`: every number of the report; null where something was not measured or has no bound."""
    found: dict[str, Any] = {
        "murmurate": __version__,
        "rehearsal": True,
        "plan": digest(plan.document()),
        "days": days,
        "samples": samples,
        "seed": _SEED,
        "false_conviction": FALSE_CONVICTION,
        "ok": all(attack.ok for attack in attacks),
        "attacks": [
            asdict(attack)
            | {
                "auc": attack.auc and attack.auc._asdict(),
                "better_than_guessing": attack.better_than_guessing,
                "ran": attack.ran,
            }
            for attack in attacks
        ],
    }
    return json.dumps(_finite(found), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same without infinities, which JSON does not know: certainty is a word."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return "infinite" if isinstance(value, float) and not np.isfinite(value) else value
