"""Two values for one interval, and a judge of proofs that knows only the documented format."""

from __future__ import annotations

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.support.sample_logs import (
    ShardLog,
    log,
)


def two_values(prices: tuple[int, ...] = (20_000, 10_000)) -> tuple[ShardLog, ...]:
    """One operator, two prices for one interval: after a restored backup, say."""
    return tuple(log().cut(4).release(price_ticks=price) for price in prices)


def convicts(proof: Any) -> bool:
    """A few lines that know nothing of murmurate but the page on the public log."""
    headers = []
    for line in proof.headers:
        header = json.loads(line)
        signature = header.pop("signature")
        body = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(proof.key)).verify(bytes.fromhex(signature), body)
        headers.append(header)
    one, other = headers
    both_release = one["kind"] == other["kind"] == "release"
    same_interval = one["interval"] == other["interval"] and both_release
    same_place = one["shard"] == other["shard"] and (one["seq"] == other["seq"] or same_interval) and one != other
    if proof.lines:
        lines = [json.loads(line) for line in proof.lines]
        assert [line["tile"]["seq"] for line in lines] == [header["seq"] for header in headers]
        same_place |= lines[0]["zone"] == lines[1]["zone"] == proof.zone and same_interval and lines[0] != lines[1]
    return same_place and one["key"] == other["key"] == proof.key
