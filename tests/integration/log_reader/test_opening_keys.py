"""The key that a zone's page states is the one that its log begins with, whatever happened before the zone came."""

import pytest
from tests.integration.log_reader.test_follower import FIRST, ZONE, Reader
from tests.support.api_servers import plan_of
from tests.support.postgres_stores import ShardWriter
from tests.support.sample_shards import NEW_KEY, OLD_KEY

from murmurate.publisher.desired_state import Change, ZoneOpening
from murmurate.verification.verifier import check_log

ROTATION = Change(OLD_KEY.public_key, NEW_KEY.public_key)


@pytest.fixture(scope="module")
def plans():
    return {ZONE: plan_of(ZONE)}


def check_zone(reader, zone, key):
    """Read the key as the page does, and verify the log of the zone with it as its reader would."""
    reader.refresh()
    reader.backfill()
    assert reader.archive.read_opening_key(reader.views[zone]) == key
    text = b"".join(reader.archive.read_log_chunks(reader.views[zone])).decode()
    report = check_log({"log.jsonl": text.splitlines}, expected_key=key)
    assert report.is_valid
    assert report.is_complete
    assert report.zones[zone].first_key == key


def test_the_opening_key_of_zones_before_and_after_a_rotation(log_dsn, plans):
    writer, reader = ShardWriter(log_dsn, {ZONE: plans[ZONE]}, first=FIRST), Reader(log_dsn)
    writer.write(3, 400_000)
    check_zone(reader, ZONE, OLD_KEY.public_key)
    writer.write(key_change=ROTATION)
    its = writer.terms[ZONE]
    late = ZoneOpening(plan=its.plan_digest, currency=its.currency, tick=its.tick, first=FIRST)
    writer.log.claim({"late": "quay"})
    writer.take("late", plans[ZONE], late)
    writer.write(4, 400_000)
    check_zone(reader, ZONE, OLD_KEY.public_key)
    check_zone(reader, "late", NEW_KEY.public_key)
    for each in (reader, writer):
        each.close()
