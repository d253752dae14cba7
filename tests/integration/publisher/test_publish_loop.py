"""The publisher on a real PostgreSQL: it ends, whatever runs beside it or fails, and no publisher waits for another."""

import threading
from dataclasses import replace

from tests.support.postgres_stores import ZONES, desired
from tests.support.sample_chains import FIRST, NEW_KEY, OLD_KEY, OPENING, demand, write

from murmurate.public_log.record import RecordKind
from murmurate.publisher.desired_state import Change, DesiredState
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.types import UNPROTECTED_KIND


def test_every_interval_of_every_zone_gets_one_record(stores):
    stores.store_demand(FIRST)
    stores.store_demand(FIRST + 2)
    outcome = stores.publisher().publish(desired(FIRST + 3), timeout_s=60)
    assert (outcome.up_to_date, outcome.unfinished, outcome.blocked) == (set(ZONES), set(), {})
    for zone in ZONES:
        kinds = [entry.record.kind for entry in stores.entries(zone)]
        assert kinds == [
            RecordKind.OPEN,
            RecordKind.MEASURED,
            RecordKind.FORECAST,
            RecordKind.MEASURED,
            RecordKind.FORECAST,
        ]
    before = {zone: stores.lines(zone) for zone in ZONES}
    stores.store_demand(FIRST, 999_999)
    assert stores.publisher().publish(desired(FIRST + 3), timeout_s=60).up_to_date == set(ZONES)
    assert {zone: stores.lines(zone) for zone in ZONES} == before


def test_a_zone_whose_household_bounds_are_not_known_is_released_as_forecast(stores):
    """Missing facts fail closed, and do not keep other zones from their price."""
    drawn = demand(**dict.fromkeys(ZONES, 500_000))
    bounds = [
        None,
        {},
        {"": 1001},
        {"inn": 1},
        {"": 1000},
        {"mill": 9000},
        {"flat": 1000, UNPROTECTED_KIND: 5000},
        {"flat": 1},
    ]
    stores.state.store_demand(FIRST, replace(drawn, bounds=tuple(bounds)))
    stores.state.store_demand(FIRST + 1, replace(drawn, bounds=None))
    stores.publisher().publish(desired(FIRST + 1), timeout_s=60)
    for number, zone in enumerate(ZONES):
        first = RecordKind.FORECAST if number < 4 else RecordKind.MEASURED
        assert [entry.record.kind for entry in stores.entries(zone)] == [RecordKind.OPEN, first, RecordKind.FORECAST]


def test_a_corrected_demand_comes_with_its_own_bounds(stores):
    stores.store_demand(FIRST)
    drawn = demand(**dict.fromkeys(ZONES, 500_000))
    stores.state.store_demand(FIRST, replace(drawn, bounds=None))
    stores.state.store_demand(FIRST + 1, replace(drawn, bounds=None))
    stores.store_demand(FIRST + 1)
    stores.publisher().publish(desired(FIRST + 1), timeout_s=60)
    assert [entry.record.kind for entry in stores.entries(ZONES[0])] == [
        RecordKind.OPEN,
        RecordKind.FORECAST,
        RecordKind.MEASURED,
    ]


def test_a_new_plan_and_a_new_key_are_records_too(stores):
    stores.publisher().publish(desired(FIRST), timeout_s=60)
    changes = {"plan_change": Change("a" * 64, "b" * 64), "key_change": Change(OLD_KEY.public_key, NEW_KEY.public_key)}
    for _ in range(2):
        stores.publisher().publish(desired(FIRST + 1, **changes), timeout_s=60)
    kinds = [entry.record.kind for entry in stores.entries(ZONES[0])]
    assert kinds == [RecordKind.OPEN, RecordKind.FORECAST, RecordKind.KEY, RecordKind.PLAN, RecordKind.FORECAST]


def test_many_publishers_make_one_chain(stores):
    for n in range(4):
        stores.store_demand(FIRST + n)
    crew = [stores.publisher(batch_size=size) for size in (1, 3, 8)]
    threads = [
        threading.Thread(target=each.publish, args=(desired(FIRST + 3),), kwargs={"timeout_s": 60}) for each in crew
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for zone in ZONES:
        assert [entry.record.interval for entry in stores.entries(zone)] == list(range(FIRST - 1, FIRST + 4))


def test_of_many_lines_after_one_head_the_log_takes_one(stores):
    """Compare and swap, hammered: eight sessions offer eight different lines for the same place, two hundred times."""
    zone = ZONES[0]
    head = write(None, DesiredState(until=FIRST, opening=OPENING), zone=zone)
    stores.log.append([head])
    sessions = [PostgresLogStore(stores.log_dsn) for _ in range(8)]
    stores.opened.extend(sessions)
    for n in range(200):
        offers = [write(head, DesiredState(until=FIRST + n), 10**6 * (k + 1), zone=zone) for k in range(8)]
        start = threading.Barrier(8)

        def offer(session, entry, start=start):
            start.wait()
            session.append([entry])

        threads = [threading.Thread(target=offer, args=pair) for pair in zip(sessions, offers, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last_seq, lines, _ = stores.log.read({zone: head.record.seq})[zone]
        assert last_seq == n + 1
        assert len(lines) == 1
        (head,) = (entry for entry in offers if entry.line == lines[0])
