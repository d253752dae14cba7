"""A log against its plans: each is proven anew, each record is held against it, each window against its promise."""

import json
import tracemalloc
from dataclasses import replace
from datetime import datetime
from hashlib import sha256

import pytest
from tests.support.sample_logs import (
    DIGEST,
    FIRST,
    OTHER_DIGEST,
    PLAN,
    TERMS,
    check,
    grow,
    lines,
    log,
    open_chain,
    plan,
    record_writer,
    resign,
    rules,
)

from murmurate.planning.digest import compute_plan_digest
from murmurate.planning.plan import prove_plan
from murmurate.planning.plan_file import load_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import SeededNoise
from murmurate.public_log.record import RecordKind, sign_record
from murmurate.publisher.desired_state import Change, DesiredState
from murmurate.verification.verifier import check_log


def test_a_missing_plan_is_incomplete_and_not_wrong():
    report = check(lines(log()), plans=[PLAN])
    assert (report.is_valid, report.is_complete, report.missing_plans) == (True, False, {OTHER_DIGEST: "harbour"})


@pytest.mark.parametrize("sealed", [False, True])
def test_a_changed_plan_proves_nothing(sealed):
    document = json.loads(PLAN)
    document["scale_wh"][3] /= 2
    if sealed:  # with the digest of what it says now: its costs do not come out again
        document["digest"] = compute_plan_digest(document)
    text = json.dumps(document)
    writer = record_writer(
        terms={document["digest"]: replace(ReleaseTerms.from_json(PLAN), plan_digest=document["digest"])}
    )
    entries = grow(
        open_chain(writer=writer, plan_digest=document["digest"]), DesiredState(until=FIRST), 170_000, writer=writer
    )
    assert rules(check(lines(entries), plans=[text])) == {"plan"}
    assert check([PLAN, *lines(log()[:3])], plans=[text]).is_valid, "the right document is taken where both are given"


def test_a_release_at_another_scale_or_price_than_planned_is_found():
    cheaper = replace(TERMS[DIGEST], scale_wh=TERMS[DIGEST].scale_wh / 2)
    dearer = replace(TERMS[DIGEST], forecast_ticks=TERMS[DIGEST].forecast_ticks + 1)
    for terms, energy_wh in ((cheaper, 170_000), (dearer, None)):
        writer = record_writer(terms={DIGEST: terms})
        report = check(lines(grow(open_chain(writer=writer), DesiredState(until=FIRST), energy_wh, writer=writer)))
        assert rules(report) == {"terms"}


def test_a_price_beyond_the_cap_is_found():
    entries = [*log()[:2]]
    entries[1] = resign(entries[1], price_ticks=200_001)
    assert rules(check(lines(entries))) == {"terms"}


def test_test_only_noise_is_never_a_publication():
    entries = grow(open_chain(), DesiredState(until=FIRST), 170_000, writer=record_writer(SeededNoise(7)))
    assert rules(check(lines(entries))) == {"noise", "terms"}


def test_a_later_version_is_not_understood():
    later = log()[3].line.replace('"murmurate":1', '"murmurate":2')
    report = check([*lines(log()[:3]), later])
    assert [finding.message for finding in report.findings if finding.rule == "line"]


def changing(before, after, quiet=0, measured=4):
    """A chain that goes from one plan to another, both kept to the letter."""
    terms = {at.plan_digest: at for at in (ReleaseTerms.from_json(before), ReleaseTerms.from_json(after))}
    one, other = terms
    writer = record_writer(terms=terms)
    entries = open_chain(writer=writer, plan_digest=one)
    for n in range(measured + quiet):
        entries = grow(entries, DesiredState(until=FIRST + n), 170_000 if n < measured else None, writer=writer)
    entries = grow(entries, DesiredState(until=0, plan_change=Change(one, other)), writer=writer)
    entries = grow(entries, DesiredState(until=FIRST + measured + quiet), 170_000, writer=writer)
    return check(lines(entries), plans=[before, after])


def test_a_change_that_breaks_the_windows_across_it_is_found():
    strict, loose = plan("any 24 h: epsilon 1"), plan("any 12 h: epsilon 1")
    assert rules(changing(strict, loose, measured=24)) == {"change"}
    assert rules(changing(strict, loose, measured=24, quiet=11)) == {"change"}
    assert changing(strict, loose, measured=24, quiet=12).is_valid, "no window across it is too dear"
    assert changing(strict, loose, measured=0, quiet=1).is_valid, "nothing was measured under the first"
    assert changing(strict, plan("any 24 h: epsilon 2"), measured=24).is_valid, "a weaker window of the same length"


