"""The follower shows valid records, stops at an invalid one, and finds every price again."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import psycopg
import pytest
from tests.support.api_servers import plan_of
from tests.support.sample_chains import NEW_KEY, NO_DEMAND, OLD_KEY, demand

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.record import RELEASE_KINDS, sign_record
from murmurate.publisher.desired_state import Change, DesiredState, Opening, find_next_record
from murmurate.publisher.record_writer import RecordWriter
from murmurate.service.log_reader.archive import Archive
from murmurate.service.log_reader.follower import Follower
from murmurate.service.settings import ZoneDisplay
from murmurate.service.storage.public_log_store import PostgresLogStore

ZONE, FIRST, LEAD = "harbour", 1_900_000, 2


class Writer:
    """Writes a chain into the log, honestly or not."""

    def __init__(self, dsn):
        self.dsn, self.log, self.head, self.entries = dsn, PostgresLogStore(dsn), None, []
        text = plan_of(ZONE)
        self.terms = ReleaseTerms.from_json(text)
        self.log.publish_plan(self.terms.plan_digest, text)
        signers = {key.public_key: key for key in (OLD_KEY, NEW_KEY)}
        plans = {self.terms.plan_digest: self.terms}
        self.record_writer = RecordWriter(terms_for_plan=plans.get, signers=signers, noise=SystemNoise())
        self.opening = Opening(plan=self.terms.plan_digest, key=OLD_KEY.public_key, first=FIRST, lead=LEAD)

    def draft(self, **desired):
        next_record = find_next_record(self.head, DesiredState(**{"until": 10**9, "opening": self.opening} | desired))
        used = NO_DEMAND if next_record.interval % 3 else demand(**{ZONE: 400_000})
        return self.record_writer.write_entries({ZONE: (self.head, next_record)}, used).written[ZONE]

    def write(self, count=1, **desired):
        for _ in range(count):
            self.head = self.draft(**desired)
            self.log.append([self.head])
            self.entries.append(self.head)

    def rotate(self):
        key = self.head.key_in_force
        other = NEW_KEY.public_key if key == OLD_KEY.public_key else OLD_KEY.public_key
        self.write(key_change=Change(key, other))

    def smuggle(self, entry):
        """Write past the rules of the log, as the owner of its database could."""
        with psycopg.connect(self.dsn) as connection:
            query = "INSERT INTO public_log.entry (zone, seq, line) VALUES (%s, %s, %s)"
            connection.execute(query, (ZONE, entry.record.seq, entry.line))
            connection.execute("UPDATE public_log.head SET seq = %s", (entry.record.seq,))

    def prices(self):
        return {one.record.applies: one.record.price_ticks for one in self.entries if one.record.kind in RELEASE_KINDS}


@pytest.fixture
def writer(log_dsn):
    made = Writer(log_dsn)
    yield made
    made.log.close()


@pytest.fixture
def follower(log_dsn):
    made = Follower(log_dsn, lambda _: ZoneDisplay(timezone=ZoneInfo("UTC")))
    yield made
    made.close()


def shown(follower):
    return {at: price.ticks for at, price in follower.views[ZONE].prices.items()}


def test_what_is_new_is_shown_and_called_new_once(writer, follower):
    writer.write(4)
    assert [prices for _, prices in follower.refresh()] == [[]]  # of old prices none is new
    assert shown(follower) == writer.prices()
    assert follower.refresh() == []
    writer.write(2)
    writer.rotate()
    writer.write(1)
    ((view, prices),) = follower.refresh()
    assert [price.interval for price in prices] == sorted(writer.prices())[-3:]
    assert (view.key, view.seq, view.last_decided) == (NEW_KEY.public_key, writer.head.record.seq, max(writer.prices()))
    assert shown(follower) == writer.prices()


@pytest.mark.parametrize("forgery", ["another price", "another key", "another past", "a gap", "a second draw"])
def test_what_does_not_follow_is_not_shown(writer, follower, forgery):
    writer.write(5)
    follower.refresh()
    before, honest = shown(follower), writer.draft()
    record = honest.record
    if forgery == "another price":
        entry = replace(honest, line=honest.line.replace(f'"price_ticks":{record.price_ticks}', '"price_ticks":77777'))
    elif forgery == "another key":
        entry = sign_record(replace(record, key=NEW_KEY.public_key), NEW_KEY)
    elif forgery == "another past":
        entry = sign_record(replace(record, prev="f" * 64), OLD_KEY)
    elif forgery == "a gap":
        entry = sign_record(replace(record, interval=record.interval + 1, applies=record.applies + 1), OLD_KEY)
    else:
        entry = sign_record(replace(record, interval=record.interval - 1, applies=record.applies - 1), OLD_KEY)
    writer.smuggle(entry)
    assert follower.refresh() == []
    assert ZONE in follower.broken
    assert shown(follower) == before
    assert follower.refresh() == []


def test_a_log_whose_last_record_nobody_signed_is_not_shown_at_all(writer, follower):
    writer.write(5)
    honest = writer.draft()
    writer.smuggle(replace(honest, line=honest.line.replace('"interval_s":900', '"interval_s":901')))
    assert follower.refresh() == []
    assert ZONE not in follower.views
    assert ZONE in follower.broken


def test_every_price_is_found_again_whatever_stands_between(writer, follower, log_dsn):
    writer.write(3)
    for number in range(12):
        for _ in range(number % 4):
            writer.rotate()
        writer.write(1 + number % 3)
    follower.refresh()
    view, known, archive = follower.views[ZONE], writer.prices(), Archive(log_dsn)
    intervals = sorted(known)
    for first in intervals:
        for last in intervals:
            found = {price.interval: price.ticks for price in archive.read_prices(view, first, last)}
            assert found == {at: ticks for at, ticks in known.items() if first <= at <= last}
    archive.close()


def test_a_verifier_is_told_the_key_that_opened_the_chain_whoever_signs_now(writer, follower):
    writer.write(2)
    writer.rotate()
    writer.write(1)
    follower.refresh()
    view = follower.views[ZONE]
    assert (view.opening_key, view.key) == (OLD_KEY.public_key, NEW_KEY.public_key)


@pytest.mark.parametrize("line", ["{}", "no JSON", '{"kind":"measured"}', "[]"])
def test_a_line_that_is_no_record_stops_its_zone_and_nobody_else(writer, follower, log_dsn, line):
    writer.write(3)
    with psycopg.connect(log_dsn) as connection:
        connection.execute("INSERT INTO public_log.entry (zone, seq, line) VALUES ('odd', 0, %s)", (line,))
        connection.execute(
            "INSERT INTO public_log.head SELECT 'odd', 0, hash, key, plan, interval, interval_s, lead, 0, 0"
            " FROM public_log.head"
        )
    follower.refresh()
    assert shown(follower) == writer.prices()
    assert set(follower.broken) == {"odd"}
