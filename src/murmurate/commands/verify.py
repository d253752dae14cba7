"""`murmurate log verify`: a public log checked from public data alone, and a report that a resident can read.

With `--known` it is a check that runs each day: a file keeps the last tile of each shard that was found right, and when
the whole log was checked. A check begins with those tiles. They must still be there with the same hash, so a log that
was set back is found as well. Once a week, and where something seems wrong (a change of plan is judged by what was
released before it), it begins with the first tiles. Tiles that were archived since were checked before: the tile that
is known follows them.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice, product
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from murmurate.errors import MurmurateError
from murmurate.files import read_text
from murmurate.operations.console import print_json
from murmurate.operations.log_source import open_log_source, require_log, show_verification_progress, source_name
from murmurate.operations.options import AsJson, LogPlans
from murmurate.operations.plan_files import read_plan_document
from murmurate.verification.report import LogFinding, VerificationReport, ZoneSummary
from murmurate.verification.sources import ItemKind, LogItem, LogSource, peek_place, read_items
from murmurate.verification.verifier import check_log

EXIT_VALID, EXIT_INVALID, EXIT_INCOMPLETE = 0, 1, 3
_KINDS = ("measured", "public", "fallback", "withheld")  # of prices
MAX_ZONES_PRINTED = 20
WHOLE_EVERY_S = 7 * 86_400
NOT_VERIFIED = (
    "whether tiles are missing at the end: compare the last interval with the clock, or with another copy",
    "whether the demand was measured and added up rightly: only the operator sees it",
    "whether the noise was drawn at random, and whether other values were given to other readers",
    "what the promise itself does not cover: docs/explanation/limits.md",
)
_METRICS = """\
# HELP murmurate_verification_timestamp_seconds When the public log was last verified.
# TYPE murmurate_verification_timestamp_seconds gauge
murmurate_verification_timestamp_seconds {at_s}
# HELP murmurate_verification_failed Whether that has found something wrong.
# TYPE murmurate_verification_failed gauge
murmurate_verification_failed {failed:d}
"""  # the text format of Prometheus


def verify_logs(
    sources: Annotated[list[str], typer.Argument(help="Logs to check, the fullest first: files, folders, - or URLs.")],
    plans: LogPlans = None,
    key: Annotated[str | None, typer.Option(help="The key that must have opened each chain.")] = None,
    zones: Annotated[list[str] | None, typer.Option("--zone", help="Check this zone only.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for proofs of misbehaviour, should there be any.")] = Path(),
    known: Annotated[
        Path | None,
        typer.Option(help="File of the last check that held: only what is newer is checked; once a week all."),
    ] = None,
    metrics: Annotated[Path | None, typer.Option(help="File for the result as metrics of Prometheus.")] = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Check, print the report, write the proofs; return the exit status."""
    now_s = time.time()
    checked = CheckedTiles() if known is None else CheckedTiles.load(known, now_s)
    if key is not None and not re.fullmatch("[0-9a-fA-F]{64}", key):
        raise MurmurateError("--key", key, "must be 64 hexadecimal digits, as murmurate init has printed them")
    texts = [read_plan_document(path) for path in plans or ()]
    report = _check_sources(sources, checked, texts, key, zones)
    if not report.is_valid and not checked.is_whole:
        checked = checked.check_all(now_s)
        report = _check_sources(sources, checked, texts, key, zones)
    if not report.zones and report.is_valid:
        what = f"zone {', '.join(zones)}" if zones else "log"
        remedy = "no record to check; murmurate log export log.tar writes a log, and --zone must name one of its zones"
        raise MurmurateError(what, "not in " + ", ".join(map(source_name, sources)), remedy)
    holds = report.is_valid and report.is_complete
    if metrics is not None:  # for the textfile collector of node_exporter
        _write_replacing(metrics, _METRICS.format(at_s=int(now_s), failed=not holds))
    if known is not None and holds:
        checked.save(known, report)
    proofs = {out / f"misbehaviour-{number}.json": proof for number, proof in enumerate(report.proofs, 1)}
    for path, proof in proofs.items():
        path.write_text(json.dumps(proof._asdict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        print_json(verification_document(report, proofs))
    else:
        _print_report(report, [*proofs], trust_on_first_use=key is None)
    return EXIT_INVALID if not report.is_valid else EXIT_VALID if report.is_complete else EXIT_INCOMPLETE


def _check_sources(
    sources: Sequence[str], checked: CheckedTiles, plans: Sequence[str], key: str | None, zones: Sequence[str] | None
) -> VerificationReport:
    """Check the sources from where `checked` says, and whether what it knows is still there."""
    with show_verification_progress() as show_records:
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
            zones=set(zones or ()) or None,
            progress=show_records,
            known_tiles=None if checked.is_whole else checked.tiles,
        )
    checked.report_lost(report, opened)
    return report


@dataclass(frozen=True, slots=True)
class CheckedTiles:
    """The last tile of each shard that was found right, and when the whole log was checked [s of UTC]."""

    whole_s: float = 0.0
    tiles: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # by shard: number and hash
    is_whole: bool = True  # whether the check begins with the first tiles
    _seen: set[tuple[str, str]] = field(default_factory=set)  # sources and shards in which the known tile was read

    @classmethod
    def load(cls, path: Path, now_s: float) -> CheckedTiles:
        """What a check that held has written; nothing where there was none."""
        if not path.exists():
            return cls(now_s)
        try:
            document = json.loads(read_text(path))
            tiles = {str(shard): (int(seq), str(digest)) for shard, (seq, digest) in document["tiles"].items()}
            whole_s = float(document["whole_s"])
        except (AttributeError, LookupError, TypeError, ValueError):
            raise MurmurateError("--known", path, "is no file of an earlier check; delete it to check all") from None
        found = cls(whole_s, tiles, is_whole=False)
        return found.check_all(now_s) if whole_s + WHOLE_EVERY_S <= now_s else found

    def check_all(self, now_s: float) -> CheckedTiles:
        """The same, for a check that begins with the first tiles."""
        return CheckedTiles(now_s, self.tiles)

    def first_seq(self, shard: str) -> int:
        return 0 if self.is_whole else self.tiles.get(shard, (0, ""))[0]

    def trim(self, name: str, source: LogSource) -> LogSource:
        """The source without the tiles before the one that its check begins with."""

        def read() -> Iterator[LogItem]:
            for item in read_items(source):
                if self.tiles and item.kind is ItemKind.TILE:
                    shard, seq, _ = peek_place(item.data)
                    if seq is not None and seq < self.first_seq(shard):
                        continue
                    if (seq, sha256(item.header_line).hexdigest()) == self.tiles.get(shard):
                        self._seen.add((name, shard))
                yield item

        return read

    def report_lost(self, report: VerificationReport, sources: Iterable[str]) -> None:
        """Add a finding for each source that lacks the last tile of a shard that was found right.

        Releases that were archived before that tile were checked before. Where it was archived itself, some were not.
        """
        begins = {shard: beginning.seq for shard, beginning in report.unchecked_beginnings.items()}
        for name, (shard, (seq, _)) in product(sources, self.tiles.items()):
            if begins.get(shard, 0) > seq:
                continue
            report.unchecked_beginnings.pop(shard, None)
            if (name, shard) not in self._seen:
                words = "was there when the log was last verified, and is missing now"
                report.add_finding(LogFinding(shard, seq, "", "gap", words, name))

    def save(self, path: Path, report: VerificationReport) -> None:
        tiles = {**self.tiles, **report.last_tiles}
        _write_replacing(path, json.dumps({"whole_s": self.whole_s, "tiles": tiles}, indent=1) + "\n")


def _write_replacing(path: Path, text: str) -> None:
    """Write a file that a reader finds whole, before or after."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


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
        "zones": {
            zone.zone: {
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
            for zone in report.zones.values()
        },
        "plans": {plan.digest: list(plan.promises) for plan in report.plans.values()},
        "missing_plans": list(report.missing_plans),
        "unchecked_beginnings": {shard: each._asdict() for shard, each in report.unchecked_beginnings.items()},
        "finding_count": report.finding_count,
        "findings": [finding._asdict() for finding in report.findings],
        "proofs": [str(path) for path in proofs],
    }


def _print_report(report: VerificationReport, proofs: Sequence[Path], *, trust_on_first_use: bool) -> None:
    """What was checked, what is wrong, and what no check of this kind shows."""
    console = Console(width=None if Console().is_terminal else 100, highlight=False, soft_wrap=True)
    records = report.records_by_source
    shown = ", ".join(
        f"{records[source]:,} in {count:,} {'tile' if count == 1 else 'tiles'} of {escape(source)}"
        for source, count in report.tiles_by_source.items()
    )
    console.print(f"[bold]Records:[/] {shown or 'none'}.")
    _print_zones(list(report.zones.values()), console)
    _print_keys_and_plans(report, console, trust_on_first_use=trust_on_first_use)
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
    for path, proof in zip(proofs, report.proofs, strict=True):
        about = f"shard {proof.shard}" if not proof.zone else f"zone {proof.zone}"
        console.print("[bold]Proof of misbehaviour[/]")
        console.print(f"  The holder of key {proof.key} signed both of these. They cannot both stand: they are")
        console.print(f"  different, and both are {proof.contradicts} of {escape(about)}. Anyone can check that.")
        for line in proof.lines or proof.headers:
            console.print(line, soft_wrap=True, markup=False)
        console.print(f"  Written to {path}. Keep it, and show it.\n")
    verdict = "Everything holds."
    if not report.is_valid:
        verdict = "This log is not right."
    elif not report.is_complete:
        missing = "a plan is missing" if report.missing_plans else "the first releases are missing"
        verdict = f"Everything holds that could be checked, but {missing}."
    console.print(f"[bold]{verdict}[/]")


def _print_zones(zones: Sequence[ZoneSummary], console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("zone")
    table.add_column("intervals decided (UTC)")
    kinds = [kind for kind in _KINDS if kind != "public" or any(zone.kinds[kind] for zone in zones)]
    for name in (*kinds, "cost so far"):
        table.add_column(name, justify="right")
    for zone in zones[:MAX_ZONES_PRINTED]:
        decided = "none yet"
        if zone.first_interval is not None and zone.last_interval is not None:
            ends = zone.first_interval, zone.last_interval + 1
            times = [time for at in ends if (time := _format_interval(at, zone.interval_s))]
            decided = " to ".join(times) if len(times) == 2 else f"{zone.first_interval} to {zone.last_interval}"
        counts = (f"{zone.kinds[kind]:,}" for kind in kinds)
        table.add_row(escape(zone.zone), decided, *counts, _cost_text(zone))
    console.print(table)
    closed = (zone for zone in zones if zone.closed_after is not None)
    for zone in islice(closed, MAX_ZONES_PRINTED):
        console.print(
            f"{escape(zone.zone)}: closed after interval {zone.closed_after}, final total {_cost_text(zone)}.\n"
        )
    if len(zones) > MAX_ZONES_PRINTED:
        console.print(f"and {len(zones) - MAX_ZONES_PRINTED:,} zones more. --zone shows one of them.\n")


def _cost_text(zone: ZoneSummary) -> str:
    costs = {"epsilon": zone.total_epsilon_micro, "rho": zone.total_rho_micro}
    return ", ".join(f"{name} {micro / 1e6:,.4g}" for name, micro in costs.items() if micro) or "nothing"


def _format_interval(interval: int, interval_s: int) -> str | None:
    """When an interval begins, in UTC. A log may name one that no calendar has."""
    try:
        return f"{datetime.fromtimestamp(interval * interval_s, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):
        return None


def _print_keys_and_plans(report: VerificationReport, console: Console, *, trust_on_first_use: bool) -> None:
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
    for plan in islice(report.plans.values(), MAX_ZONES_PRINTED):
        console.print(f"[bold]Plan[/] {plan.digest}, made for {escape(plan.zone)}, proven again:")
        for promise in plan.promises:
            console.print(f"  {escape(promise)}")
    for digest, name in islice(report.missing_plans.items(), MAX_ZONES_PRINTED):
        console.print(
            f"[bold]Plan[/] {escape(digest)} was not given. It is named by {escape(name)}; give it with --plan."
        )
    console.print()


def _print_beginnings(report: VerificationReport, console: Console) -> None:
    """From where on shards were checked whose first releases were not given, and what that leaves open."""
    for shard, (seq, interval, interval_s) in islice(report.unchecked_beginnings.items(), MAX_ZONES_PRINTED):
        begins = _format_interval(interval, interval_s) or f"interval {interval}"
        console.print(
            f"[bold]Shard[/] {escape(shard)} was checked from tile {seq:,} on, which is {begins} UTC. Its keys were"
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
