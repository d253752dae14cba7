"""`murmurate mend`: give the public log back what it has lost, from what the state has seen of it or from a copy.

Only lines that were public once and that follow the log's head are appended, byte for byte. Where the log holds another
line in the place of one that was seen, nothing can mend it: the two lines are shown, and a person must decide.
"""

from __future__ import annotations

import psycopg
from rich.console import Console
from rich.progress import Progress

from murmurate.curator.terms import Terms
from murmurate.errors import ChainError
from murmurate.publication.chain import follow
from murmurate.publication.record import Entry, encode, read
from murmurate.publication.signing import verify
from murmurate.publication.verification_report import contradiction
from murmurate.service.databases import Databases, failures_in_one_line, heads
from murmurate.service.log_sources import open_source
from murmurate.service.migrate import migrate
from murmurate.service.publiclog import PostgresLog

BATCH = 1000  # zones

_out = Console(highlight=False, soft_wrap=True, markup=False)

_SEEN = "SELECT zone, seq FROM curator.head WHERE seq >= 0 ORDER BY zone"
_MIRRORED = """
    SELECT r.line FROM curator.release r JOIN jsonb_each_text(%s) AS wanted (zone, seq)
    ON r.zone = wanted.zone AND r.seq = wanted.seq::bigint"""


def mend(databases: Databases, copy: str | None = None) -> int:
    """Mend every zone; 1 if the log contradicts what was seen of it, or the copy does not follow."""
    databases.state.check()
    databases.log.check(prepared=False)
    with failures_in_one_line(), psycopg.connect(databases.state.dsn, autocommit=True) as state:
        migrate(databases.log.dsn, "log")
        log = PostgresLog(databases.log.dsn)
        for digest, document in state.execute("SELECT digest, document FROM curator.plan"):
            log.publish_plan(digest, document)
        seen: dict[str, int] = dict(state.execute(_SEEN).fetchall())
        zones = list(seen)
        mended, wrong = 0, 0
        error = Console(stderr=True)
        with Progress(console=error, transient=True, disable=not error.is_terminal) as bar:
            for at in bar.track(range(0, len(zones), BATCH), description="mending"):
                batch = {zone: seen[zone] for zone in zones[at : at + BATCH]}
                given, bad = _mend(state, log, batch)
                mended, wrong = mended + given, wrong + bad
        if copy is not None and not wrong:
            mended += _from_copy(log, copy)
    _out.print(f"{mended:,} records given back to the log." if mended else "The log has lost nothing that was seen.")
    if wrong:
        _out.print(f"{wrong:,} zones contradict what was seen and were left alone. Do not publish for them; see")
        _out.print("docs/how-to/restore.md.")
    return 1 if wrong else 0


def _mend(state: psycopg.Connection, log: PostgresLog, seen: dict[str, int]) -> tuple[int, int]:
    """Give these zones back what they lost: how many records, and how many zones cannot be mended."""
    there = heads(log, list(seen))
    at = {zone: there[zone].record.seq if zone in there else -1 for zone in seen}
    common = {zone: min(at[zone], seen[zone]) for zone in seen if at[zone] >= 0}
    known = _mirror(state, common)
    stand = log.read({zone: seq - 1 for zone, seq in common.items()})
    wrong = [zone for zone in common if stand[zone].lines[0] != known[zone].line]
    for zone in wrong:
        _show(state, log, zone, common[zone])
    behind = {zone: at[zone] for zone in seen if zone not in wrong and at[zone] < seen[zone]}
    given = 0
    while behind:
        log.append(_mirror(state, {zone: seq + 1 for zone, seq in behind.items()}).values())
        after = {zone: beyond.last_seq for zone, beyond in log.read(dict.fromkeys(behind, 2**62)).items()}
        moved = {zone for zone, seq in behind.items() if after[zone] > seq}
        given += len(moved)
        for zone in behind.keys() - moved:
            _out.print(f"{zone}: the log does not take record {behind[zone] + 1} back; is somebody publishing?")
            wrong.append(zone)
        behind = {zone: after[zone] for zone in moved if after[zone] < seen[zone]}
    return given, len(wrong)


def _from_copy(log: PostgresLog, name: str) -> int:
    """Append what a copy of the log holds beyond it, each line checked to follow; ChainError names the first misfit."""
    source = open_source(name)
    last: dict[str, Entry | None] = {}
    given = 0
    for line in source():
        if '"murmurate_plan"' in line:
            log.publish_plan(Terms.of(line).plan, line)
            continue
        entry = read(line)
        zone = entry.record.zone
        if zone not in last:
            last[zone] = heads(log, [zone]).get(zone)
        head = last[zone]
        if head is None or entry.record.seq > head.record.seq:
            last[zone] = follow(head, entry, verify)
            log.append([entry])
            given += 1
        elif entry.record.seq == head.record.seq and entry.line != head.line:
            raise ChainError("copy", f"another {entry.record.seq} of {zone}", "contradicts the log; verify both first")
    return given


def _mirror(state: psycopg.Connection, wanted: dict[str, int]) -> dict[str, Entry]:
    """The entry with this number of each zone, as it was seen."""
    entries = [read(line) for (line,) in state.execute(_MIRRORED, (encode(wanted),))]
    return {entry.record.zone: entry for entry in entries}


def _show(state: psycopg.Connection, log: PostgresLog, zone: str, differs: int) -> None:
    """Show the first record that differs; all later ones do, for each names the hash of the one before."""
    low, high = -1, differs
    while high - low > 1:
        middle = (low + high) // 2
        same = log.read({zone: middle - 1})[zone].lines[0] == _mirror(state, {zone: middle})[zone].line
        low, high = (middle, high) if same else (low, middle)
    pair = (_mirror(state, {zone: high})[zone].line, log.read({zone: high - 1})[zone].lines[0])
    proof = contradiction(*pair, verify)
    _out.print(f"{zone}: the log holds another record {high} than was seen before:")
    for line in pair:
        _out.print(line)
    if proof is not None:
        _out.print(f"Both are signed by {proof.key}: whoever sees both has a proof that you published two values.")
