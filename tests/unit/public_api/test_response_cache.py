"""Answers that are kept: never more than fits, never one of before."""

from __future__ import annotations

from dataclasses import replace
from email.utils import parsedate_to_datetime

from hypothesis import given
from hypothesis import strategies as st

from murmurate.service.public_api.response_cache import (
    CACHE_CONTROL_IMMUTABLE,
    MAX_AGE_S,
    MAX_CACHED_BODY_BYTES,
    CachedResponse,
    ResponseCache,
)


def answer(size: int) -> CachedResponse:
    return CachedResponse.from_body(b"x" * size, "text/plain", "public")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4000)), max_size=60))
def test_what_is_kept_is_what_was_put_and_fits(asked: list[tuple[int, int]]) -> None:
    cache = ResponseCache(max_bytes=20_000)
    for name, size in asked:
        key = (str(name).encode(), b"")
        before = cache.find(key, 0.0)
        cache.put(key, answer(size))
        assert len(cache.find(key, 0.0).body) == (len(before.body) if before else size)
        kept = [cache.find((str(other).encode(), b""), 0.0) for other in range(41)]
        assert sum(len(one.body) for one in kept if one) <= 20_000


def test_a_very_long_answer_is_not_kept() -> None:
    cache = ResponseCache()
    cache.put((b"/", b""), answer(MAX_CACHED_BODY_BYTES + 1))
    assert cache.find((b"/", b""), 0.0) is None


def test_an_emptied_cache_is_empty_and_counts_it() -> None:
    cache = ResponseCache()
    cache.put((b"/", b""), answer(5))
    cache.clear()
    assert cache.find((b"/", b""), 0.0) is None
    assert cache.generation == 1


def test_a_response_is_not_found_after_its_end_and_no_other_is_either() -> None:
    cache = ResponseCache()
    for name in (b"/now", b"/evcc"):
        cache.put((name, b""), replace(answer(5), expires_s=100.0))
    assert cache.find((b"/now", b""), 99.9) is not None
    assert cache.find((b"/now", b""), 100.0) is None
    assert cache.find((b"/evcc", b""), 0.0) is None


@given(st.floats(-10, 20), st.booleans())
def test_no_client_keeps_a_response_beyond_its_end(left_s: float, is_final: bool) -> None:
    response = replace(CachedResponse.from_json({}, is_final=is_final), expires_s=1000.0)
    now_s = 1000.0 - left_s
    sent = dict(response.for_request({"headers": []}, now_s).headers)
    assert sent[b"cache-control"] == b"public, must-revalidate"
    kept_until_s = parsedate_to_datetime(sent[b"expires"].decode()).timestamp() + 1
    assert kept_until_s <= min(1000.0, now_s + (900 if is_final else MAX_AGE_S))
    assert kept_until_s > min(1000.0, now_s + MAX_AGE_S) - 1


def test_what_never_changes_has_no_end() -> None:
    response = CachedResponse.from_json({}, CACHE_CONTROL_IMMUTABLE)
    assert dict(response.for_request({"headers": []}, 0.0).headers) == dict(response.headers)
