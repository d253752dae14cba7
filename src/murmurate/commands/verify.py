"""`murmurate log verify`: a public log checked from public data alone, and a report that a resident can read."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from murmurate.commands.json_output import format_utc, print_json
from murmurate.commands.log_source import open_log_source, source_name
from murmurate.commands.plan_documents import read_plan_document
from murmurate.commands.scheduled_check import CheckedTiles, write_metrics
from murmurate.errors import MurmurateError
from murmurate.verification.releases import LoggedZone, read_zone_history
from murmurate.verification.report import MisbehaviourProof, VerificationReport, ZoneSummary
from murmurate.verification.sources import ItemKind, LogSource, read_items
from murmurate.verification.verifier import check_log

EXIT_VALID, EXIT_INVALID, EXIT_INCOMPLETE = 0, 1, 3
MAX_ZONES_PRINTED = 20
NOT_VERIFIED = (
    "whether tiles are missing at the end: compare the last interval with the clock, or with another copy",
    "whether the demand was measured and added up rightly: only the operator sees it",
    "whether the noise was drawn at random, and whether other values were given to other readers",
    "what the promise itself does not cover: docs/explanation/limits.md",
)


def verify_logs(
    sources: Sequence[str],
    plans: Sequence[Path],
    key: str | None,
    zones: Sequence[str],
    out: Path,
    *,
    known: Path | None = None,
    metrics: Path | None = None,
    as_json: bool = False,
) -> int:
    """Check, print the report, write the proofs; return the exit status."""
    now_s = time.time()
    checked = CheckedTiles() if known is None else CheckedTiles.load(known, now_s)
    if key is not None and not re.fullmatch("[0-9a-fA-F]{64}", key):
        raise MurmurateError("--key", key, "must be 64 hexadecimal digits, as murmurate init has printed them")
    texts = [read_plan_document(path) for path in plans]
    report = _check_sources(sources, checked, texts, key, zones)
    if not report.is_valid and not checked.is_whole:
        checked = checked.check_all(now_s)
        report = _check_sources(sources, checked, texts, key, zones)
    if not report.zones and report.is_valid:
        what = f"zone {', '.join(zones)}" if zones else "log"
        remedy = "no record to check; murmurate log export log.tar writes a log, and --zone must name one of its zones"
        raise MurmurateError(what, "not in " + ", ".join(map(source_name, sources)), remedy)
    if metrics is not None:
        write_metrics(metrics, report, now_s)
    if known is not None and report.is_valid and report.is_complete:
        checked.save(known, report)
    proofs = _write_proofs(report, out)
    if as_json:
        print_json(verification_document(report, proofs))
    else:
        console = Console(width=None if Console().is_terminal else 100, highlight=False, soft_wrap=True)
        print_report(report, console, trust_on_first_use=key is None)
        for path, proof in proofs.items():
            _print_proof(proof, path, console)
        console.print(f"[bold]{_verdict(report)}[/]")
    return EXIT_INVALID if not report.is_valid else EXIT_VALID if report.is_complete else EXIT_INCOMPLETE


def _check_sources(
    sources: Sequence[str], checked: CheckedTiles, plans: Sequence[str], key: str | None, zones: Sequence[str]
) -> VerificationReport:
    """Check the sources from where `checked` says, and whether what it knows is still there."""
    with _show_progress() as show_records:
        opened = {
            source_name(name): checked.trim(source_name(name), open_log_source(name, checked.first_seq))
            for name in sources
        }
        for name, source in opened.items():
            require_log(name, source, is_only=len(opened) == 1 and not checked.tiles)
        report = check_log(
            opened,
            plans=plans,
            expected_key=key,
            zones=set(zones) or None,
            progress=show_records,
            known_tiles=None if checked.is_whole else checked.tiles,
        )
    checked.report_lost(report, opened)
    return report


@contextmanager
def _show_progress() -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many records are done: a function takes the number."""
    error = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=error, transient=True, disable=not error.is_terminal) as bar:
        task = bar.add_task("reading the log")
        yield lambda done: bar.update(task, description=f"verifying the log: {done:,} records")


def read_verified_zone(source: str, zone: str, plans: Sequence[Path] = (), key: str | None = None) -> LoggedZone:
    """Verify a log and return what it holds about a zone. `source` is as `murmurate log verify` takes it.

    Raises MurmurateError where anything is wrong, a plan is missing or the zone is not there.
    """
    name, texts = source_name(source), [read_plan_document(path) for path in plans]
    opened = open_log_source(source)
    require_log(name, opened, is_only=True)
    with _show_progress() as show_records:
        report = check_log({name: opened}, plans=texts, expected_key=key, zones={zone}, progress=show_records)
    found = read_zone_history(opened, zone, texts) if report.is_valid and report.is_complete else None
    del opened  # closes the log, also where something is raised
    if not report.is_valid:
        first = report.findings[0]
        words = f"not right ({report.finding_count:,} findings; the first is {first.rule}: {first.message})"
        remedy = f"nothing is made from it. murmurate log verify {name} lists everything; take another copy of the log"
        raise MurmurateError(f"log {name}", words, remedy)
    for digest in report.missing_plans:
        raise MurmurateError("plan", f"{digest}, which {name} does not hold", "must be given: --plan plan.json")
    if found is None:
        remedy = "must be whole: murmurate log export log.tar --archive FOLDER writes such a copy"
        raise MurmurateError(f"log {name}", "without its first releases, which are in the archive", remedy)
    if zone not in report.zones:
        raise MurmurateError(
            f"zone {zone}", f"not in {name}", "must be one that murmurate log verify shows for this log"
        )
    return found


