"""A log needs no more than a conditional write: here a folder in which a file is created only where none exists."""

import os
import threading
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from urllib.parse import quote

from murmurate.errors import ChainError
from murmurate.publication.chain import follow, refuse_misfit
from murmurate.publication.publisher import Beyond
from murmurate.publication.record import read
from murmurate.publication.signing import verify
from murmurate.publication.wish import Wish
from murmurate.service.publishing import Publisher
from murmurate.service.state import PostgresState
from tests.publication.chains import FIRST, OPENING, demand, desk

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
            found[zone] = Beyond(seq + len(lines), tuple(lines), sha256(last.encode()).hexdigest())
        return found

    def append(self, entries):
        for entry in entries:
            zone, seq = entry.record.zone, entry.record.seq
            before = self._line(zone, seq - 1)
            try:
                refuse_misfit(None if before is None else read(before), entry)
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
    states = [PostgresState(state_dsn) for _ in range(3)]
    states[0].open(dict.fromkeys(ZONES, OPENING))
    for n in range(20):
        states[0].remember(FIRST + n, demand(**dict.fromkeys(ZONES, 500_000)))
    wishes = dict.fromkeys(ZONES, Wish(until=FIRST + 19, opening=OPENING))
    crew = [Publisher(state=state, log=log, write=desk().write, wait=lambda: None, pause_s=0.01) for state in states]
    threads = [threading.Thread(target=each.publish, args=(wishes,), kwargs={"patience_s": 60}) for each in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for state in states:
        state.rollback()
    for zone in ZONES:
        head, intervals = None, []
        for line in log.read({zone: -1})[zone].lines:
            head = follow(head, read(line), verify)
            intervals.append(head.record.interval)
        assert intervals == list(range(FIRST - 1, FIRST + 20))
