from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import MurmurateError
from murmurate.privacy.promise import PROMISE_EXAMPLES, IntervalPromise, MomentPromise, WindowPromise, parse_promise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval: 0.5", IntervalPromise(Fraction(1, 2))),
        ("interval: epsilon 1/3", IntervalPromise(Fraction(1, 3))),
        ("any moment: 1", MomentPromise(Fraction(1))),
        (" any 24 h: epsilon 1, delta 1e-6 ", WindowPromise(96, Fraction(1), Fraction(1, 10**6), "24 h")),
        ("any 7 days: epsilon 2", WindowPromise(672, Fraction(2), Fraction(0), "7 days")),
        ("any 3 intervals: epsilon 0.1", WindowPromise(3, Fraction(1, 10), Fraction(0), "3 intervals")),
    ],
)
def test_a_promise_reads_as_it_is_said(text, expected):
    assert parse_promise(text, 96) == expected


@given(
    st.one_of(
        st.builds(IntervalPromise, st.fractions(Fraction(1, 1000), 50, max_denominator=1000)),
        st.builds(MomentPromise, st.fractions(Fraction(1, 1000), 50, max_denominator=1000)),
    )
)
def test_a_promise_printed_is_the_promise_read_but_for_six_digits(promise):
    again = parse_promise(str(promise), 96)
    assert type(again) is type(promise)
    field = "epsilon" if isinstance(promise, IntervalPromise) else "leakage"
    assert float(getattr(again, field)) == pytest.approx(float(getattr(promise, field)), rel=1e-5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("interval: 0", "epsilon is 0: must be positive"),
        ("any 10 h: epsilon 1, delta 2", "delta is 2: must lie between 1e-12 and 1, for example 1e-6"),
        ("any 0.1 h: epsilon 1", "promise is 'any 0.1 h: epsilon 1': the window must be a whole number of intervals"),
        (
            "quite private",
            f"promise is 'quite private': must read like {PROMISE_EXAMPLES}",
        ),
        ("interval: 1/0", 'epsilon is 1/0: must be a finite number such as 0.5 or "1/3"'),
    ],
)
def test_what_is_no_promise_says_how_one_reads(text, says):
    with pytest.raises(MurmurateError) as caught:
        parse_promise(text, 96)
    assert str(caught.value) == says
