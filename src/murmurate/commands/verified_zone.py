"""One zone of a public log, read only if everything holds that it is made from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from murmurate.commands.log_source import open_log_source, source_name
from murmurate.commands.plan_documents import read_plan_document
from murmurate.commands.verify import require_log
from murmurate.errors import MurmurateError
from murmurate.verification.releases import LoggedZone, read_zone_history
from murmurate.verification.report import VerificationReport
from murmurate.verification.sources import LogSource
from murmurate.verification.verifier import check_log


def read_verified_zone(source: str, zone: str, plans: Sequence[Path] = (), key: str | None = None) -> LoggedZone:
    """Verify a log and return what it holds about a zone. `source` is as `murmurate verify` takes it.

    Raises MurmurateError where anything is wrong, a plan is missing or the zone is not there.
    """
    report, logged = _read_zone(source, zone, plans, key)  # which has closed the log, whatever is raised here
    _require_verified(report, source_name(source), zone)
    return logged


def _read_zone(source: str, zone: str, plans: Sequence[Path], key: str | None) -> tuple[VerificationReport, LoggedZone]:
    """Return what is wrong with the log, and what it holds about the zone if nothing is."""
    name, opened = source_name(source), open_log_source(source)
    require_log(name, opened, is_only=True)
    texts = [read_plan_document(path) for path in plans]
    report = _verify(name, opened, texts, key, zone)
    usable = report.is_valid and report.is_complete
    return report, read_zone_history(opened, zone, texts) if usable else LoggedZone([], {})


def _verify(name: str, source: LogSource, plans: Sequence[str], key: str | None, zone: str) -> VerificationReport:
    error = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=error, transient=True, disable=not error.is_terminal) as bar:
        task = bar.add_task("verifying the log")
        return check_log(
            {name: source},
            plans=plans,
            expected_key=key,
            zones={zone},
            progress=lambda done: bar.update(task, description=f"verifying the log: {done:,} records"),
        )


def _require_verified(report: VerificationReport, name: str, zone: str) -> None:
    if not report.is_valid:
        first = report.findings[0]
        words = f"not right ({report.finding_count:,} findings; the first is {first.rule}: {first.message})"
        remedy = f"nothing is made from it. murmurate verify {name} lists everything; take another copy of the log"
        raise MurmurateError(f"log {name}", words, remedy)
    if not report.is_complete:
        digest = next(iter(report.missing_plans))
        raise MurmurateError("plan", f"{digest}, which {name} does not hold", "must be given: --plan plan.json")
    if zone not in report.zones:
        raise MurmurateError(f"zone {zone}", f"not in {name}", "must be one that murmurate verify shows for this log")
