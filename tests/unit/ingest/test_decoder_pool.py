"""Bodies that are parsed in separate processes: the same result, bounded memory, and none ends the service."""

import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.forged_parquet import forged_parquet
from tests.support.request_bodies import INTERVAL_S, columns, energy, names, parquet, starts, table

from murmurate.errors import ReadingError
from murmurate.readings.parquet import parse_parquet
from murmurate.readings.text_lines import parse_csv, parse_json_lines
from murmurate.service.ingest import decoder_pool
from murmurate.service.ingest.decoder_pool import JSON_LINES, PARQUET, DecoderPool

ONE = parquet(table([1], [0], [5]))


@pytest.fixture(scope="module")
def pool():
    made = DecoderPool(max_processes=2)
    yield made
    made.close()


def outcome(parse, *words):
    try:
        batch, refused = parse(*words, interval_s=INTERVAL_S)
    except ReadingError as error:
        return str(error)
    return columns(batch), batch.line.tolist(), batch.signature, refused


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(-5, 2**63 - 1), starts, energy)) | st.lists(st.tuples(names, starts, energy)))
def test_a_parquet_body_is_read_as_in_one_process(pool, readings):
    body = parquet(table(*[list(part) for part in zip(*readings, strict=True)] or [[], [], []]))
    assert outcome(pool.parse, PARQUET, body) == outcome(parse_parquet, body)


@pytest.mark.parametrize("kind", [JSON_LINES, "text/csv"])
def test_a_large_body_in_lines_is_read_as_in_one_process(pool, kind, monkeypatch):
    monkeypatch.setattr(decoder_pool, "MAX_INLINE_BYTES", 10)
    rows = [('{"meter": "a%d", "interval_start": %d, "energy_wh": 5, "signature": %s}', i) for i in range(40)]
    lines = [form % (i, 900 * (i % 3) + i % 2, '"ab"' if i % 4 else "null") for form, i in rows]
    bodies = {
        JSON_LINES: (parse_json_lines, ["\n".join(lines), "{", "", "\n"]),
        "text/csv": (parse_csv, ["meter_id,interval_start,energy_wh\n" + "ä b,0,5\nc,1,5\n" * 9, "x,y\n1,2\n"]),
    }
    parse, texts = bodies[kind]
    for text in texts:
        assert outcome(pool.parse, kind, text.encode()) == outcome(parse, text.encode())


@pytest.mark.slow
def test_a_forged_file_costs_at_most_its_bound_and_the_next_body_is_read():
    pool = DecoderPool(memory_bytes=2**29)
    try:
        with pytest.raises(ReadingError, match="body is"):
            pool.parse(PARQUET, forged_parquet(1900), interval_s=INTERVAL_S)
        assert len(pool.parse(PARQUET, ONE, interval_s=INTERVAL_S)[0]) == 1
        limits = Path(f"/proc/{pool._idle[0]._process.pid}/limits").read_text()
        assert limits.partition("Max address space")[2].split()[:2] == [str(2**29)] * 2
    finally:
        pool.close()


@pytest.mark.slow
def test_a_decoder_that_a_body_ends_refuses_that_body_alone(pool, monkeypatch):
    monkeypatch.setattr(decoder_pool, "MAX_INLINE_BYTES", 10)
    monkeypatch.setattr(decoder_pool, "FORMATS", ("nothing",) * 99 + (JSON_LINES,))  # it has no format 99: it ends
    with pytest.raises(ReadingError, match="needs too much memory or time"):
        pool.parse(JSON_LINES, b"x" * 100, interval_s=INTERVAL_S)
    monkeypatch.undo()
    assert len(pool.parse(PARQUET, ONE, interval_s=INTERVAL_S)[0]) == 1


@pytest.mark.slow
def test_a_decoder_that_was_killed_while_it_was_idle_is_replaced():
    pool = DecoderPool()
    try:
        pool.parse(PARQUET, ONE, interval_s=INTERVAL_S)
        os.kill(pool._idle[0]._process.pid, signal.SIGKILL)
        assert len(pool.parse(PARQUET, ONE, interval_s=INTERVAL_S)[0]) == 1
    finally:
        pool.close()


@pytest.mark.slow
def test_a_decoder_that_has_taken_much_memory_is_ended_after_its_body(monkeypatch):
    """Whatever this process takes: a fork inherits the peak of its parent."""
    own_peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    pool = DecoderPool()
    try:
        pool.parse(PARQUET, ONE, interval_s=INTERVAL_S)
        (kept,) = pool._idle
        assert 0 < kept.peak_bytes() < min(own_peak_bytes, decoder_pool.MAX_IDLE_BYTES)
        monkeypatch.setattr(decoder_pool, "MAX_IDLE_BYTES", 2**20)
        pool.parse(PARQUET, ONE, interval_s=INTERVAL_S)
        assert pool._idle == []
        assert len(pool.parse(PARQUET, ONE, interval_s=INTERVAL_S)[0]) == 1
    finally:
        pool.close()


@pytest.mark.slow
def test_at_most_so_many_processes_work_at_once_and_none_has_our_secrets(monkeypatch):
    monkeypatch.setenv("MURMURATE_STATE", "postgresql://secret")
    pool = DecoderPool(max_processes=2)
    try:
        with ThreadPoolExecutor(8) as threads:
            batches = list(threads.map(lambda _: pool.parse(PARQUET, ONE, interval_s=INTERVAL_S)[0], range(24)))
        assert all(np.array_equal(batch.energy_wh, [5]) for batch in batches)
        ids = [decoder._process.pid for decoder in pool._idle]
        assert 1 <= len(ids) <= 2
        assert all(b"MURMURATE_" not in Path(f"/proc/{pid}/environ").read_bytes() for pid in ids)
    finally:
        pool.close()
