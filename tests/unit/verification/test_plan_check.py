"""A log against its plans: each is proven anew, each row is held against it, each window against its promise."""

import json
import tracemalloc
from dataclasses import replace
from datetime import datetime
from hashlib import sha256

import numpy as np
import pytest
from tests.support.sample_logs import (
    DIGEST,
    FIRST,
    OLD,
    OTHER,
    OTHER_DIGEST,
    PLAN,
    TERMS,
    F,
    M,
    ShardLog,
    W,
    check,
    log,
    plan,
    rules,
    zone_row,
)

from murmurate.planning.plan import load_plan, prove_plan
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.public_log.make_tile import open_shard, release_interval
from murmurate.public_log.tile import row_dtype
from murmurate.public_log.tile_chain import check_follows
from murmurate.public_log.zone_line import make_zone_line
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.verifier import check_log


def both_ways(made, zones=("harbour",), **more):
    """The rules that are broken: in tiles, and in lines of zones. They must be the same."""
    in_tiles = rules(check(made.items(), **more))
    in_lines = set().union(*(rules(check(made.lines(zone), **more)) for zone in zones))
    assert in_tiles == in_lines
    return in_tiles


def test_a_missing_plan_is_incomplete_and_not_wrong():
    for items in (log().items(), log().lines("harbour")):
        report = check(items, plans=[PLAN])
        assert (report.is_valid, report.is_complete, report.missing_plans) == (True, False, {OTHER_DIGEST: "harbour"})


@pytest.mark.parametrize("sealed", [False, True])
def test_a_changed_plan_proves_nothing(sealed):
    document = json.loads(PLAN)
    document["scale_wh"][3] /= 2
    if sealed:  # with the digest of what it says now: its costs do not come out again
        document["digest"] = compute_plan_digest(document)
    text = json.dumps(document)
    digest = document["digest"]
    made = ShardLog(terms={digest: replace(TERMS[DIGEST], plan_digest=digest)}, plan_digest=digest).release()
    assert both_ways(made, plans=[text]) == {"plan"}
    for plans in ([text, PLAN], [PLAN, text]):
        assert check(log().cut(3).items(), plans=plans).is_valid, "the right document is taken"


def test_a_release_at_another_scale_or_price_than_planned_is_found():
    cheaper = replace(TERMS[DIGEST], scale_wh=TERMS[DIGEST].scale_wh / 2)
    dearer = replace(TERMS[DIGEST], forecast_ticks=TERMS[DIGEST].forecast_ticks + 1)
    for terms, kind in ((cheaper, M), (dearer, F)):
        assert both_ways(ShardLog(terms={DIGEST: terms}).release(kind)) == {"terms"}


@pytest.mark.parametrize("ticks", [200_001, -1])
def test_a_price_beyond_floor_or_cap_is_found(ticks):
    def edit(rows):
        rows["price_ticks"][2] = ticks

    made = ShardLog().release(edit=edit)
    report = check(made.items())
    assert [(finding.zone, finding.rule) for finding in report.findings] == [("ünder the hill", "terms")]
    assert both_ways(made, ["ünder the hill"]) == {"terms"}


@pytest.mark.parametrize("member", ["currency", "tick"])
def test_another_currency_or_price_step_than_planned_is_found(member):
    row = zone_row("harbour")
    report = check(ShardLog(rows=[row._replace(**{member: f"{getattr(row, member)}0"})]).release().items())
    assert [(finding.zone, finding.rule, finding.seq) for finding in report.findings] == [("harbour", "terms", 0)]


def test_another_length_of_the_interval_than_planned_is_found():
    table = ZoneTable.from_rows([zone_row("harbour")])
    tile = open_shard("east", table, interval=FIRST - 1, interval_s=1800, lead=2, signer=OLD)
    assert rules(check([table.text, tile.to_bytes()])) == {"terms"}
    assert rules(check([make_zone_line(tile, table, "harbour").to_json()])) == {"terms"}


def test_each_zone_is_held_against_its_own_plan():
    made = ShardLog().change_plan(zones=["hill"]).release(times=3)
    assert check(made.items()).is_valid
    swapped = {DIGEST: TERMS[OTHER_DIGEST], OTHER_DIGEST: TERMS[DIGEST]}
    made.terms = swapped
    found = check(made.release().items()).findings
    assert {finding.zone for finding in found} == {"harbour", "hill", "ünder the hill"}


