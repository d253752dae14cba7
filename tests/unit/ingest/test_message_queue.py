"""What messages take in memory is never more than what the queue counts."""

import tracemalloc

import pytest

from murmurate.service.ingest.message_ingest import MessageQueue, ReceivedMessage


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
