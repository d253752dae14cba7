"""A state and a log on a real PostgreSQL, and as many publishers on them as a test wants."""

from murmurate.publication.chain import follow
from murmurate.publication.record import read
from murmurate.publication.signing import verify
from murmurate.publication.wish import Wish
from murmurate.service.publiclog import PostgresLog
from murmurate.service.publishing import Publisher
from murmurate.service.state import PostgresState
from tests.publication.chains import OPENING, PLANS, demand, desk

ZONES = [f"zone {n}" for n in range(7)] + ['Zürich "1"\n\\']


class Stores:
    """A state and a log, and as many publishers on them as a test wants."""

    def __init__(self, state_dsn, log_dsn):
        self.state_dsn, self.log_dsn = state_dsn, log_dsn
        self.log = PostgresLog(log_dsn)
        self.opened = []
        for plan in PLANS:
            self.log.publish_plan(plan, "{}")
        self.state = self.new_state()
        self.state.open(dict.fromkeys(ZONES, OPENING))

    def new_state(self):
        state = PostgresState(self.state_dsn)
        self.opened.append(state)
        return state

    def publisher(self, **options):
        log = PostgresLog(self.log_dsn)
        self.opened.append(log)
        given = {"state": self.new_state(), "log": log, "write": desk().write, "wait": lambda: None, "batch": 3}
        return Publisher(**given | {"pause_s": 0.01} | options)

    def remember(self, interval, energy_wh=500_000):
        self.state.remember(interval, demand(**dict.fromkeys(ZONES, energy_wh)))

    def lines(self, zone):
        return self.log.read({zone: -1})[zone].lines

    def entries(self, zone):
        """The chain of a zone, every link checked."""
        head, entries = None, []
        for line in self.lines(zone):
            head = follow(head, read(line), verify)
            entries.append(head)
        return entries

    def close(self):
        for store in (*self.opened, self.log):
            store.close()


def wishes(until, zones=ZONES, **more):
    return {zone: Wish(until=until, opening=OPENING, **more) for zone in zones}
