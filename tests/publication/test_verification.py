"""A right log passes; whatever is changed in it is found; a second value convicts whoever signed it."""

import json
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from murmurate.curator.change import Used, refuse_straddling
from murmurate.curator.document import digest
from murmurate.curator.plan import make_plan
from murmurate.curator.planfile import load_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import EXAMPLE, parse_zone
from murmurate.errors import PrivacyError
from murmurate.privacy.noise import RehearsalNoise, SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.record import Kind, read, sign
from murmurate.publication.signing import Ed25519Signer, verify
from murmurate.publication.verification import check_log
from murmurate.publication.verification_plans import Bound, Ledger
from murmurate.publication.verification_report import contradiction
from murmurate.publication.wish import Change, Opening, Wish, next_task
from tests.publication.chains import NO_DEMAND, demand

DOCS = Path(__file__).parents[2] / "docs"
OLD, NEW, STRANGER = (Ed25519Signer(bytes([n]) * 32) for n in (1, 2, 3))
SIGNERS = {signer.public: signer for signer in (OLD, NEW, STRANGER)}
FIRST = 480_000


@cache
def plan(promise="any 24 h: epsilon 1", calibration="range", name="harbour"):
    """The text of a plan with an hour as its interval, in one line as a log has it."""
    text = EXAMPLE.replace("interval_minutes = 15", "interval_minutes = 60").replace('"harbour"', json.dumps(name))
    text = text.replace('["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', json.dumps([promise]))
    text = text.replace('calibration = "range"', f'calibration = "{calibration}"')
    made = make_plan(parse_zone(text, lambda _: None, None))
    return json.dumps(json.loads(made.to_json()), separators=(",", ":"))


PLAN, OTHER = plan(), plan("any 24 h: epsilon 1/2")
DIGEST, OTHER_DIGEST = (json.loads(text)["digest"] for text in (PLAN, OTHER))
TERMS = {Terms.of(text).plan: Terms.of(text) for text in (PLAN, OTHER)}


def desk(noise=None, terms=None):
    return Desk(terms=(terms or TERMS).get, signers=SIGNERS, noise=noise or SystemNoise(), input_key=b"kept")


def grow(entries, wish, energy_wh=None, zone="harbour", at=None):
    """Append what the wish asks for next."""
    head = entries[-1] if entries else None
    given = NO_DEMAND if energy_wh is None else demand(**{zone: energy_wh})
    drafts = (at or desk()).write({zone: (head, next_task(head, wish))}, given)
    assert not drafts.refused, drafts.refused
    return [*entries, drafts.written[zone]]


def open_chain(zone="harbour", at=None, plan_digest=DIGEST):
    opening = Opening(plan=plan_digest, key=OLD.public, first=FIRST)
    return grow([], Wish(until=FIRST, opening=opening), zone=zone, at=at)


@cache
def log(zone="harbour", measured=5):
    """Every kind of record, a plan change and a key rotation."""
    entries = open_chain(zone)
    for n in range(measured):
        entries = grow(entries, Wish(until=FIRST + n), 180_000 + n, zone)
    last = FIRST + measured
    entries = grow(entries, Wish(until=last), zone=zone)
    entries = grow(entries, Wish(until=last + 1, in_time_from=last + 2), zone=zone)
    entries = grow(entries, Wish(until=0, plan=Change(DIGEST, OTHER_DIGEST)), zone=zone)
    entries = grow(entries, Wish(until=last + 2), 150_000, zone)
    entries = grow(entries, Wish(until=0, key=Change(OLD.public, NEW.public)), zone=zone)
    return tuple(grow(entries, Wish(until=last + 3), 160_000, zone))


def lines(entries):
    return [entry.line for entry in entries]


def check(*sources, plans=(PLAN, OTHER), **more):
    """The report on lists of lines."""
    return check_log({f"source {n}": lambda kept=kept: kept for n, kept in enumerate(sources)}, plans=plans, **more)


def rules(report):
    return {finding.rule for finding in report.findings}


def resign(entry, signer=OLD, **changes):
    return sign(replace(entry.record, **changes), signer)


def chained(entries):
    """The same records, each naming the hash of the one before as it is now."""
    fixed = [entries[0]]
    for entry in entries[1:]:
        fixed.append(resign(entry, SIGNERS[fixed[-1].key], prev=fixed[-1].hash, key=fixed[-1].key))
    return fixed


