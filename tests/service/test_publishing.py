"""The publisher on a real PostgreSQL: it ends, whoever else is at work, whatever fails; nobody waits for another."""

import threading
from dataclasses import replace

from murmurate.publication.record import Kind
from murmurate.publication.wish import Change, Wish
from murmurate.quantities import UNPROTECTED
from murmurate.service.publiclog import PostgresLog
from tests.publication.chains import FIRST, NEW_KEY, OLD_KEY, OPENING, demand, write
from tests.service.stores import ZONES, wishes


def test_every_interval_of_every_zone_gets_one_record(stores):
    stores.remember(FIRST)
    stores.remember(FIRST + 2)
    outcome = stores.publisher().publish(wishes(FIRST + 3), patience_s=60)
    assert (outcome.done, outcome.moved, outcome.aside) == (set(ZONES), set(), {})
    for zone in ZONES:
        kinds = [entry.record.kind for entry in stores.entries(zone)]
        assert kinds == [Kind.OPEN, Kind.MEASURED, Kind.FORECAST, Kind.MEASURED, Kind.FORECAST]
    before = {zone: stores.lines(zone) for zone in ZONES}
    stores.remember(FIRST, 999_999)
    assert stores.publisher().publish(wishes(FIRST + 3), patience_s=60).done == set(ZONES)
    assert {zone: stores.lines(zone) for zone in ZONES} == before


def test_a_zone_whose_household_bounds_are_not_known_is_released_as_forecast(stores):
    """Missing facts fail closed, and do not keep other zones from their price."""
    drawn = demand(**dict.fromkeys(ZONES, 500_000))
    said = [
        None,
        {},
        {"": 1001},
        {"inn": 1},
        {"": 1000},
        {"mill": 9000},
        {"flat": 1000, UNPROTECTED: 5000},
        {"flat": 1},
    ]
    stores.state.remember(FIRST, replace(drawn, bounds=tuple(said)))
    stores.state.remember(FIRST + 1, replace(drawn, bounds=None))
    stores.publisher().publish(wishes(FIRST + 1), patience_s=60)
    for number, zone in enumerate(ZONES):
        first = Kind.FORECAST if number < 4 else Kind.MEASURED
        assert [entry.record.kind for entry in stores.entries(zone)] == [Kind.OPEN, first, Kind.FORECAST]


def test_a_corrected_demand_comes_with_its_own_bounds(stores):
    stores.remember(FIRST)
    drawn = demand(**dict.fromkeys(ZONES, 500_000))
    stores.state.remember(FIRST, replace(drawn, bounds=None))
    stores.state.remember(FIRST + 1, replace(drawn, bounds=None))
    stores.remember(FIRST + 1)
    stores.publisher().publish(wishes(FIRST + 1), patience_s=60)
    assert [entry.record.kind for entry in stores.entries(ZONES[0])] == [Kind.OPEN, Kind.FORECAST, Kind.MEASURED]


def test_a_new_plan_and_a_new_key_are_records_too(stores):
    stores.publisher().publish(wishes(FIRST), patience_s=60)
    changes = {"plan": Change("a" * 64, "b" * 64), "key": Change(OLD_KEY.public, NEW_KEY.public)}
    for _ in range(2):
        stores.publisher().publish(wishes(FIRST + 1, **changes), patience_s=60)
    kinds = [entry.record.kind for entry in stores.entries(ZONES[0])]
    assert kinds == [Kind.OPEN, Kind.FORECAST, Kind.KEY, Kind.PLAN, Kind.FORECAST]


def test_many_publishers_make_one_chain(stores):
    for n in range(4):
        stores.remember(FIRST + n)
    crew = [stores.publisher(batch=size) for size in (1, 3, 8)]
    threads = [
        threading.Thread(target=each.publish, args=(wishes(FIRST + 3),), kwargs={"patience_s": 60}) for each in crew
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
    head = write(None, Wish(until=FIRST, opening=OPENING), zone=zone)
    stores.log.append([head])
    sessions = [PostgresLog(stores.log_dsn) for _ in range(8)]
    stores.opened.extend(sessions)
    for n in range(200):
        offers = [write(head, Wish(until=FIRST + n), 10**6 * (k + 1), zone=zone) for k in range(8)]
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
