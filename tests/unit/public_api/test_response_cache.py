"""Answers that are kept: never more than fits, never one of before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from murmurate.service.public_api.response_cache import MAX_CACHED_BODY_BYTES, CachedResponse, ResponseCache


def answer(size: int) -> CachedResponse:
    return CachedResponse.from_body(b"x" * size, "text/plain", "public")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4000)), max_size=60))
def test_what_is_kept_is_what_was_put_and_fits(asked: list[tuple[int, int]]) -> None:
    cache = ResponseCache(max_bytes=20_000)
    for name, size in asked:
        key = (str(name).encode(), b"")
        before = cache.get(key)
        cache.put(key, answer(size))
        assert len(cache.get(key).body) == (len(before.body) if before else size)
        kept = [cache.get((str(other).encode(), b"")) for other in range(41)]
        assert sum(len(one.body) for one in kept if one) <= 20_000


def test_a_very_long_answer_is_not_kept() -> None:
    cache = ResponseCache()
    cache.put((b"/", b""), answer(MAX_CACHED_BODY_BYTES + 1))
    assert cache.get((b"/", b"")) is None


def test_an_emptied_cache_is_empty_and_counts_it() -> None:
    cache = ResponseCache()
    cache.put((b"/", b""), answer(5))
    cache.clear()
    assert cache.get((b"/", b"")) is None
    assert cache.generation == 1