def test_a_right_log_holds_and_is_summed_up():
    report = check([PLAN, OTHER, *lines(log())], plans=())
    assert (report.holds, report.complete, report.findings, report.proofs) == (True, True, [], [])
    zone = report.zones["harbour"]
    assert zone.kinds == {"open": 1, "measured": 7, "forecast": 1, "withheld": 1, "plan": 1, "key": 1}
    assert (zone.first, zone.last, zone.interval_s, zone.records) == (FIRST, FIRST + 8, 3600, 12)
    assert (zone.keys, zone.plans, zone.trusted) == ([OLD.public, NEW.public], [DIGEST, OTHER_DIGEST], OLD.public)
    assert zone.total_epsilon_micro == sum(entry.record.epsilon_micro for entry in log())
    assert set(report.plans) == {DIGEST, OTHER_DIGEST}
    assert 0 < zone.windows["any 24 h: epsilon 1"].largest < 1


@settings(max_examples=150)
@given(data=st.data())
def test_any_changed_byte_is_found(data):
    kept = lines(log())
    which = data.draw(st.integers(0, len(kept) - 1))
    raw = bytearray(kept[which].encode())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 127))
    kept[which] = raw.decode(errors="replace")
    assert not check(kept).holds


@pytest.mark.parametrize("member", sorted(json.loads(log()[3].line)))
@pytest.mark.parametrize("which", range(12))
def test_any_changed_member_is_found(member, which):
    kept = lines(log())
    document = json.loads(kept[which])
    value = document[member]
    document[member] = value + 1 if isinstance(value, int) else f"{value or ''}0"
    kept[which] = json.dumps(document, separators=(",", ":"))
    assert not check(kept).holds


SEALED = ("seq", "interval", "applies", "interval_s", "total_epsilon_micro", "total_rho_micro", "prev", "key")
PLANNED = ("currency", "tick", "noise", "scale_wh", "epsilon_micro", "rho_micro")


@pytest.mark.parametrize("member", SEALED + PLANNED)
def test_a_changed_member_is_found_even_if_the_operator_signs_it(member):
    """All but the price and the digest of the input follow from the chain and the plan; those two nobody can check."""
    kept = list(log())
    value = getattr(kept[3].record, member)
    wrong = (
        value + 1
        if isinstance(value, int)
        else NEW.public
        if member == "key"
        else f"{value[:-1]}{int(value[-1] == '0')}"
    )
    kept[3] = resign(kept[3], NEW if member == "key" else OLD, **{member: wrong})
    assert not check(lines(chained(kept) if member not in {"prev", "key"} else kept)).holds


@given(which=st.integers(0, 10))
def test_an_omitted_record_is_found_unless_it_is_the_last(which):
    kept = lines(log())
    del kept[which]
    assert rules(check(kept)) >= {"gap"}


def test_what_is_missing_at_the_end_cannot_be_found_and_the_docs_say_so():
    for length in range(1, 12):
        assert check(lines(log())[:length]).holds
    page = (DOCS / "how-to" / "verify.md").read_text(encoding="utf-8")
    assert "records missing at the end" in page


@given(which=st.integers(0, 11))
def test_a_record_that_stands_twice_in_one_source_is_found(which):
    kept = lines(log())
    kept.insert(which, kept[which])
    assert rules(check(kept)) == {"repeated"}


@settings(max_examples=60)
@given(one=st.integers(0, 11), other=st.integers(0, 11))
def test_an_exchanged_order_is_found(one, other):
    kept = lines(log())
    kept[one], kept[other] = kept[other], kept[one]
    assert check(kept).holds == (one == other)


@given(which=st.integers(1, 11))
def test_another_signature_is_found(which):
    kept = list(log())
    kept[which] = replace_signature(kept[which], STRANGER.sign(kept[which].signed_bytes()))
    assert rules(check(lines(kept))) >= {"signature"}


def replace_signature(entry, signature):
    return read(entry.line.replace(entry.signature, signature))


@given(cut=st.integers(1, 11))
def test_the_beginning_of_one_chain_does_not_fit_the_end_of_another(cut):
    other = log(measured=5), chained([resign(log()[0], applies=FIRST + 4), *log()[1:]])
    report = check([*lines(other[0])[:cut], *lines(other[1])[cut:]])
    assert rules(report) >= {"prev"}


def test_zones_may_be_mixed():
    one, other = lines(log()), lines(log("a zone, ünder the hill"))
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]
    report = check(mixed)
    assert report.holds
    assert {zone.records for zone in report.zones.values()} == {12}
    assert list(check(mixed, zones={"harbour"}).zones) == ["harbour"]


def two_values():
    """One operator, two prices for one interval: after a restored backup, say."""
    kept = list(log()[:4])
    return grow(kept, Wish(until=FIRST + 3), 900_000)[-1], grow(kept, Wish(until=FIRST + 3), 100_000)[-1]