def _write_proofs(report: VerificationReport, out: Path) -> dict[Path, MisbehaviourProof]:
    """Write each proof of misbehaviour to a file of its own."""
    proofs = {out / f"misbehaviour-{number}.json": proof for number, proof in enumerate(report.proofs, 1)}
    for path, proof in proofs.items():
        path.write_text(json.dumps(proof._asdict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return proofs


def verification_document(report: VerificationReport, proofs: Iterable[Path]) -> dict[str, object]:
    """Return the report for scripts. Keys are those of docs/reference/json-output.md."""
    sources = {
        name: {"tiles": tiles, "records": report.records_by_source[name]}
        for name, tiles in report.tiles_by_source.items()
    }
    return {
        "valid": report.is_valid,
        "complete": report.is_complete,
        "sources": sources,
        "zones": {zone.zone: _zone_members(zone) for zone in report.zones.values()},
        "plans": {plan.digest: list(plan.promises) for plan in report.plans.values()},
        "missing_plans": list(report.missing_plans),
        "unchecked_beginnings": {shard: each._asdict() for shard, each in report.unchecked_beginnings.items()},
        "finding_count": report.finding_count,
        "findings": [finding._asdict() for finding in report.findings],
        "proofs": [str(path) for path in proofs],
    }


def _zone_members(zone: ZoneSummary) -> dict[str, object]:
    return {
        "records": zone.records,
        "kinds": dict(zone.kinds),
        "interval_s": zone.interval_s,
        "first_interval": zone.first_interval,
        "last_interval": zone.last_interval,
        "closed_after": zone.closed_after,
        "epsilon": zone.total_epsilon_micro / 1e6,
        "rho": zone.total_rho_micro / 1e6,
        "first_key": zone.first_key,
        "findings": zone.finding_count,
    }


def require_log(name: str, source: LogSource, *, is_only: bool) -> None:
    """Raise MurmurateError for what is no log; that says nothing about the operator.

    Nothing in it is a tile, a document or a line of a zone; or it is one tile, and there is nothing to compare it with.
    """
    kinds = (item.kind for item in read_items(source))
    first = next(kinds, None)
    if is_only and first is ItemKind.TILE and next(kinds, None) is None:
        raise MurmurateError("source", name, "is a single tile; give the log first, and this tile after it")
    if first is ItemKind.UNKNOWN and all(kind in {ItemKind.UNKNOWN, ItemKind.PLAN} for kind in kinds):
        where = "the log of a zone is at …/zones/<zone>/log.jsonl, the whole log at the address of the service"
        raise MurmurateError("source", name, f"is no public log; {where}")


def print_report(report: VerificationReport, console: Console, *, trust_on_first_use: bool) -> None:
    """What was checked, what is wrong, and what no check of this kind shows."""
    records = report.records_by_source
    shown = ", ".join(
        f"{records[source]:,} in {count:,} {'tile' if count == 1 else 'tiles'} of {escape(source)}"
        for source, count in report.tiles_by_source.items()
    )
    console.print(f"[bold]Records:[/] {shown or 'none'}.")
    console.print(_zones_table(list(report.zones.values())[:MAX_ZONES_PRINTED]))
    for zone in [zone for zone in report.zones.values() if zone.closed_after is not None][:MAX_ZONES_PRINTED]:
        console.print(
            f"{escape(zone.zone)}: closed after interval {zone.closed_after}, final total {_cost_text(zone)}.\n"
        )
    if len(report.zones) > MAX_ZONES_PRINTED:
        console.print(f"and {len(report.zones) - MAX_ZONES_PRINTED:,} zones more. --zone shows one of them.\n")
    _print_keys(report, console, trust_on_first_use=trust_on_first_use)
    _print_promises(report, console)
    _print_beginnings(report, console)
    if report.is_valid:
        console.print("Each tile is signed and follows the one before. Each record is the only one of its zone and")
        console.print("interval. Each cost is its plan's, and the totals are their sums. No gap.\n")
    else:
        _print_findings(report, console)
    console.print("What no such check shows:")
    for line in NOT_VERIFIED:
        console.print(f"  - {line}")
    console.print()


def _zones_table(zones: Sequence[ZoneSummary]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("zone")
    table.add_column("intervals decided (UTC)")
    for name in ("measured", "fallback", "withheld", "cost so far"):
        table.add_column(name, justify="right")
    for zone in zones:
        kinds = (f"{zone.kinds[kind]:,}" for kind in ("measured", "fallback", "withheld"))
        table.add_row(escape(zone.zone), _interval_range(zone), *kinds, _cost_text(zone))
    return table


def _interval_range(zone: ZoneSummary) -> str:
    if zone.first_interval is None or zone.last_interval is None:
        return "none yet"
    try:
        times = (
            datetime.fromtimestamp(at * zone.interval_s, UTC) for at in (zone.first_interval, zone.last_interval + 1)
        )
        return " to ".join(f"{time:%Y-%m-%d %H:%M}" for time in times)
    except (OverflowError, OSError, ValueError):
        return f"{zone.first_interval} to {zone.last_interval}"


def _cost_text(zone: ZoneSummary) -> str:
    costs = {"epsilon": zone.total_epsilon_micro, "rho": zone.total_rho_micro}
    return ", ".join(f"{name} {micro / 1e6:,.4g}" for name, micro in costs.items() if micro) or "nothing"


def _print_keys(report: VerificationReport, console: Console, *, trust_on_first_use: bool) -> None:
    first = Counter(zone.first_key for zone in report.zones.values() if zone.first_key)
    for key, count in first.most_common(MAX_ZONES_PRINTED):
        console.print(f"[bold]Key[/] {escape(key)} opened {count:,} {'chain' if count == 1 else 'chains'}.")
    rotations = sum(len(zone.keys) - 1 for zone in report.zones.values() if zone.keys)
    if rotations:
        console.print(f"  Keys were changed {rotations:,} times since, each time signed by the key before.")
    if trust_on_first_use and first:
        console.print("  It was trusted because it came first. Compare it with the one the operator shows elsewhere,")
        console.print("  or give that one with --key.")
    console.print()


def _print_promises(report: VerificationReport, console: Console) -> None:
    for plan in list(report.plans.values())[:MAX_ZONES_PRINTED]:
        console.print(f"[bold]Plan[/] {plan.digest}, made for {escape(plan.zone)}, proven anew:")
        for promise in plan.promises:
            console.print(f"  {escape(promise)}")
    for digest, name in list(report.missing_plans.items())[:MAX_ZONES_PRINTED]:
        console.print(
            f"[bold]Plan[/] {escape(digest)} was not given. It is named by {escape(name)}; give it with --plan."
        )
    console.print()


def _print_beginnings(report: VerificationReport, console: Console) -> None:
    """From where on shards were checked whose first releases were not given, and what that leaves open."""
    for shard, (seq, interval, interval_s) in list(report.unchecked_beginnings.items())[:MAX_ZONES_PRINTED]:
        try:
            begins = format_utc(interval * interval_s)
        except (OverflowError, OSError, ValueError):
            begins = f"interval {interval}"
        console.print(
            f"[bold]Shard[/] {escape(shard)} was checked from tile {seq:,} on, which is {begins}. Its keys were"
        )
        console.print("  followed from its first tile. The releases before were not given: whether they hold, and")
        console.print("  whether the totals at that time are their sums, is not shown. Give the archive as well:")
        console.print("  murmurate log verify ARCHIVE LOG")
    for zone, interval in report.unchecked_changes[:MAX_ZONES_PRINTED]:
        console.print(
            f"  The change of plan of {escape(zone)} in interval {interval:,} needs them too: it is not checked."
        )
    if report.unchecked_beginnings:
        console.print()


def _print_findings(report: VerificationReport, console: Console) -> None:
    console.print(
        f"[bold]{report.finding_count:,} {'thing is' if report.finding_count == 1 else 'things are'} wrong:[/]"
    )
    for finding in report.findings[: 10 * MAX_ZONES_PRINTED]:
        places = (finding.zone, finding.shard, "" if finding.seq is None else f"tile {finding.seq}")
        about, number = ", ".join(filter(None, places)) or finding.source, ""
        if len(report.tiles_by_source) > 1 and finding.source:
            number = f" in {finding.source}"
        console.print(f"  {escape(about + number)}: [bold]{finding.rule}[/]: {escape(finding.message)}", soft_wrap=True)
    if report.finding_count > len(report.findings):
        console.print(f"  and {report.finding_count - len(report.findings):,} more.")
    console.print("What each rule means: docs/how-to/verify.md\n")


def _print_proof(proof: MisbehaviourProof, path: Path, console: Console) -> None:
    about = f"shard {proof.shard}" if not proof.zone else f"zone {proof.zone}"
    console.print("[bold]Proof of misbehaviour[/]")
    console.print(f"  The holder of key {proof.key} signed both of these. They cannot both stand: they are")
    console.print(f"  different, and both are {proof.contradicts} of {escape(about)}. Anyone can check that.")
    for line in proof.lines or proof.headers:
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"  Written to {path}. Keep it, and show it.\n")


def _verdict(report: VerificationReport) -> str:
    if not report.is_valid:
        return "This log is not right."
    if not report.is_complete:
        missing = "a plan is missing" if report.missing_plans else "the first releases are missing"
        return f"Everything holds that could be checked, but {missing}."
    return "Everything holds."
