"""Messages that are read together: each counts as if it were read alone, and junk is read once."""

import tracemalloc
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ingestors import NOW_S, OPEN_S, new_ingestor

from murmurate.service.ingest.decoder_pool import DecoderPool
from murmurate.service.ingest.message_ingest import (
    BATCH_TOPIC,
    MessageAttempts,
    MessageIngest,
    MessageQueue,
    ReceivedMessage,
)

READING = b'{"meter": "%d", "interval_start": %d, "energy_wh": 7}'
KNOWN_JUNK = (b"", b" \n", b"\n\n", b" " * 5000, b"{", b"null", b"\xef\xbb\xbf[]", b"?" * 5000, b"PAR1")
JUNK = st.sampled_from(KNOWN_JUNK) | st.binary(max_size=8)
OTHERS = st.sampled_from(
    [READING % (0, OPEN_S), READING % (99, OPEN_S), READING % (1, OPEN_S + 5), b"{}", b"?\n" + READING]
)


class CountingDecoders(DecoderPool):
    """Counts the bodies."""

    def __init__(self):
        super().__init__()
        self.bodies = 0

    def parse(self, *body, **options):
        self.bodies += 1
        return super().parse(*body, **options)


def ingest(ingestor, decoders, payloads):
    """Return what was counted."""
    before = Counter(ingestor.counts)
    attempts = MessageAttempts(ingestor.landing, "test")
    messages = [ReceivedMessage(BATCH_TOPIC, payload, int(NOW_S)) for payload in payloads]
    MessageIngest(ingestor=ingestor, store=None, decoders=decoders, attempts=attempts).ingest(messages)
    return Counter(ingestor.counts) - before


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(JUNK, max_size=6), st.lists(OTHERS, max_size=2))
def test_messages_of_a_group_count_as_if_each_were_read_alone(junk, others):
    """Beside a line that can be read, junk is counted by its lines."""
    with TemporaryDirectory() as folder:
        ingestor, decoders = new_ingestor(Path(folder)), DecoderPool()
        payloads = junk + others
        alone = sum((ingest(ingestor, decoders, [payload]) for payload in payloads), Counter())
        together = ingest(ingestor, decoders, payloads)
        decoders.close()
        assert together["accepted"] == alone["accepted"]
        assert others or together["refused"] == alone["refused"]


def test_messages_without_any_reading_are_read_once(tmp_path):
    decoders = CountingDecoders()
    counted = ingest(new_ingestor(tmp_path), decoders, [b"\xff" * 100] * 500)
    assert counted == {"refused": 500}
    assert decoders.bodies == 1


@pytest.mark.parametrize(
    ("name", "payload"), [("1", b"5"), ("m" * 5000, b"5"), ("\U0001f600" * 500, b""), ("1", b"x" * 9000)]
)
def test_a_queue_counts_at_least_what_its_messages_take(name, payload):
    queue, messages = MessageQueue(2**40), 200
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(messages):
            topic = f"smartmeter/{name}{number}/ACTIVE_ENERGY_P"
            assert queue.put(ReceivedMessage(topic, payload + b"%d" % number, 1_794_658_500 + number, 1, number + 300))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken - before <= queue.held_bytes
