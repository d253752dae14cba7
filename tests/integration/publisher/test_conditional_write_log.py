"""A log needs no more than a conditional write: here a folder in which a file is created only where none exists."""

import os
import threading
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from urllib.parse import quote

from tests.support.sample_chains import FIRST, OPENING, demand, record_writer

from murmurate.errors import ChainError
from murmurate.public_log.chain import check_follows, check_next
from murmurate.public_log.record import parse_entry
from murmurate.public_log.signing import verify_signature
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import LogTail
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher

ZONES = ["harbour", "hill/mill"]


class FolderLog:
    """`zone/number`, written once: what an object store with conditional writes offers, and nothing more."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def _place(self, zone, seq):
        return self.folder / quote(zone, safe="") / f"{seq:012d}"

    def _line(self, zone, seq):
        try:
            return self._place(zone, seq).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def read(self, after):
        found = {}
        for zone, seq in after.items():
            lines = []
            while (line := self._line(zone, seq + 1 + len(lines))) is not None:
                lines.append(line)
            last = self._line(zone, seq + len(lines)) or ""
            found[zone] = LogTail(seq + len(lines), tuple(lines), sha256(last.encode()).hexdigest())
        return found

    def append(self, entries):
        for entry in entries:
            zone, seq = entry.record.zone, entry.record.seq
            before = self._line(zone, seq - 1)
            try:
                check_follows(None if before is None else parse_entry(before), entry)
            except ChainError:
                continue
            place = self._place(zone, seq)
            place.parent.mkdir(exist_ok=True)
            fresh = place.with_name(token_hex(8))
            fresh.write_text(entry.line, encoding="utf-8")
            try:
                os.link(fresh, place)
            except FileExistsError:
                pass
            finally:
                fresh.unlink()


def test_publishers_on_an_object_store_make_one_chain(state_dsn, tmp_path):
    log = FolderLog(tmp_path)
    states = [PostgresStateStore(state_dsn) for _ in range(3)]
    states[0].store_openings(dict.fromkeys(ZONES, OPENING))
    for n in range(20):
        states[0].store_demand(FIRST + n, demand(**dict.fromkeys(ZONES, 500_000)))
    desired = dict.fromkeys(ZONES, DesiredState(until=FIRST + 19, opening=OPENING))
    crew = [
        Publisher(
            state=state, log=log, write_entries=record_writer().write_entries, wait_for_slot=lambda: None, pause_s=0.01
        )
        for state in states
    ]
    threads = [threading.Thread(target=each.publish, args=(desired,), kwargs={"timeout_s": 60}) for each in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for state in states:
        state.rollback()
    for zone in ZONES:
        head, intervals = None, []
        for line in log.read({zone: -1})[zone].lines:
            head = check_next(head, parse_entry(line), verify_signature)
            intervals.append(head.record.interval)
        assert intervals == list(range(FIRST - 1, FIRST + 20))
