"""A log against its plans: each is proven anew, each record is held against it, each window against its promise."""

import json
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.curator.change import Used, refuse_straddling
from murmurate.curator.document import digest
from murmurate.curator.planfile import load_plan
from murmurate.curator.terms import Terms
from murmurate.errors import PrivacyError
from murmurate.privacy.noise import RehearsalNoise
from murmurate.publication.record import Kind, sign
from murmurate.publication.verification import check_log
from murmurate.publication.verification_plans import Bound, Ledger
from murmurate.publication.wish import Change, Wish
from tests.publication.logs import (
    DIGEST,
    FIRST,
    OTHER_DIGEST,
    PLAN,
    TERMS,
    check,
    desk,
    grow,
    lines,
    log,
    open_chain,
    plan,
    resign,
    rules,
)


def test_a_missing_plan_is_incomplete_and_not_wrong():
    report = check(lines(log()), plans=[PLAN])
    assert (report.holds, report.complete, report.missing) == (True, False, {OTHER_DIGEST: "harbour"})


@pytest.mark.parametrize("sealed", [False, True])
def test_a_changed_plan_proves_nothing(sealed):
    document = json.loads(PLAN)
    document["scale_wh"][3] /= 2
    if sealed:  # with the digest of what it says now: its costs do not come out again
        document["digest"] = digest(document)
    text = json.dumps(document)
    at = desk(terms={document["digest"]: replace(Terms.of(PLAN), plan=document["digest"])})
    entries = grow(open_chain(at=at, plan_digest=document["digest"]), Wish(until=FIRST), 170_000, at=at)
    assert rules(check(lines(entries), plans=[text])) == {"plan"}
    assert check([PLAN, *lines(log()[:3])], plans=[text]).holds, "the right document is taken where both are given"


def test_a_release_at_another_scale_or_price_than_planned_is_found():
    cheaper = replace(TERMS[DIGEST], scale_wh=TERMS[DIGEST].scale_wh / 2)
    dearer = replace(TERMS[DIGEST], forecast_ticks=TERMS[DIGEST].forecast_ticks + 1)
    for terms, energy_wh in ((cheaper, 170_000), (dearer, None)):
        at = desk(terms={DIGEST: terms})
        report = check(lines(grow(open_chain(at=at), Wish(until=FIRST), energy_wh, at=at)))
        assert rules(report) == {"terms"}


def test_a_price_beyond_the_cap_is_found():
    entries = [*log()[:2]]
    entries[1] = resign(entries[1], price_ticks=200_001)
    assert rules(check(lines(entries))) == {"terms"}


def test_a_rehearsal_is_never_a_publication():
    entries = grow(open_chain(), Wish(until=FIRST), 170_000, at=desk(RehearsalNoise(7)))
    assert rules(check(lines(entries))) == {"noise", "terms"}


def test_a_later_version_is_not_understood():
    later = log()[3].line.replace('"murmurate":1', '"murmurate":2')
    report = check([*lines(log()[:3]), later])
    assert [finding.words for finding in report.findings if finding.rule == "line"]


@given(
    costs=st.lists(st.integers(0, 400_000), max_size=60),
    gaps=st.lists(st.integers(1, 9), min_size=60, max_size=60),
    length=st.integers(1, 12),
)
def test_the_dearest_window_is_that_of_brute_force(costs, gaps, length):
    bound = Bound("any", length, Fraction(1))
    ledger = Ledger((bound, Bound("longer", 30, Fraction(9))), {})
    spent, at, broken = {}, 0, []
    for cost, gap in zip(costs, gaps, strict=False):
        at += gap
        spent[at] = cost
        record = replace(log()[1].record, interval=at, epsilon_micro=cost)
        broken.append(bool([words for words in ledger.spend(record) if "'any'" in words]))
    sums = [sum(max(0, spent.get(t, 0) - 1) for t in range(end - length + 1, end + 1)) for end in sorted(spent)]
    assert broken == [total > 1_000_000 for total in sums]
    if sums:
        assert ledger.windows["any"].largest == Fraction(max(sums), 1_000_000)


