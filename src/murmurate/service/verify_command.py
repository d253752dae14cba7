"""`murmurate verify`: a public log checked from public data alone, and a report that a resident can read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from murmurate.errors import MurmurateError
from murmurate.publication.verification import check_log
from murmurate.publication.verification_report import Proof, Report, ZoneSummary
from murmurate.service.log_sources import open_source

HOLDS, WRONG, INCOMPLETE = 0, 1, 3
MOST_ZONES = 20
NOT_SHOWN = (
    "whether records are missing at the end: compare the last interval with the clock, or with another copy",
    "whether the demand was measured and added up rightly: only the operator sees it",
    "whether the noise was drawn at random, and whether something else was told to somebody else",
    "what the promise itself does not cover: docs/explanation/limits.md",
)


def verify(sources: Sequence[str], plans: Sequence[Path], key: str | None, zones: Sequence[str], out: Path) -> int:
    """Check, print the report, write the proofs; return the exit status."""
    texts = [path.read_text(encoding="utf-8") for path in plans]
    error = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=error, transient=True, disable=not error.is_terminal)
    with bar:
        task = bar.add_task("reading")
        opened = {name: open_source(name) for name in sources}
        report = check_log(
            opened,
            plans=texts,
            expected_key=key,
            zones=set(zones) or None,
            progress=lambda done: bar.update(task, description=f"checking: {done:,} lines"),
        )
    if not report.zones and report.holds:
        what = f"zone {', '.join(zones)}" if zones else "log"
        raise MurmurateError(what, "not in " + ", ".join(sources), "there is no record to check")
    console = Console(width=None if Console().is_terminal else 100, highlight=False, soft_wrap=True)
    print_report(report, console, trusted=key is None)
    for number, proof in enumerate(report.proofs, 1):
        path = out / f"misbehaviour-{number}.json"
        path.write_text(json.dumps(proof._asdict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        _print_proof(proof, path, console)
    console.print(f"[bold]{_verdict(report)}[/]")
    return WRONG if not report.holds else HOLDS if report.complete else INCOMPLETE


def print_report(report: Report, console: Console, *, trusted: bool) -> None:
    """What was checked, what is wrong, and what no check of this kind shows."""
    shown = ", ".join(f"{count:,} in {escape(source)}" for source, count in report.shown.items())
    console.print(f"[bold]Records:[/] {shown}.")
    console.print(_zones(list(report.zones.values())[:MOST_ZONES]))
    if len(report.zones) > MOST_ZONES:
        console.print(f"and {len(report.zones) - MOST_ZONES:,} zones more. --zone shows one of them.\n")
    _print_keys(report, console, trusted=trusted)
    _print_promises(report, console)
    if report.holds:
        console.print("Each record is signed, follows the one before, and is the only one for its interval. Each cost")
        console.print("is its plan's, and the totals are their sums. No rehearsal, no gap.\n")
    else:
        _print_findings(report, console)
    console.print("What no such check shows:")
    for line in NOT_SHOWN:
        console.print(f"  - {line}")
    console.print()


def _zones(zones: Sequence[ZoneSummary]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("zone")
    table.add_column("intervals decided (UTC)")
    for name in ("measured", "forecast", "withheld", "cost so far"):
        table.add_column(name, justify="right")
    for zone in zones:
        kinds = (f"{zone.kinds[kind]:,}" for kind in ("measured", "forecast", "withheld"))
        table.add_row(escape(zone.zone), _span(zone), *kinds, _cost(zone))
    return table


def _span(zone: ZoneSummary) -> str:
    if zone.first is None or zone.last is None:
        return "none yet"
    try:
        times = (datetime.fromtimestamp(at * zone.interval_s, UTC) for at in (zone.first, zone.last + 1))
        return " to ".join(f"{time:%Y-%m-%d %H:%M}" for time in times)
    except (OverflowError, OSError, ValueError):
        return f"{zone.first} to {zone.last}"


def _cost(zone: ZoneSummary) -> str:
    costs = {"epsilon": zone.total_epsilon_micro, "rho": zone.total_rho_micro}
    return ", ".join(f"{name} {micro / 1e6:,.4g}" for name, micro in costs.items() if micro) or "nothing"


def _print_keys(report: Report, console: Console, *, trusted: bool) -> None:
    first = Counter(zone.trusted for zone in report.zones.values() if zone.trusted)
    for key, count in first.most_common(MOST_ZONES):
        console.print(f"[bold]Key[/] {escape(key)} opened {count:,} {'chain' if count == 1 else 'chains'}.")
    rotations = sum(len(zone.keys) - 1 for zone in report.zones.values() if zone.keys)
    if rotations:
        console.print(f"  Keys were changed {rotations:,} times since, each time signed by the key before.")
    if trusted:
        console.print("  It was trusted because it came first. Compare it with the one the operator shows elsewhere,")
        console.print("  or give that one with --key.")
    console.print()


def _print_promises(report: Report, console: Console) -> None:
    for plan in list(report.plans.values())[:MOST_ZONES]:
        console.print(f"[bold]Plan[/] {plan.digest}, made for {escape(plan.zone)}, proven anew:")
        for promise in plan.promises:
            console.print(f"  {escape(promise)}")
    for digest, name in list(report.missing.items())[:MOST_ZONES]:
        console.print(
            f"[bold]Plan[/] {escape(digest)} was not given. It is named by {escape(name)}; give it with --plan."
        )
    console.print()


def _print_findings(report: Report, console: Console) -> None:
    console.print(f"[bold]{report.wrong:,} {'thing is' if report.wrong == 1 else 'things are'} wrong:[/]")
    for finding in report.findings[: 10 * MOST_ZONES]:
        about = finding.zone or finding.source
        number = "" if finding.seq is None else f", record {finding.seq}"
        console.print(f"  {escape(about)}{number}: [bold]{finding.rule}[/]: {escape(finding.words)}", soft_wrap=True)
    if report.wrong > len(report.findings):
        console.print(f"  and {report.wrong - len(report.findings):,} more.")
    console.print("What each rule means: docs/how-to/verify.md\n")


def _print_proof(proof: Proof, path: Path, console: Console) -> None:
    console.print("[bold]Proof of misbehaviour[/]")
    console.print(f"  Whoever holds key {proof.key} signed both of these lines. They cannot both stand: they are")
    console.print(f"  different, and both are {proof.contradicts} of {escape(proof.zone)}. Anybody can check that.")
    for line in proof.lines:
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"  Written to {path}. Keep it, and show it.\n")


def _verdict(report: Report) -> str:
    if not report.holds:
        return "This log is not right."
    if not report.complete:
        return "Everything holds that could be checked, but a plan is missing."
    return "Everything holds."
