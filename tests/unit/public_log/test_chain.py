"""Records and chains: the bytes are canonical, the rules refuse every change, and every kind has its place."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_chains import FIRST, NEW_KEY, OLD_KEY, chain, record_writer, write

from murmurate.errors import ChainError
from murmurate.privacy.noise import SeededNoise
from murmurate.public_log.chain import check_follows, check_next, check_signature
from murmurate.public_log.record import Record, RecordKind, parse_entry, sign_record
from murmurate.public_log.signing import verify_signature
from murmurate.publisher.desired_state import DesiredState

CHAIN = chain()
KINDS = [entry.record.kind for entry in CHAIN]
SIGNERS = {signer.public_key: signer for signer in (OLD_KEY, NEW_KEY)}


def resigned(record):
    """The record as its own signer would publish it: only the rules of the chain can refuse it now."""
    return sign_record(record, SIGNERS.get(record.key, OLD_KEY))


def before(position):
    return CHAIN[position - 1] if position else None


def test_the_chain_holds_every_kind_of_record():
    assert set(KINDS) == set(RecordKind)


def test_every_entry_of_the_record_writer_follows_the_one_before():
    for position, entry in enumerate(CHAIN):
        assert check_next(before(position), entry, verify_signature) is entry


def test_a_line_is_read_as_it_was_sealed():
    for entry in CHAIN:
        assert parse_entry(entry.line) == entry
        assert json.loads(entry.line)["murmurate"] == 1


class FixedSigner:
    public = "k"

    def sign(self, message):
        assert message.endswith(b'"zone":"Z\xc3\xbcrich 1"}')
        return "00ff"


def test_the_line_of_a_record_never_changes():
    """Golden bytes: a change of this line changes the meaning of every existing log."""
    record = Record(
        zone="Zürich 1",
        seq=3,
        kind=RecordKind.MEASURED,
        interval=5,
        applies=7,
        interval_s=900,
        plan="p",
        currency="CHF",
        tick="1/100000",
        price_ticks=-12,
        noise="laplace",
        scale_wh="2000.0",
        epsilon_micro=24618,
        total_epsilon_micro=73854,
        key="k",
        prev="v",
    )
    entry = sign_record(record, FixedSigner())
    assert entry.line == (
        '{"applies":7,"core_wh":0,"currency":"CHF","epsilon_micro":24618,"interval":5,"interval_s":900,"key":"k",'
        '"kind":"measured","murmurate":1,"next_key":null,"noise":"laplace","plan":"p","prev":"v","price_ticks":-12,'
        '"rho_micro":0,"scale_wh":"2000.0","seq":3,"tick":"1/100000","total_epsilon_micro":73854,'
        '"total_rho_micro":0,"zone":"Zürich 1","signature":"00ff"}'
    )
    assert entry.hash == "db6404d0229330513f635ee45efe105f4bdc562c52720513b908fae10fcb44f3"


OTHER = {str: ["", "0" * 64, "EUR", "none", "laplace", "gaussian", "1000.0"], int: [-1, 0, 1, 2, 3600, 10**9]}


@pytest.mark.parametrize("position", range(len(CHAIN)), ids=[f"{n}-{kind}" for n, kind in enumerate(KINDS)])
@pytest.mark.parametrize("field", [field.name for field in fields(Record)])
def test_no_field_of_a_record_can_be_changed_even_by_its_signer(position, field):
    """Only what a signer may choose freely passes: a price, a scale, a chain's beginning, a next key or plan.

    Those are compared with the plan by `verification`, or are the operator's own decision.
    """
    entry = CHAIN[position]
    kind, value = entry.record.kind, getattr(entry.record, field)
    for other in [*OTHER[str], *OTHER[int], None, value + 1 if isinstance(value, int) else f"{value}0", *RecordKind]:
        if other == value:
            continue
        if _free(kind, field, other):
            continue
        changed = resigned(replace(entry.record, **{field: other})).line
        with pytest.raises(ChainError):
            check_next(before(position), parse_entry(changed), verify_signature)


def _free(kind, field, other):
    opens = {"zone", "interval", "applies", "interval_s", "plan", "currency", "tick"}
    measured = {"price_ticks", "scale_wh", "noise"}
    return (
        (kind is RecordKind.OPEN and field in opens)
        or (kind is RecordKind.MEASURED and field in measured)
        or (kind is RecordKind.FORECAST and field == "price_ticks")
        or (kind is RecordKind.PLAN and field in {"plan", "currency", "tick"})
        or (kind is RecordKind.KEY and field == "next_key" and other is not None)
    )


@given(st.data())
def test_no_byte_of_a_line_can_be_changed(data):
    position = data.draw(st.integers(0, len(CHAIN) - 1))
    line = CHAIN[position].line
    place = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda char: char != line[place]))
    with pytest.raises(ChainError):
        check_next(before(position), parse_entry(line[:place] + other + line[place + 1 :]), verify_signature)


@given(st.integers(0, len(CHAIN) - 1), st.integers(-1, len(CHAIN) - 1))
def test_an_entry_has_one_place_only(position, after):
    head = CHAIN[after] if after >= 0 else None
    if after == position - 1:
        check_follows(head, CHAIN[position])
    else:
        with pytest.raises(ChainError):
            check_follows(head, CHAIN[position])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        "{",
        CHAIN[0].line + " ",
        CHAIN[0].line.replace('"seq":0', '"seq": 0'),
        CHAIN[0].line.replace('"seq":0', '"seq":0,"seq":0'),
        CHAIN[0].line.replace('"seq":0', '"seq":0.0'),
        CHAIN[0].line.replace('"seq":0', '"seq":false'),
        CHAIN[0].line.replace('"seq":0', '"seq":null'),
        CHAIN[0].line.replace('"murmurate":1', '"murmurate":2'),
        CHAIN[0].line.replace('"kind":"open"', '"kind":"guess"'),
        CHAIN[0].line.replace('"noise":"none",', ""),
        CHAIN[0].line.replace('"noise":"none"', '"noise":"none","nose":1'),
        CHAIN[0].line.replace('"signature":"', '"signature":1,"sig":"'),
        CHAIN[0].line.replace('"harbour"', '"\ud800"'),
        CHAIN[0].line.replace('"harbour"', '"\\ud800"'),
        CHAIN[0].line.replace('"harbour"', "[" * 100_000 + "]" * 100_000),
    ],
)
def test_what_is_not_a_record_is_not_read(line):
    with pytest.raises(ChainError):
        parse_entry(line)


def test_only_the_key_in_force_signs():
    rotated = next(n for n, kind in enumerate(KINDS) if kind is RecordKind.KEY)
    after = CHAIN[rotated + 1]
    assert (CHAIN[rotated].record.key, after.record.key) == (OLD_KEY.public_key, NEW_KEY.public_key)
    old = replace(after.record, key=OLD_KEY.public_key)
    with pytest.raises(ChainError, match="key is"):
        check_follows(CHAIN[rotated], resigned(old))
    forged = sign_record(after.record, OLD_KEY)
    with pytest.raises(ChainError, match="signature"):
        check_signature(forged, verify_signature)


@pytest.mark.parametrize("key", ["", "zz", "00" * 31, OLD_KEY.public_key.upper()[:-1]])
def test_a_malformed_key_or_signature_signs_nothing(key):
    assert not verify_signature(key, b"", CHAIN[0].signature)
    assert not verify_signature(OLD_KEY.public_key, b"", key)


def test_test_only_noise_is_never_published():
    entry = write(CHAIN[0], DesiredState(until=FIRST), 500_000, writer=record_writer(SeededNoise(1)))
    assert entry.record.noise == "test-only laplace"
    with pytest.raises(ChainError, match="test-only noise is never published"):
        check_follows(CHAIN[0], entry)
