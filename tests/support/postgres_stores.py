"""A state and a log on a real PostgreSQL server, and publishers that use them."""

from murmurate.public_log.chain import check_next
from murmurate.public_log.record import parse_entry
from murmurate.public_log.signing import verify_signature
from murmurate.publisher.desired_state import DesiredState
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher
from tests.support.sample_chains import OPENING, PLANS, demand, record_writer

ZONES = [f"zone {n}" for n in range(7)] + ['Zürich "1"\n\\']


class Stores:
    """A state, a log, and any number of publishers that use them."""

    def __init__(self, state_dsn, log_dsn):
        self.state_dsn, self.log_dsn = state_dsn, log_dsn
        self.log = PostgresLogStore(log_dsn)
        self.opened = []
        for plan in PLANS:
            self.log.publish_plan(plan, "{}")
        self.state = self.new_state()
        self.state.store_openings(dict.fromkeys(ZONES, OPENING))

    def new_state(self):
        state = PostgresStateStore(self.state_dsn)
        self.opened.append(state)
        return state

    def publisher(self, **options):
        log = PostgresLogStore(self.log_dsn)
        self.opened.append(log)
        defaults = {"state": self.new_state(), "log": log, "write_entries": record_writer().write_entries}
        defaults |= {"wait_for_slot": lambda: None, "batch_size": 3, "pause_s": 0.01}
        return Publisher(**defaults | options)

    def store_demand(self, interval, energy_wh=500_000):
        self.state.store_demand(interval, demand(**dict.fromkeys(ZONES, energy_wh)))

    def lines(self, zone):
        return self.log.read({zone: -1})[zone].lines

    def entries(self, zone):
        """The chain of a zone, every link checked."""
        head, entries = None, []
        for line in self.lines(zone):
            head = check_next(head, parse_entry(line), verify_signature)
            entries.append(head)
        return entries

    def close(self):
        for store in (*self.opened, self.log):
            store.close()


def desired(until, zones=ZONES, **more):
    return {zone: DesiredState(until=until, opening=OPENING, **more) for zone in zones}
