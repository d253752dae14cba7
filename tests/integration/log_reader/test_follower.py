"""The follower shows valid records, stops at an invalid one, and finds every price again."""

from __future__ import annotations

import json
import os
import resource
from dataclasses import replace
from zoneinfo import ZoneInfo

import psycopg
import pytest
from tests.support.api_servers import plan_of
from tests.support.postgres_stores import ShardWriter
from tests.support.sample_shards import NEW_KEY, OLD_KEY

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.planning.zone_file import parse_zone
from murmurate.public_log.make_tile import release_interval
from murmurate.public_log.tile import sign_tile
from murmurate.publisher.desired_state import Change, PlanChange
from murmurate.service.log_reader import follower
from murmurate.service.log_reader.follower import TILES_PER_QUERY, Follower, TileNotices
from murmurate.service.log_reader.log_queries import LogReader
from murmurate.service.log_reader.zone_view import PlanEnd, PlanTerms, ZoneViews
from murmurate.service.settings import ZoneDisplay

ZONE, OTHER, FIRST = "harbour", "old town", 1_900_000


class Reader:
    """A follower, and the views that it fills."""

    def __init__(self, dsn):
        self.follower, self.archive = Follower(dsn), LogReader(dsn)
        self.views = ZoneViews(
            lambda _: ZoneDisplay(timezone=ZoneInfo("UTC")), PlanTerms(self.archive.read_documents).get
        )

    def refresh(self):
        """The intervals that were called new, by shard."""
        new = {}
        for change in self.follower.refresh():
            self.views.put(change.view)
            new[change.view.name] = [*new.get(change.view.name, []), *change.new_intervals]
        return new

    def backfill(self):
        while not self.follower.is_backfilled:
            for change in self.follower.backfill(10):
                self.views.put(change.view)

    def shown(self, zone=ZONE):
        return {at: price.ticks for at, price in self.views[zone].prices.items()}

    def close(self):
        self.follower.close()
        self.archive.close()


@pytest.fixture(scope="module")
def plans():
    return {zone: plan_of(zone) for zone in (ZONE, OTHER)}


@pytest.fixture
def writer(log_dsn, plans):
    made = ShardWriter(log_dsn, plans, first=FIRST)
    made.write()
    yield made
    made.close()


@pytest.fixture
def reader(log_dsn):
    made = Reader(log_dsn)
    yield made
    made.close()


def test_what_is_new_is_shown_and_called_new_once(writer, reader):
    writer.write(4, 400_000)
    assert reader.refresh() == {"quay": []}  # of old prices none is new
    reader.backfill()
    assert reader.shown() == writer.prices(ZONE)
    assert reader.refresh() == {}
    writer.write(2)
    writer.write(key_change=Change(OLD_KEY.public_key, NEW_KEY.public_key))
    writer.write(1, 400_000)
    assert reader.refresh() == {"quay": list(range(FIRST + 4, FIRST + 7))}
    view = reader.views[ZONE]
    assert (view.shard.opening_key, view.key) == (OLD_KEY.public_key, NEW_KEY.public_key)
    assert view.last_decided == max(writer.prices(ZONE))
    for zone in (ZONE, OTHER):
        assert reader.shown(zone) == writer.prices(zone)
    assert view.shard.head.totals[:, 0].tolist() == writer.head.totals[:, 0].tolist()


def test_the_prices_that_are_paid_now_are_there_before_those_of_the_days_before(writer, reader):
    writer.write(3 * TILES_PER_QUERY)
    reader.refresh()
    first = sorted(reader.shown())
    assert first[-1] == max(writer.prices(ZONE))
    assert 2 <= len(first) < TILES_PER_QUERY
    reader.backfill()
    assert reader.shown() == writer.prices(ZONE)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_shard_whose_log_is_mended_is_shown_again(writer, reader, is_known, monkeypatch):
    monkeypatch.setattr(follower, "BROKEN_RETRY_S", 0.0)
    writer.write(3)
    if is_known:
        reader.refresh()
    honest = writer.draft().tile
    forged = replace(honest, rows=honest.rows.copy())
    forged.rows["price_ticks"][0] += 1
    writer.smuggle(forged)
    reader.refresh()
    assert list(reader.follower.broken) == ["quay"]
    reader.refresh()  # it is tried again, and is still broken
    assert list(reader.follower.broken) == ["quay"]
    with psycopg.connect(writer.dsn) as connection:
        connection.execute("SET session_replication_role = replica")  # past the rules of the log
        query = "UPDATE public_log.tile SET body = %s WHERE shard = 'quay' AND seq = %s"
        connection.execute(query, (honest.to_bytes(), honest.header.seq))
    reader.refresh()
    assert reader.follower.broken == {}
    assert reader.views[ZONE].last_decided == honest.header.interval + honest.header.lead


