"""A right log passes; whatever is changed in it is found; a second value convicts its signer."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.sample_logs import (
    DIGEST,
    DOCS,
    FIRST,
    NEW,
    OLD,
    OTHER,
    OTHER_DIGEST,
    PLAN,
    UNKNOWN_SIGNER,
    chained,
    check,
    grow,
    lines,
    log,
    resign,
    rules,
)

from murmurate.public_log.record import RecordKind, parse_entry
from murmurate.public_log.signing import verify_signature
from murmurate.publisher.desired_state import DesiredState
from murmurate.verification.report import prove_contradiction


def test_a_right_log_holds_and_is_summed_up():
    report = check([PLAN, OTHER, *lines(log())], plans=())
    assert (report.is_valid, report.is_complete, report.findings, report.proofs) == (True, True, [], [])
    zone = report.zones["harbour"]
    assert zone.kinds == {"open": 1, "measured": 7, "forecast": 1, "withheld": 1, "plan": 1, "key": 1}
    assert (zone.first_interval, zone.last_interval, zone.interval_s, zone.records) == (FIRST, FIRST + 8, 3600, 12)
    assert (zone.keys, zone.plans, zone.first_key) == (
        [OLD.public_key, NEW.public_key],
        [DIGEST, OTHER_DIGEST],
        OLD.public_key,
    )
    assert zone.total_epsilon_micro == sum(entry.record.epsilon_micro for entry in log())
    assert set(report.plans) == {DIGEST, OTHER_DIGEST}


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_any_changed_byte_is_found(data):
    kept = lines(log())
    which = data.draw(st.integers(0, len(kept) - 1))
    raw = bytearray(kept[which].encode())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 127))
    kept[which] = raw.decode(errors="replace")
    assert not check(kept).is_valid


@pytest.mark.slow
@pytest.mark.parametrize("member", sorted(json.loads(log()[3].line)))
@pytest.mark.parametrize("which", range(12))
def test_any_changed_member_is_found(member, which):
    kept = lines(log())
    document = json.loads(kept[which])
    value = document[member]
    document[member] = value + 1 if isinstance(value, int) else f"{value or ''}0"
    kept[which] = json.dumps(document, separators=(",", ":"))
    assert not check(kept).is_valid


SEALED = ("seq", "interval", "applies", "interval_s", "total_epsilon_micro", "total_rho_micro", "prev", "key")
PLANNED = ("currency", "tick", "noise", "scale_wh", "epsilon_micro", "rho_micro")


@pytest.mark.slow
@pytest.mark.parametrize("member", SEALED + PLANNED)
def test_a_changed_member_is_found_even_if_the_operator_signs_it(member):
    """All but the price follow from the chain and the plan; the price of a measured record cannot be checked."""
    kept = list(log())
    value = getattr(kept[3].record, member)
    wrong = (
        value + 1
        if isinstance(value, int)
        else NEW.public_key
        if member == "key"
        else f"{value[:-1]}{int(value[-1] == '0')}"
    )
    kept[3] = resign(kept[3], NEW if member == "key" else OLD, **{member: wrong})
    assert not check(lines(chained(kept) if member not in {"prev", "key"} else kept)).is_valid


@given(which=st.integers(0, 10))
def test_an_omitted_record_is_found_unless_it_is_the_last(which):
    kept = lines(log())
    del kept[which]
    assert rules(check(kept)) >= {"gap"}


def test_what_is_missing_at_the_end_cannot_be_found_and_the_docs_say_so():
    for length in range(1, 12):
        assert check(lines(log())[:length]).is_valid
    page = (DOCS / "how-to" / "verify.md").read_text(encoding="utf-8")
    assert "records missing at the end" in page


@given(which=st.integers(0, 11))
def test_a_record_that_stands_twice_in_one_source_is_found(which):
    kept = lines(log())
    kept.insert(which, kept[which])
    assert rules(check(kept)) == {"repeated"}


@pytest.mark.slow
@settings(max_examples=60)
@given(one=st.integers(0, 11), other=st.integers(0, 11))
def test_an_exchanged_order_is_found(one, other):
    kept = lines(log())
    kept[one], kept[other] = kept[other], kept[one]
    assert check(kept).is_valid == (one == other)


@given(which=st.integers(1, 11))
def test_another_signature_is_found(which):
    kept = list(log())
    kept[which] = replace_signature(kept[which], UNKNOWN_SIGNER.sign(kept[which].signed_bytes()))
    assert rules(check(lines(kept))) >= {"signature"}


def replace_signature(entry, signature):
    return parse_entry(entry.line.replace(entry.signature, signature))


@given(cut=st.integers(1, 11))
def test_the_beginning_of_one_chain_does_not_fit_the_end_of_another(cut):
    other = log(measured=5), chained([resign(log()[0], applies=FIRST + 4), *log()[1:]])
    report = check([*lines(other[0])[:cut], *lines(other[1])[cut:]])
    assert rules(report) >= {"prev"}


def test_zones_may_be_mixed():
    one, other = lines(log()), lines(log("a zone, ünder the hill"))
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]
    report = check(mixed)
    assert report.is_valid
    assert {zone.records for zone in report.zones.values()} == {12}
    assert list(check(mixed, zones={"harbour"}).zones) == ["harbour"]


def two_values():
    """One operator, two prices for one interval: after a restored backup, say."""
    kept = list(log()[:4])
    return grow(kept, DesiredState(until=FIRST + 3), 900_000)[-1], grow(kept, DesiredState(until=FIRST + 3), 100_000)[
        -1
    ]


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
    assert (proof.lines, proof.key, proof.zone) == ((one.line, other.line), OLD.public_key, "harbour")
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


def test_a_record_signed_by_an_unknown_key_convicts_no_operator():
    one, _ = two_values()
    forged = resign(one, UNKNOWN_SIGNER, price_ticks=1, key=UNKNOWN_SIGNER.public_key)
    unsigned = replace_signature(resign(one, price_ticks=1), "00" * 64)
    for line in (forged.line, unsigned.line):
        report = check([*lines(log()[:4]), one.line], [line])
        assert (report.proofs, rules(report)) == ([], {"forgery"})


def test_two_lines_contradict_each_other_only_if_both_are_signed_and_about_one_thing():
    one, other = two_values()
    assert prove_contradiction(one.line, other.line, verify_signature)
    unsigned = replace_signature(other, "00" * 64)
    for line in (one.line, unsigned.line, log()[3].line, "", resign(other, zone="elsewhere").line):
        assert prove_contradiction(one.line, line, verify_signature) is None
        assert prove_contradiction(line, one.line, verify_signature) is None


def test_a_fork_is_followed_and_each_side_convicts_the_other():
    one, other = two_values()
    left = grow([*log()[:4], one], DesiredState(until=FIRST + 4), 170_000)
    right = grow([*log()[:4], other], DesiredState(until=FIRST + 4), 170_000)
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
    assert report.is_valid
    assert report.zones["harbour"].records == 12
    assert report.records_by_source == {"source 0": 12, "source 1": 12, "source 2": 3}


def test_a_longer_copy_goes_on_where_the_shorter_ends():
    report = check(lines(log())[:6], lines(log()))
    assert report.is_valid
    assert report.zones["harbour"].records == 12


def test_the_key_that_opens_a_chain_is_the_one_expected():
    assert check(lines(log()), expected_key=OLD.public_key).is_valid
    assert rules(check(lines(log()), expected_key=NEW.public_key)) == {"key"}
    assert rules(check(lines(log("b")), expected_key=UNKNOWN_SIGNER.public_key)) == {"key"}


def test_a_rotation_is_followed_and_only_a_signed_one():
    kept = list(log())
    not_rotated = grow(kept[:10], DesiredState(until=FIRST + 8), 160_000)  # the old key goes on after it was left
    assert kept[10].record.kind is RecordKind.KEY
    late = resign(not_rotated[-1], prev=kept[10].hash, seq=11)
    assert rules(check(lines([*kept[:11], late]))) == {"key"}
    seized = resign(kept[10], UNKNOWN_SIGNER, key=UNKNOWN_SIGNER.public_key, next_key=UNKNOWN_SIGNER.public_key)
    assert "key" in rules(check(lines([*kept[:10], seized])))
