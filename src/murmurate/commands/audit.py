"""`murmurate audit`: attack a plan and compare what is learnt with what it promises."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from murmurate.commands.json_output import print_json_file
from murmurate.commands.plan_documents import load_plan_file
from murmurate.lab.audit.report import AUDIT_SEED, attack_table, report_heading, summary_sentences, write_audit_report
from murmurate.lab.audit.run_attacks import run_audit


def audit_plan(plan_file: Path, out: Path, days: int, samples: int, *, as_json: bool = False) -> bool:
    """Attack the plan, print and write what came of it; whether every attack stayed within its bound."""
    plan = load_plan_file(plan_file)
    out.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("attacking", total=1.0)
        attacks = run_audit(plan, days, AUDIT_SEED, lambda share: bar.advance(task, share), samples=samples)
    write_audit_report(plan, attacks, days, samples, out)
    ok = all(attack.ok for attack in attacks)
    if as_json:
        print_json_file(out / "audit.json")
        return ok
    console = Console(width=min(80, Console().width), highlight=False)
    console.print(report_heading(plan, days, samples), markup=False, style="bold")
    console.print("", attack_table(attacks), "", sep="\n")
    console.print("\n".join(summary_sentences(plan, attacks, samples)), markup=False)
    console.print(f"\nreport.md, audit.json and attacks.png, .svg are in {out}/", markup=False, soft_wrap=True)
    return ok
