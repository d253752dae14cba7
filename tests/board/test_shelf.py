"""Answers that are kept: never more than fits, never one of before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from murmurate.service.board.board import MOST_ANSWER_BYTES, Ready, Shelf


def answer(size: int) -> Ready:
    return Ready.of(b"x" * size, "text/plain", "public")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4000)), max_size=60))
def test_what_is_kept_is_what_was_put_and_fits(asked: list[tuple[int, int]]) -> None:
    shelf = Shelf(most_bytes=20_000)
    for name, size in asked:
        key = (str(name).encode(), b"")
        before = shelf.get(key)
        shelf.put(key, answer(size))
        assert len(shelf.get(key).body) == (len(before.body) if before else size)
        kept = [shelf.get((str(other).encode(), b"")) for other in range(41)]
        assert sum(len(one.body) for one in kept if one) <= 20_000


def test_a_very_long_answer_is_not_kept() -> None:
    shelf = Shelf()
    shelf.put((b"/", b""), answer(MOST_ANSWER_BYTES + 1))
    assert shelf.get((b"/", b"")) is None


def test_an_emptied_shelf_is_empty_and_says_so() -> None:
    shelf = Shelf()
    shelf.put((b"/", b""), answer(5))
    shelf.clear()
    assert shelf.get((b"/", b"")) is None
    assert shelf.emptied == 1