def test_a_reader_that_was_away_for_long_catches_up_in_steps(writer, reader):
    reader.refresh()
    writer.write(2 * TILES_PER_QUERY + 3)
    changes = [change.new_intervals for change in reader.follower.refresh()]
    assert [len(new) for new in changes] == [TILES_PER_QUERY, TILES_PER_QUERY, 3]


@pytest.mark.parametrize("forgery", ["another price", "another key", "another past", "a gap", "a row too many"])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_does_not_follow_is_not_shown(writer, reader, forgery, is_known):
    writer.write(5)
    if is_known:
        reader.refresh()
    honest = writer.draft().tile
    if forgery == "another price":
        rows = honest.rows.copy()
        rows["price_ticks"][0] += 1
        tile = replace(honest, rows=rows)
    elif forgery == "another key":
        tile = sign_tile(replace(honest.header, key=NEW_KEY.public_key), OLD_KEY, honest.rows)
    elif forgery == "another past":
        tile = sign_tile(replace(honest.header, prev="f" * 64), OLD_KEY, honest.rows)
    elif forgery == "a gap":
        head = replace(writer.head, tile=replace(writer.head.tile, header=_later(writer.head.tile.header)))
        tile = release_interval(head, honest.rows, OLD_KEY)
    else:
        tile = sign_tile(replace(honest.header, count=3), OLD_KEY, honest.rows[[0, 1, 1]])
    writer.smuggle(tile)
    assert reader.refresh() == {}
    assert list(reader.follower.broken) == ["quay"]
    if is_known:
        assert reader.views[ZONE].last_decided == max(writer.prices(ZONE))
    else:
        assert ZONE not in reader.views
    assert reader.refresh() == {}


def _later(header):
    return replace(header, interval=header.interval + 1)


@pytest.mark.parametrize("body", [b"{}\n", b"no JSON", b"\xff\n", b"[]\n", b""])
def test_a_tile_that_is_none_stops_its_shard_and_no_other(writer, reader, log_dsn, body):
    writer.write(3)
    with psycopg.connect(log_dsn) as connection:
        connection.execute("INSERT INTO public_log.tile (shard, seq, interval, body) VALUES ('odd', 0, 0, %s)", (body,))
        connection.execute(
            "INSERT INTO public_log.head SELECT 'odd', 0, hash, key, zones, 0, interval_s, lead FROM public_log.head"
        )
    reader.refresh()
    reader.backfill()
    assert reader.shown() == writer.prices(ZONE)
    assert set(reader.follower.broken) == {"odd"}


def test_every_price_is_found_again_whatever_stands_between(writer, reader):
    for number in range(6):
        key = writer.head.tile.key_in_force
        if number % 2:
            other = NEW_KEY.public_key if key == OLD_KEY.public_key else OLD_KEY.public_key
            writer.write(key_change=Change(key, other))
        writer.write(1 + number % 3, 400_000 if number % 2 else None)
    reader.refresh()
    view, known = reader.views[OTHER], writer.prices(OTHER)
    for first in known:
        for last in known:
            found = {price.interval: price.ticks for price in reader.archive.read_prices(view, first, last)}
            assert found == {at: ticks for at, ticks in known.items() if first <= at <= last}
    reader.backfill()
    exact = reader.archive.read_prices(view, min(known), max(known))
    recent = reader.views[OTHER].prices
    assert [replace(price, scale_wh=None) for price in exact] == [
        replace(recent[price.interval], scale_wh=None) for price in exact
    ]
    assert all(
        (recent[price.interval].scale_wh or 0) == pytest.approx(price.scale_wh or 0, rel=1e-6) for price in exact
    )


