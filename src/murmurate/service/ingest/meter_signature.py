"""Readings that a meter signs itself: a carrier can lose them, but not change or repeat them."""

from __future__ import annotations

from murmurate.public_log.signing import verify_signature


def signed_bytes(meter: str, start_s: int, energy_wh: int) -> bytes:
    """What a meter signs with its Ed25519 key: its name, the begin of the interval [s of UTC], the energy [Wh].

    The energy is a whole number, rounded down, within 64 bits. It is what the meter measured, before it is clipped.

    >>> signed_bytes("17", 1_794_658_500, 250)
    b'murmurate reading 1\\n17\\n1794658500\\n250'
    """
    return f"murmurate reading 1\n{meter}\n{start_s}\n{energy_wh}".encode()


def is_signature_valid(key: str, meter: str, start_s: int, energy_wh: int, signature: str | None) -> bool:
    return signature is not None and verify_signature(key, signed_bytes(meter, start_s, energy_wh), signature)
