"""`murmurate audit`: attack a plan and compare what is learnt with what it promises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.operations.options import AsJson, optional_imports

with optional_imports():
    from murmurate.lab.audit.plan_audit import audit
    from murmurate.lab.audit.report import make_audit_report
    from murmurate.lab.report import make_progress_bar
    from murmurate.operations.plan_files import load_plan_file


def audit_plan(
    plan_file: Annotated[Path, typer.Argument(help="A plan.json written by murmurate plan.", dir_okay=False)],
    out: Annotated[Path, typer.Option(help="Folder for the report and its figures.", file_okay=False)] = Path("audit"),
    days: Annotated[int, typer.Option(help="Simulated days; more days detect smaller leaks.", min=2)] = 200,
    samples: Annotated[
        int, typer.Option(help="Releases drawn in each of two cases; more samples detect rarer faults.", min=1000)
    ] = 1_000_000,
    *,
    as_json: AsJson = False,
) -> int:
    """Attack the plan, write and print the report. Returns 1 if an attack beats its bound."""
    plan = load_plan_file(plan_file)
    out.mkdir(parents=True, exist_ok=True)
    with make_progress_bar() as bar:
        task = bar.add_task("attacking", total=1.0)
        attacks = audit(plan, days=days, samples=samples, progress=lambda share: bar.advance(task, share))
    make_audit_report(plan, attacks, days, samples).write_and_print(out, as_json=as_json)
    return 0 if all(attack.ok for attack in attacks) else 1
