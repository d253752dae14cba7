"""`murmurate repair`: restore what the public log has lost, from what the state has seen of it or from a copy.

Only lines that were public once and that follow the log's head are appended, byte for byte. Where the log holds another
line in the place of one that was seen, nothing is repaired: the two lines are shown, and the operator must decide.
"""

from __future__ import annotations

import psycopg
from rich.console import Console
from rich.progress import Progress

from murmurate.commands.log_source import open_log_source
from murmurate.errors import ChainError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.chain import check_next
from murmurate.public_log.record import Entry, canonical_json, parse_entry
from murmurate.public_log.signing import verify_signature
from murmurate.service.storage.databases import Databases, mask_database_errors, read_heads
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.verification.report import prove_contradiction

REPAIR_BATCH_SIZE = 1000  # zones

_stdout = Console(highlight=False, soft_wrap=True, markup=False)

_SELECT_SEEN_HEADS = "SELECT zone, seq FROM curator.head WHERE seq >= 0 ORDER BY zone"
_SELECT_SEEN_LINES = """
    SELECT r.line FROM curator.release r JOIN jsonb_each_text(%s) AS wanted (zone, seq)
    ON r.zone = wanted.zone AND r.seq = wanted.seq::bigint"""


def repair_log(databases: Databases, copy: str | None = None) -> int:
    """Repair every zone. Returns 1 if the log contradicts what was seen of it, or the copy does not follow."""
    databases.state.check_reachable()
    databases.log.check_reachable(prepared=False)
    with mask_database_errors(), psycopg.connect(databases.state.dsn, autocommit=True) as state:
        migrate_database(databases.log.dsn, "log")
        log = PostgresLogStore(databases.log.dsn)
        for digest, document in state.execute("SELECT digest, document FROM curator.plan"):
            log.publish_plan(digest, document)
        seen: dict[str, int] = dict(state.execute(_SELECT_SEEN_HEADS).fetchall())
        zones = list(seen)
        restored_count, conflict_count = 0, 0
        error = Console(stderr=True)
        with Progress(console=error, transient=True, disable=not error.is_terminal) as bar:
            for at in bar.track(range(0, len(zones), REPAIR_BATCH_SIZE), description="repairing"):
                batch = {zone: seen[zone] for zone in zones[at : at + REPAIR_BATCH_SIZE]}
                restored, conflicts = _repair_batch(state, log, batch)
                restored_count, conflict_count = restored_count + restored, conflict_count + conflicts
        if copy is not None and not conflict_count:
            restored_count += _append_from_copy(log, copy)
    done = f"{restored_count:,} records restored to the log."
    _stdout.print(done if restored_count else "The log has lost nothing that was seen.")
    if conflict_count:
        _stdout.print(
            f"{conflict_count:,} zones contradict what was seen and were not repaired. Do not publish for them;"
        )
        _stdout.print("see docs/how-to/restore.md.")
    return 1 if conflict_count else 0


def _repair_batch(state: psycopg.Connection, log: PostgresLogStore, seen: dict[str, int]) -> tuple[int, int]:
    """Restore what these zones lost. Returns how many records, and how many zones cannot be repaired."""
    heads = read_heads(log, list(seen))
    last_seq = {zone: heads[zone].record.seq if zone in heads else -1 for zone in seen}
    common = {zone: min(last_seq[zone], seen[zone]) for zone in seen if last_seq[zone] >= 0}
    known = _seen_entries(state, common)
    logged = log.read({zone: seq - 1 for zone, seq in common.items()})
    conflicts = [zone for zone in common if logged[zone].lines[0] != known[zone].line]
    for zone in conflicts:
        _print_first_difference(state, log, zone, common[zone])
    behind = {zone: last_seq[zone] for zone in seen if zone not in conflicts and last_seq[zone] < seen[zone]}
    restored = 0
    while behind:
        log.append(_seen_entries(state, {zone: seq + 1 for zone, seq in behind.items()}).values())
        after = {zone: tail.last_seq for zone, tail in log.read(dict.fromkeys(behind, 2**62)).items()}
        moved = {zone for zone, seq in behind.items() if after[zone] > seq}
        restored += len(moved)
        for zone in behind.keys() - moved:
            _stdout.print(f"{zone}: the log does not take record {behind[zone] + 1}; is another process publishing?")
            conflicts.append(zone)
        behind = {zone: after[zone] for zone in moved if after[zone] < seen[zone]}
    return restored, len(conflicts)


def _append_from_copy(log: PostgresLogStore, name: str) -> int:
    """Append what a copy of the log holds beyond it, each line checked to follow; ChainError names the first misfit."""
    source = open_log_source(name)
    last: dict[str, Entry | None] = {}
    restored = 0
    for line in source():
        if '"murmurate_plan"' in line:
            log.publish_plan(ReleaseTerms.from_json(line).plan_digest, line)
            continue
        entry = parse_entry(line)
        zone = entry.record.zone
        if zone not in last:
            last[zone] = read_heads(log, [zone]).get(zone)
        head = last[zone]
        if head is None or entry.record.seq > head.record.seq:
            last[zone] = check_next(head, entry, verify_signature)
            log.append([entry])
            restored += 1
        elif entry.record.seq == head.record.seq and entry.line != head.line:
            raise ChainError("copy", f"another {entry.record.seq} of {zone}", "contradicts the log; verify both first")
    return restored


def _seen_entries(state: psycopg.Connection, seq_by_zone: dict[str, int]) -> dict[str, Entry]:
    """The entry with this number of each zone, as it was seen."""
    entries = [parse_entry(line) for (line,) in state.execute(_SELECT_SEEN_LINES, (canonical_json(seq_by_zone),))]
    return {entry.record.zone: entry for entry in entries}


def _print_first_difference(state: psycopg.Connection, log: PostgresLogStore, zone: str, differing_seq: int) -> None:
    """Show the first record that differs; all later ones do, for each names the hash of the one before."""
    low, high = -1, differing_seq
    while high - low > 1:
        middle = (low + high) // 2
        same = log.read({zone: middle - 1})[zone].lines[0] == _seen_entries(state, {zone: middle})[zone].line
        low, high = (middle, high) if same else (low, middle)
    pair = (_seen_entries(state, {zone: high})[zone].line, log.read({zone: high - 1})[zone].lines[0])
    proof = prove_contradiction(*pair, verify_signature)
    _stdout.print(f"{zone}: the log holds another record {high} than was seen before:")
    for line in pair:
        _stdout.print(line)
    if proof is not None:
        _stdout.print(f"Both are signed by {proof.key}: the two lines prove that two values were published.")
