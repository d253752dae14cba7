"""`murmurate audit`: attack a plan and compare what is learnt with what it promises."""

from __future__ import annotations

from pathlib import Path

from murmurate.commands.plan_documents import load_plan_file
from murmurate.lab.audit.report import AUDIT_SEED, make_audit_report
from murmurate.lab.audit.run_attacks import run_audit
from murmurate.lab.report import make_progress_bar


def audit_plan(plan_file: Path, out: Path, days: int, samples: int, *, as_json: bool = False) -> bool:
    """Attack the plan, write and print the report. Return whether every attack stayed within its bound."""
    plan = load_plan_file(plan_file)
    out.mkdir(parents=True, exist_ok=True)
    with make_progress_bar() as bar:
        task = bar.add_task("attacking", total=1.0)
        attacks = run_audit(plan, days, AUDIT_SEED, lambda share: bar.advance(task, share), samples=samples)
    make_audit_report(plan, attacks, days, samples).write_and_print(out, as_json=as_json)
    return all(attack.ok for attack in attacks)