def convicts(proof):
    """A few lines that know nothing of murmurate but the page on the public log."""
    documents = []
    for line in proof.lines:
        body, _, signature = line.rpartition(',"signature":"')
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(proof.key))
        key.verify(bytes.fromhex(signature[:-2]), f"{body}}}".encode())
        documents.append(json.loads(line))
    one, other = documents
    releases = {"measured", "forecast", "withheld"}
    same_interval = one["interval"] == other["interval"] and {one["kind"], other["kind"]} <= releases
    same_place = one["zone"] == other["zone"] and (one["seq"] == other["seq"] or same_interval)
    return same_place and one["key"] == other["key"] == proof.key and one != other


def test_two_values_in_two_sources_are_a_proof_that_anybody_can_check():
    one, other = two_values()
    report = check([*lines(log()[:4]), one.line], [*lines(log()[:4]), other.line])
    (proof,) = report.proofs
    assert (proof.lines, proof.key, proof.zone) == ((one.line, other.line), OLD.public, "harbour")
    assert proof.contradicts == f"record 4 and interval {FIRST + 3}"
    assert convicts(proof)
    assert rules(report) == {"two values"}


def test_one_kept_line_is_enough_to_convict():
    one, other = two_values()
    report = check([*lines(log()[:4]), one.line, *lines(log()[5:])], [other.line])
    assert [convicts(proof) for proof in report.proofs] == [True]


def test_two_values_in_one_source_are_a_proof_too():
    one, other = two_values()
    assert convicts(check([*lines(log()[:4]), one.line, other.line]).proofs[0])


def test_a_second_release_of_an_interval_under_another_number_is_a_proof():
    kept = list(log()[:5])
    again = resign(kept[4], seq=5, prev=kept[4].hash, total_epsilon_micro=2 * kept[4].record.total_epsilon_micro)
    report = check(lines([*kept, again]))
    (proof,) = report.proofs
    assert proof.contradicts == f"interval {FIRST + 3}"
    assert convicts(proof)


def test_a_record_signed_by_a_stranger_convicts_nobody():
    one, _ = two_values()
    forged = resign(one, STRANGER, price_ticks=1, key=STRANGER.public)
    unsigned = replace_signature(resign(one, price_ticks=1), "00" * 64)
    for line in (forged.line, unsigned.line):
        report = check([*lines(log()[:4]), one.line], [line])
        assert (report.proofs, rules(report)) == ([], {"forgery"})


def test_two_lines_contradict_each_other_only_if_both_are_signed_and_about_one_thing():
    one, other = two_values()
    assert contradiction(one.line, other.line, verify)
    unsigned = replace_signature(other, "00" * 64)
    for line in (one.line, unsigned.line, log()[3].line, "", resign(other, zone="elsewhere").line):
        assert contradiction(one.line, line, verify) is None
        assert contradiction(line, one.line, verify) is None


def test_a_fork_is_followed_and_each_side_convicts_the_other():
    one, other = two_values()
    left = grow([*log()[:4], one], Wish(until=FIRST + 4), 170_000)
    right = grow([*log()[:4], other], Wish(until=FIRST + 4), 170_000)
    report = check(lines(left), lines(right))
    assert len(report.proofs) == 2
    assert all(convicts(proof) for proof in report.proofs)


def test_a_wholly_wrong_log_is_counted_and_not_kept():
    one, _ = two_values()
    many = [resign(one, price_ticks=n).line for n in range(60)]
    report = check([*lines(log()[:4]), one.line], many)
    assert len(report.proofs) == 5
    assert len(report.findings) <= 21


def test_the_same_log_twice_is_as_good_as_once():
    report = check(lines(log()), lines(log()), lines(log())[3:6])
    assert report.holds
    assert report.zones["harbour"].records == 12
    assert report.shown == {"source 0": 12, "source 1": 12, "source 2": 3}


def test_a_longer_copy_goes_on_where_the_shorter_ends():
    report = check(lines(log())[:6], lines(log()))
    assert report.holds
    assert report.zones["harbour"].records == 12


def test_the_key_that_opens_a_chain_is_the_one_expected():
    assert check(lines(log()), expected_key=OLD.public).holds
    assert rules(check(lines(log()), expected_key=NEW.public)) == {"key"}
    assert rules(check(lines(log("b")), expected_key=STRANGER.public)) == {"key"}


def test_a_rotation_is_followed_and_only_a_signed_one():
    kept = list(log())
    not_rotated = grow(kept[:10], Wish(until=FIRST + 8), 160_000)  # the old key goes on after it was left
    assert kept[10].record.kind is Kind.KEY
    late = resign(not_rotated[-1], prev=kept[10].hash, seq=11)
    assert rules(check(lines([*kept[:11], late]))) == {"key"}
    seized = resign(kept[10], STRANGER, key=STRANGER.public, next_key=STRANGER.public)
    assert "key" in rules(check(lines([*kept[:10], seized])))


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
