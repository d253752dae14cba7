"""Exact coins: True with chance e^(-n/d) for whole numbers n and d, from fair bits and integers alone.

A uniform real number V of [0, 1) is drawn bit by bit until it is known whether it lies below e^(-n/d). No floating
point number takes part. Proofs: `noise.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from murmurate.errors import PrivacyError

RandomBytes = Callable[[int], bytes]  # how many bytes -> that many fair ones

_WORD = 4  # bytes of V that are drawn at a time
_HALVINGS = 6  # the series is summed at arguments below 2**-6
_GUARD = 12  # bits beyond those asked for


def bernoulli_exp(
    numerators: Sequence[int], denominator: int, random_bytes: RandomBytes, word: int = _WORD
) -> list[bool]:
    """One independent coin for each n of `numerators`: True with chance e^(-n/denominator), exactly.

    The first `word` bytes of all coins come from one call of `random_bytes`; a coin that they leave undecided asks for
    as many again.

    >>> import os
    >>> bernoulli_exp([0, 10**9], 1, os.urandom)
    [True, False]
    """
    if denominator < 1 or min(numerators, default=0) < 0:
        raise PrivacyError("chance", "e^(-n/d)", "must have whole numbers n >= 0 and d >= 1")
    drawn = random_bytes(word * len(numerators))
    return [
        _below(drawn[word * i : word * (i + 1)], numerator, denominator, random_bytes)
        for i, numerator in enumerate(numerators)
    ]


def _below(first: bytes, numerator: int, denominator: int, random_bytes: RandomBytes) -> bool:
    """Whether V, whose leading bytes are `first`, lies below e^(-n/d)."""
    drawn = first
    while True:
        bits, value = 8 * len(drawn), int.from_bytes(drawn)
        low, high = exp_bounds(numerator, denominator, bits)
        if value < low:
            return True
        if value >= high:
            return False
        drawn += random_bytes(len(first))


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Whole numbers low <= e^(-n/d) 2^bits <= high, nearly always next to each other.

    With y = n/(d 2^m) < 2^-6: the alternating series of e^-y, then m squarings, in fixed point, each rounded outwards.

    >>> exp_bounds(1, 1, 16), round(2**16 * 0.36787944117, 3)
    ((24109, 24110), 24109.347)
    """
    if numerator == 0:
        return 1 << bits, 1 << bits
    if numerator >= bits * denominator:
        return 0, 1  # e^-bits < 2^-bits
    squarings = (numerator // denominator).bit_length() + _HALVINGS
    point = bits + squarings + _GUARD
    one = 1 << point
    y = (numerator << (point - squarings)) // denominator
    power, total, terms = one, one, 0
    while power:
        terms += 1
        power = (power * y >> point) // terms
        total += -power if terms % 2 else power
    low, high = total - 2 * terms - 2, min(total + 2 * terms + 2, one)
    for _ in range(squarings):
        low, high = low * low >> point, (high * high >> point) + 1
    return low >> (point - bits), -(-high >> (point - bits))
