"""Which public numbers a tile states, and that nothing else can be read from its header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ChainError, ModelError
from murmurate.prediction.public_inputs import (
    INPUTS,
    MAX_INPUT_AGE_S,
    MAX_THOUSANDTHS,
    InputValue,
    check_series_name,
    from_extensions,
    select_inputs,
    to_extensions,
)
from murmurate.public_log.canonical import canonical_json, parse_canonical

THOUSANDTHS = st.integers(-MAX_THOUSANDTHS, MAX_THOUSANDTHS)
VALUES = st.builds(InputValue, st.none() | THOUSANDTHS, st.none() | THOUSANDTHS)


@given(st.dictionaries(st.sampled_from(["temperature", "Zürich, load", "sun"]), VALUES))
def test_a_header_gives_back_what_was_known(inputs):
    text = canonical_json(to_extensions(inputs))
    known = {series: value for series, value in inputs.items() if value != (None, None)}
    assert from_extensions(parse_canonical(text, "header")) == known


@given(
    posted=st.dictionaries(st.integers(0, 60), THOUSANDTHS),
    interval=st.integers(20, 50),
    lead=st.integers(0, 4),
)
def test_a_value_is_the_latest_one_that_is_not_too_old_and_never_a_later_one(posted, interval, lead):
    (found,) = select_inputs({"t": posted}, ["t"], interval=interval, lead=lead, interval_s=1800).values()
    for value, at in ((found.now, interval), (found.ahead, interval + lead)):
        fresh = [number for number in posted if at - MAX_INPUT_AGE_S // 1800 <= number <= at]
        assert value == (posted[max(fresh)] if fresh else None)


def test_a_series_that_nobody_has_posted_is_not_there():
    found = select_inputs({"other": {5: 1}}, ["t"], interval=5, lead=1, interval_s=900)
    assert (found, to_extensions(found)) == ({}, {})


@pytest.mark.parametrize(
    "stated",
    [
        [],
        {"t": 4},
        {"t": {"now": 4.5}},
        {"t": {"now": True}},
        {"t": {"now": "4"}},
        {"t": {"then": 4}},
        {"t": {"now": MAX_THOUSANDTHS + 1}},
        {"t": {"now": None}},
    ],
)
def test_inputs_of_another_form_are_refused(stated):
    with pytest.raises(ChainError, match="whole thousandths"):
        from_extensions({INPUTS: stated})


@pytest.mark.parametrize("name", ["", "a/b", "two\nlines", "x" * 201])
def test_a_series_has_a_name_that_can_be_read_at_an_address(name):
    with pytest.raises(ModelError, match="must be a name such as"):
        check_series_name(name, "temperature")