def changing(before, after, quiet=0, measured=4):
    """The rules that a shard breaks which goes from one plan to another, both kept to the letter."""
    terms = {at.plan_digest: at for at in (ReleaseTerms.from_json(before), ReleaseTerms.from_json(after))}
    one, other = terms
    made = ShardLog(terms=terms, plan_digest=one, zones=("harbour",)).release(times=measured).release(F, times=quiet)
    return both_ways(made.change_plan(other).release(), plans=[before, after])


@pytest.mark.slow
def test_a_change_that_breaks_the_windows_across_it_is_found():
    strict, loose = plan("any 24 h: epsilon 1"), plan("any 12 h: epsilon 1")
    assert changing(strict, loose, measured=24) == {"change"}
    assert changing(strict, loose, measured=24, quiet=11) == {"change"}
    assert not changing(strict, loose, measured=24, quiet=12), "no window across it is too dear"
    assert not changing(strict, loose, measured=0, quiet=1), "nothing was measured under the first"
    assert not changing(strict, plan("any 24 h: epsilon 2"), measured=24), "a weaker window of the same length"


def test_a_change_is_held_against_what_each_zone_released():
    """One zone was quiet for as long as a window, another was not."""
    strict, loose = plan("any 24 h: epsilon 1"), plan("any 12 h: epsilon 1")
    terms = {at.plan_digest: at for at in (ReleaseTerms.from_json(strict), ReleaseTerms.from_json(loose))}
    one, other = terms
    made = ShardLog(terms=terms, plan_digest=one, zones=("harbour", "hill")).release(times=24).release([F, M], times=12)
    report = check(made.change_plan(other).items(), plans=[strict, loose])
    assert [(finding.rule, finding.zone, finding.seq) for finding in report.findings] == [("change", "hill", 37)]