@pytest.fixture
def many_files():
    """As many open files as a server with a thousand clients has."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for each in opened:
        os.close(each)


@pytest.mark.parametrize("clients", [0, 1100])
def test_a_tile_is_announced(writer, log_dsn, clients, request):
    if clients:
        request.getfixturevalue("many_files")
    notices = TileNotices(log_dsn)
    notices.listen()
    assert not notices.wait(0.0)
    writer.write()
    assert notices.wait(60)
    assert not notices.wait(0.0)
    notices.interrupt()
    assert not notices.wait(60)  # at once
    notices.close()


def test_a_zone_that_entered_later_has_its_prices_and_the_others_keep_theirs(writer, reader, plans, log_dsn):
    writer.write(6, 400_000)
    reader.refresh()
    reader.backfill()
    before = writer.prices(ZONE)
    its = writer.zones[ZONE]
    writer.log.claim({"late": writer.shard})
    writer.take("late", plans[ZONE], replace(its, first=FIRST))
    writer.write(4, 500_000)
    later = Reader(log_dsn)
    for one in (reader, later):
        one.refresh()
        one.backfill()
        for zone in (ZONE, OTHER, "late"):
            view = one.views[zone]
            assert one.shown(zone) == writer.prices(zone)
            exact = view.exact_prices(view.known_intervals)
            assert [ticks for ticks, _, _ in exact] == list(one.shown(zone).values())
            archived = one.archive.read_prices(view, view.first_priced - 5, view.last_decided + 5)
            assert {price.interval: price.ticks for price in archived} == writer.prices(zone)
        assert one.shown() == before | {n: one.shown()[n] for n in range(max(before) + 1, max(before) + 4)}
        assert min(one.shown("late")) == max(before) + 1
    later.close()


def test_plans_that_ended_are_found_in_memory_and_in_the_log(writer, reader, plans):
    """A page must know them: a stretch of time across a change keeps the weaker of two promises."""
    before = writer.terms[ZONE]
    text = make_plan(parse_zone(json.loads(plans[ZONE])["zone_file"].replace("epsilon 3", "epsilon 2"))).to_json()
    after = ReleaseTerms.from_json(text)
    writer.log.publish_documents({after.plan_digest: compact_plan(text)})
    writer.write(5, 400_000)
    writer.write(key_change=Change(OLD_KEY.public_key, NEW_KEY.public_key))  # is no change of plan
    writer.write(2, 400_000)
    change = PlanChange(before.plan_digest, after.plan_digest, after.currency, after.tick)
    writer._by_digest[after.plan_digest] = after
    writer.zones[ZONE] = replace(writer.zones[ZONE], plan=after.plan_digest)
    writer.write(plan_changes={ZONE: change})
    writer.write(6, 400_000)
    reader.refresh()
    reader.backfill()
    view, other = reader.views[ZONE], reader.views[OTHER]
    ended = [PlanEnd(before.plan_digest, FIRST + 7)]
    assert view.plan_digest == after.plan_digest
    assert view.earlier_plans == ended
    assert other.earlier_plans == []
    for first in (FIRST + 7, FIRST + 10):  # as if memory began there
        later = replace(view, shard=replace(view.shard, first=first))
        assert later.earlier_plans == []
        assert reader.archive.read_older_plans(later, FIRST + 7) == tuple(ended)
        assert reader.archive.read_older_plans(later, FIRST - 900) == tuple(ended)
        assert reader.archive.read_older_plans(later, FIRST + 8) == ()
        assert replace(later, older_plans=tuple(ended)).earlier_plans == ended
        assert reader.archive.read_older_plans(replace(other, shard=later.shard), FIRST) == ()
    first = replace(view, shard=replace(view.shard, first=FIRST + 6))
    assert first.earlier_plans == ended  # in memory
    assert reader.archive.read_older_plans(first, FIRST) == ()
