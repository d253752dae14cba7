"""Exact Bernoulli samples: True with probability e^(-n/d) for integers n and d, from random bits and integers only.

A uniform real number V in [0, 1) is drawn bit by bit until V < e^(-n/d) is decided. The code uses no floating point
numbers. Proofs: `noise.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from murmurate.errors import PrivacyError

RandomBytes = Callable[[int], bytes]  # n -> n uniform random bytes

_WORD_BYTES = 4  # bytes of V per draw
_HALVINGS = 6  # the series is summed at arguments below 2**-6
_GUARD_BITS = 12  # bits beyond the requested ones


def bernoulli_exp(
    exponents: Sequence[tuple[int, int]], random_bytes: RandomBytes, word_bytes: int = _WORD_BYTES
) -> list[bool]:
    """Draw one independent bit for each (n, d) of `exponents`: True with probability e^(-n/d), exactly.

    The first `word_bytes` bytes of all samples come from one call of `random_bytes`. A sample that is still undecided
    draws as many bytes again.

    >>> import os
    >>> bernoulli_exp([(0, 1), (10**9, 1)], os.urandom)
    [True, False]
    """
    if any(numerator < 0 or denominator < 1 for numerator, denominator in exponents):
        raise PrivacyError("chance", "e^(-n/d)", "must have integers n >= 0 and d >= 1")
    drawn = random_bytes(word_bytes * len(exponents))
    return [
        _is_below_exp(drawn[word_bytes * i : word_bytes * (i + 1)], numerator, denominator, random_bytes)
        for i, (numerator, denominator) in enumerate(exponents)
    ]


def _is_below_exp(first: bytes, numerator: int, denominator: int, random_bytes: RandomBytes) -> bool:
    """Whether V, whose leading bytes are `first`, lies below e^(-n/d), which is at least 1 - n/d."""
    drawn = first
    while True:
        bits, value = 8 * len(drawn), int.from_bytes(drawn)
        if (value + 1) * denominator <= (denominator - numerator) << bits:
            return True
        low, high = exp_bounds(numerator, denominator, bits)
        if value < low:
            return True
        if value >= high:
            return False
        drawn += random_bytes(len(first))


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Return integers low <= e^(-n/d) 2^bits <= high. They nearly always differ by 1.

    With y = n/(d 2^m) < 2^-6: the alternating series of e^-y, then m squarings, in fixed point, each rounded outwards.

    >>> exp_bounds(1, 1, 16), round(2**16 * 0.36787944117, 3)
    ((24109, 24110), 24109.347)
    """
    if numerator == 0:
        return 1 << bits, 1 << bits
    if numerator >= bits * denominator:
        return 0, 1  # e^-bits < 2^-bits
    squarings = (numerator // denominator).bit_length() + _HALVINGS
    point = bits + squarings + _GUARD_BITS
    unit = 1 << point
    y = (numerator << (point - squarings)) // denominator
    power, total, terms = unit, unit, 0
    while power:
        terms += 1
        power = (power * y >> point) // terms
        total += -power if terms % 2 else power
    low, high = total - 2 * terms - 2, min(total + 2 * terms + 2, unit)
    for _ in range(squarings):
        low, high = low * low >> point, (high * high >> point) + 1
    return low >> (point - bits), -(-high >> (point - bits))