@pytest.mark.slow
@pytest.mark.parametrize(("quiet", "found"), [(0, {"change"}), (11, {"change"}), (12, set())])
def test_a_change_of_plan_is_held_against_all_zone_tables_before(quiet, found):
    strict, loose = plan("any 24 h: epsilon 1"), plan("any 12 h: epsilon 1")
    terms = {at.plan_digest: at for at in (ReleaseTerms.from_json(strict), ReleaseTerms.from_json(loose))}
    one, other = terms
    made = ShardLog(terms=terms, plan_digest=one, zones=("hill",)).release(times=24)
    for zone, times in (("ash", quiet // 2), ("quay", quiet - quiet // 2)):
        rows = [*made.table.rows, zone_row(zone, one, made.head.interval + 1, terms=terms)]
        made = made.enter(rows).release(F, times=times)
    changed = made.change_plan(other, zones={"hill"}).release()
    assert rules(check(changed.items(), plans=[strict, loose])) == found


@pytest.mark.slow
def test_a_change_that_tells_more_about_moments_lived_before_it_is_found():
    """From the log alone: the plans that it holds, and the order in which it names them."""
    careful, loud = plan("any moment: 1"), plan("any moment: 3")
    assert changing(careful, loud, measured=30) == {"change"}
    renamed = plan("any moment: 3", old='name = "flat"', new='name = "flats"')
    assert changing(careful, renamed, measured=30) == {"change"}
    assert not changing(careful, plan("any moment: 1", old='name = "flat"', new='name = "flats"'), measured=30)


@pytest.mark.slow
def test_three_plans_in_a_row_are_held_against_all_that_the_log_shows():
    """A weaker promise with the old noise may come first, less noise next; but not before the first has faded.

    The changes are at 2 and 3 o'clock. Nearly every resident arrives in the morning, so the night before is lost.
    """
    careful, loud = load_plan(plan("any moment: 1")), load_plan(plan("any moment: 3"))
    between = prove_plan(loud.zone, careful.distribution, careful.scale_wh)
    texts = [json.dumps(json.loads(each.to_json())) for each in (careful, between, loud)]
    terms = {ReleaseTerms.from_json(text).plan_digest: ReleaseTerms.from_json(text) for text in texts}
    first, second, third = terms
    for under_the_second, found in ((1, {"change"}), (120, set())):
        made = ShardLog(terms=terms, plan_digest=first, zones=("harbour",)).release(times=26)
        made = made.change_plan(second).release(times=under_the_second)
        assert not both_ways(made, plans=texts)
        assert both_ways(made.change_plan(third), plans=texts) == found


@pytest.mark.slow
def test_local_time_that_a_plan_was_not_proven_for_is_found():
    """A plan that knows standard time alone is not proven for a summer day of its zone."""
    document = json.loads(plan("any 24 h: epsilon 1", old='time_zone = "UTC"', new='time_zone = "Europe/Zurich"'))
    assert document["clock"]["offsets_min"] == [60, 120]
    document["clock"] |= {"offsets_min": [60], "changes": []}
    text = json.dumps(document | {"digest": compute_plan_digest(document)})
    terms = {compute_plan_digest(document): ReleaseTerms.from_json(text)}
    for month, found in (("2026-01-15", set()), ("2026-07-15", {"clock"})):
        first = int(datetime.fromisoformat(f"{month}T12:00+00:00").timestamp()) // 3600
        made = ShardLog(terms=terms, plan_digest=next(iter(terms)), first=first)
        assert both_ways(made.release(), plans=[text]) == found
        assert not both_ways(made.release(F), plans=[text]), "a forecast uses no reading"


def test_a_plan_that_spends_all_it_promises_passes_in_spite_of_rounding():
    made = ShardLog(zones=("harbour",)).release(times=30)
    assert sum(int(tile.rows["epsilon_micro"][0]) for tile in made.tiles[1:25]) > 1_000_000
    assert not both_ways(made)


class NotAKey:
    """Signs quickly and proves nothing."""

    public_key = OLD.public_key

    def sign(self, message):
        return sha256(message).hexdigest()


def quick_log(zone_count, intervals):
    """Tiles of a shard that withholds every price, one after the other."""
    table = ZoneTable.from_rows([zone_row(f"zone {n:04}") for n in range(zone_count)])
    tile = open_shard("east", table, interval=FIRST - 1, interval_s=3600, lead=2, signer=NotAKey())
    head = check_follows(None, tile, table)
    rows = np.zeros(zone_count, row_dtype())
    rows["kind"] = W
    yield table, tile
    for _ in range(intervals):
        tile = release_interval(head, rows, NotAKey())
        head = check_follows(head, tile, table)
        yield table, tile


def traced_peak(source):
    done = []
    tracemalloc.start()
    report = check_log({"long": source}, plans=[PLAN], verify=lambda *_: True, progress=done.append)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.is_valid
    return report, peak, done


@pytest.mark.slow
def test_lines_stream_in_bounded_memory(tmp_path):
    """Signatures are left out: they take time, not memory. Of each line some 120 bytes stay, a tenth of it."""
    path, count, before = tmp_path / "log.jsonl", 1200, 200
    with path.open("w", encoding="utf-8") as file:
        for table, tile in quick_log(1, count):
            print(make_zone_line(tile, table, "zone 0000").to_json(), file=file)

    def source():
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file):
                if number == before:  # what is needed once is there: from here on only lines are added
                    tracemalloc.reset_peak()
                    in_use.append(tracemalloc.get_traced_memory()[0])
                yield line.removesuffix("\n")

    in_use = []
    check_log({"long": source}, plans=[PLAN], verify=lambda *_: True)  # fills caches
    report, peak, done = traced_peak(source)
    assert report.zones["zone 0000"].records == done[-1] == count
    added = (peak - in_use[-1]) / (count - before)
    assert added < 250 < path.stat().st_size / count / 3


@pytest.mark.slow
def test_tiles_stream_in_bounded_memory(tmp_path):
    """64 bytes of each tile and a bit of each row stay, and some megabytes for documents and summaries."""
    path = tmp_path / "tiles"
    with path.open("wb") as file:
        sizes = [file.write(tile.to_bytes()) for _, tile in quick_log(200, 500)]
    table, _ = next(quick_log(200, 0))

    def source():
        yield table.text
        with path.open("rb") as file:
            yield from (file.read(size) for size in sizes)

    report, peak, done = traced_peak(source)
    assert report.zones["zone 0007"].records == 500
    assert done[-1] == 100_000
    assert peak < 2_500_000 < path.stat().st_size / 3


def test_plans_may_stand_among_the_items():
    assert check([*log().items(), OTHER, PLAN], plans=()).is_complete
    assert check([*log().lines("hill"), OTHER, PLAN], plans=()).is_complete