@pytest.mark.slow
def test_a_change_that_tells_more_about_moments_lived_before_it_is_found():
    """From the log alone: the plans that it holds, and the order in which it names them."""
    careful, loud = plan("any moment: 1"), plan("any moment: 3")
    assert rules(changing(careful, loud, measured=30)) == {"change"}
    renamed = plan("any moment: 3", old='name = "flat"', new='name = "flats"')
    assert rules(changing(careful, renamed, measured=30)) == {"change"}
    assert changing(careful, plan("any moment: 1", old='name = "flat"', new='name = "flats"'), measured=30).is_valid


@pytest.mark.slow
def test_three_plans_in_a_row_are_held_against_all_that_the_log_shows():
    """A weaker promise with the old noise may come first, less noise next; but not before the first has faded.

    The changes are at 2 and 3 o'clock. Nearly every resident arrives in the morning, so the night before is lost.
    """
    careful, loud = load_plan(plan("any moment: 1")), load_plan(plan("any moment: 3"))
    between = prove_plan(loud.zone, careful.distribution, careful.scale_wh)
    texts = [json.dumps(json.loads(each.to_json())) for each in (careful, between, loud)]
    terms = {ReleaseTerms.from_json(text).plan_digest: ReleaseTerms.from_json(text) for text in texts}
    writer = record_writer(terms=terms)
    first, second, third = terms
    for under_the_second, found in ((1, {"change"}), (120, set())):
        entries = open_chain(writer=writer, plan_digest=first)
        for n in range(26 + under_the_second):
            if n == 26:
                entries = grow(entries, DesiredState(until=0, plan_change=Change(first, second)), writer=writer)
            entries = grow(entries, DesiredState(until=FIRST + n), 170_000, writer=writer)
        assert check(lines(entries), plans=texts).is_valid
        entries = grow(entries, DesiredState(until=0, plan_change=Change(second, third)), writer=writer)
        assert rules(check(lines(entries), plans=texts)) == found


def test_local_time_that_a_plan_was_not_proven_for_is_found():
    """A plan that knows standard time alone is not proven for a summer day of its zone."""
    document = json.loads(plan("any 24 h: epsilon 1", old='time_zone = "UTC"', new='time_zone = "Europe/Zurich"'))
    assert document["clock"]["offsets_min"] == [60, 120]
    document["clock"] |= {"offsets_min": [60], "changes": []}
    text = json.dumps(document | {"digest": compute_plan_digest(document)})
    writer = record_writer(terms={compute_plan_digest(document): ReleaseTerms.from_json(text)})
    for month, found in (("2026-01-15", set()), ("2026-07-15", {"clock"})):
        first = (
            int(datetime.fromisoformat(f"{month}T12:00+00:00").timestamp()) // ReleaseTerms.from_json(text).interval_s
        )
        entries = open_chain(writer=writer, plan_digest=compute_plan_digest(document), first=first)
        entries = grow(entries, DesiredState(until=first), 170_000, writer=writer)
        assert rules(check(lines(entries), plans=[text])) == found


def test_a_plan_that_spends_all_it_promises_passes_in_spite_of_rounding():
    entries = open_chain()
    for n in range(30):
        entries = grow(entries, DesiredState(until=FIRST + n), 170_000)
    assert sum(entry.record.epsilon_micro for entry in entries[1:25]) > 1_000_000
    assert check(lines(entries)).is_valid


@pytest.mark.parametrize("junk", ["{", "[" * 100_000, '{"murmurate_plan":1}', "null", '"\\ud800"', "\x00", "\ufffd"])
def test_whatever_is_no_entry_is_a_finding_and_never_a_crash(junk):
    assert rules(check([*lines(log()), junk])) == {"line"}


def test_a_name_that_no_utf_8_can_hold_is_a_finding():
    assert rules(check([log()[0].line.replace("harbour", "\\ud800")])) == {"line"}


class NotAKey:
    """Signs quickly and proves nothing."""

    def sign(self, message):
        return sha256(message).hexdigest()


@pytest.mark.slow
def test_twenty_thousand_lines_stream_in_bounded_memory(tmp_path):
    """Signatures are left out: they take time, not memory. 32 bytes a record stay."""
    path = tmp_path / "log.jsonl"
    head = open_chain()[0]
    with path.open("w", encoding="utf-8") as file:
        print(head.line, file=file)
        for n in range(20_000):
            seq, at = n + 1, FIRST + n
            record = replace(
                head.record, kind=RecordKind.WITHHELD, seq=seq, interval=at, applies=at + 2, prev=head.hash
            )
            head = sign_record(record, NotAKey())
            print(head.line, file=file)

    def source():
        with path.open(encoding="utf-8") as file:
            yield from (line.removesuffix("\n") for line in file)

    done = []
    tracemalloc.start()
    report = check_log({"long": source}, plans=[PLAN], verify=lambda *_: True, progress=done.append)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.is_valid
    assert report.zones["harbour"].records == 20_001
    assert done[-1] == 20_000
    assert peak < 5_900_000 < path.stat().st_size / 2