def changing(before, after, quiet=0, measured=4):
    """A chain that goes from one plan to another, both kept to the letter."""
    terms = {at.plan: at for at in (Terms.of(before), Terms.of(after))}
    one, other = terms
    at = desk(terms=terms)
    entries = open_chain(at=at, plan_digest=one)
    for n in range(measured + quiet):
        entries = grow(entries, Wish(until=FIRST + n), 170_000 if n < measured else None, at=at)
    entries = grow(entries, Wish(until=0, plan=Change(one, other)), at=at)
    entries = grow(entries, Wish(until=FIRST + measured + quiet), 170_000, at=at)
    return check(lines(entries), plans=[before, after])


def test_a_change_that_breaks_the_windows_across_it_is_found():
    loose, strict = plan("any 24 h: epsilon 1", "shift"), plan("any 24 h: epsilon 1")
    assert rules(changing(loose, strict)) == {"change"}
    assert rules(changing(loose, strict, quiet=22)) == {"change"}
    assert changing(loose, strict, quiet=23).holds, "no window sees both"
    assert changing(loose, strict, measured=0).holds, "nothing was measured under the first"


def test_a_third_plan_within_one_window_is_held_against_both_before():
    """Each step may pass on its own while the quietest noise of all three, taken together, does not."""
    day, morning = plan("any 24 h: epsilon 1"), plan("any 24 h: epsilon 2")
    assert changing(day, morning).holds
    used = [Used(load_plan(text), quiet) for text, quiet in ((morning, 3), (day, 0))]
    refuse_straddling(used, load_plan(plan("any 24 h: epsilon 3")))
    with pytest.raises(PrivacyError):
        refuse_straddling(used, load_plan(plan("any 12 h: epsilon 1/2")))


def test_a_plan_that_spends_all_it_promises_passes_in_spite_of_rounding():
    entries = open_chain()
    for n in range(30):
        entries = grow(entries, Wish(until=FIRST + n), 170_000)
    assert sum(entry.record.epsilon_micro for entry in entries[1:25]) > 1_000_000
    report = check(lines(entries))
    assert report.holds
    assert 0.999 < report.zones["harbour"].windows["any 24 h: epsilon 1"].largest <= 1


@pytest.mark.parametrize("junk", ["{", "[" * 100_000, '{"murmurate_plan":1}', "null", '"\\ud800"', "\x00", "\ufffd"])
def test_whatever_is_no_entry_is_a_finding_and_never_a_crash(junk):
    assert rules(check([*lines(log()), junk])) == {"line"}


def test_a_name_that_no_utf_8_can_hold_is_a_finding():
    assert rules(check([log()[0].line.replace("harbour", "\\ud800")])) == {"line"}


class NotAKey:
    """Signs quickly and proves nothing."""

    def sign(self, message):
        return sha256(message).hexdigest()


def test_twenty_thousand_lines_stream_in_bounded_memory(tmp_path):
    """Signatures are left out: they take time, not memory. 32 bytes a record stay."""
    path = tmp_path / "log.jsonl"
    head = open_chain()[0]
    with path.open("w", encoding="utf-8") as file:
        print(head.line, file=file)
        for n in range(20_000):
            seq, at = n + 1, FIRST + n
            record = replace(head.record, kind=Kind.WITHHELD, seq=seq, interval=at, applies=at + 2, prev=head.hash)
            head = sign(record, NotAKey())
            print(head.line, file=file)

    def source():
        with path.open(encoding="utf-8") as file:
            yield from (line.removesuffix("\n") for line in file)

    done = []
    tracemalloc.start()
    report = check_log({"long": source}, plans=[PLAN], signed=lambda *_: True, progress=done.append)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.holds
    assert report.zones["harbour"].records == 20_001
    assert done[-1] == 20_000
    assert peak < 6_000_000 < path.stat().st_size / 2
