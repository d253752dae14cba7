"""Canonical JSON: one text for one value, and nothing else is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json, compute_digest, parse_canonical, require_types

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab\n"é', max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("abc\\é", max_size=3), VALUES, max_size=4)


@given(OBJECTS)
def test_a_canonical_text_is_read_as_it_was_written(members):
    text = canonical_json(members)
    assert parse_canonical(text, "value") == members
    assert canonical_json(json.loads(text)) == text


@given(OBJECTS)
def test_any_other_text_of_the_same_value_is_refused(members):
    canonical = canonical_json(members)
    for text in (json.dumps(members), json.dumps(members, indent=1), f" {canonical}", f"{canonical}\n"):
        if text != canonical:
            with pytest.raises(ChainError, match="canonical form"):
                parse_canonical(text, "value")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        '"a"',
        "null",
        '{"b":1,"a":2}',
        '{"a":1,"a":1}',
        '{"a":1.00}',
        '{"a":1e400}',
        '{"a":NaN}',
        '{"a":"\\u00e9"}',
        '{"a":"\\ud800"}',
        '{"a":"\ud800"}',
        "[" * 100_000,
        '{"a":' + "9" * 5000 + "}",
    ],
    ids=range(15),
)
def test_what_is_not_a_canonical_object_is_refused(text):
    with pytest.raises(ChainError):
        parse_canonical(text, "value")


def test_members_have_exactly_their_types():
    types = {"name": (str,), "count": (int,), "next": (str, type(None))}
    require_types({"name": "a", "count": 1, "next": None}, types, "value")
    for wrong in (
        {"name": "a", "count": 1},
        {"name": "a", "count": 1, "next": None, "more": 1},
        {"name": "a", "count": True, "next": None},
        {"name": "a", "count": 1.0, "next": None},
        {"name": None, "count": 1, "next": None},
    ):
        with pytest.raises(ChainError):
            require_types(wrong, types, "value")


def test_a_digest_is_the_sha_256_of_the_utf_8_bytes():
    assert compute_digest("é") == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"
