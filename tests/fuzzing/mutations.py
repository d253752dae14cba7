"""Change bytes at random: flips, cuts, splices, words of the format, and numbers at their extremes."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

MAX_INPUT_BYTES = 1 << 16
_MAX_CHANGES = 4
_NUMBER = re.compile(rb"[0-9]+")
_NUMBERS = (
    *(b"0", b"-1", b"1", b"00", b"1.5", b"-0.0", b"1e9", b"1e308", b"1e-400", b"1e999999999", b"NaN", b"-Infinity"),
    *(str(2**power + step).encode() for power in (7, 8, 15, 16, 31, 32, 53, 62, 63, 64) for step in (-1, 0, 1)),
    *(b"253402300799", b"253402300800", b"9" * 40, b"9" * 5000, b"0" * 300 + b"1", "٣".encode(), b"0x10", b"1_000"),
)
_BYTES = (0, 1, 9, 10, 13, 32, 34, 39, 44, 45, 46, 58, 59, 60, 91, 92, 93, 123, 125, 127, 128, 192, 237, 240, 255)


class Mutator:
    """Draws changes from a seeded generator."""

    def __init__(self, rng: random.Random, words: Sequence[bytes] = ()) -> None:
        self._rng = rng
        self._words = tuple(words) or (b"",)
        self._changes = (
            self._flip_bit,
            self._set_byte,
            self._cut,
            self._truncate,
            self._repeat,
            self._insert_word,
            self._replace_by_word,
            self._change_number,
            self._swap,
            self._insert_bytes,
        )

    def mutate(self, data: bytes, other: bytes) -> bytes:
        """Return `data` after one to four changes; sometimes it goes on as `other`."""
        changed = bytearray(data)
        if self._rng.random() < 0.15:
            changed = changed[: self._at(changed)] + other[self._at(other) :]
        for _ in range(self._rng.randint(1, _MAX_CHANGES)):
            changed = self._rng.choice(self._changes)(changed)
        return bytes(changed[:MAX_INPUT_BYTES])

    def _at(self, data: bytes | bytearray) -> int:
        return self._rng.randrange(len(data) + 1)

    def _span(self, data: bytearray, longest: int = 64) -> tuple[int, int]:
        begin = self._at(data)
        return begin, min(len(data), begin + self._rng.randint(1, longest))

    def _flip_bit(self, data: bytearray) -> bytearray:
        if data:
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return data

    def _set_byte(self, data: bytearray) -> bytearray:
        if data:
            value = self._rng.choice(_BYTES) if self._rng.random() < 0.5 else self._rng.randrange(256)
            data[self._rng.randrange(len(data))] = value
        return data

    def _cut(self, data: bytearray) -> bytearray:
        begin, end = self._span(data)
        return data[:begin] + data[end:]

    def _truncate(self, data: bytearray) -> bytearray:
        return data[: self._at(data)] if self._rng.random() < 0.3 else data

    def _repeat(self, data: bytearray) -> bytearray:
        begin, end = self._span(data, 512)
        times = self._rng.choice((1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 8, 100))
        return data[:end] + data[begin:end] * times + data[end:]

    def _insert_word(self, data: bytearray) -> bytearray:
        at = self._at(data)
        return data[:at] + self._rng.choice(self._words) + data[at:]

    def _replace_by_word(self, data: bytearray) -> bytearray:
        begin, end = self._span(data, 24)
        return data[:begin] + self._rng.choice(self._words) + data[end:]

    def _change_number(self, data: bytearray) -> bytearray:
        numbers = list(_NUMBER.finditer(data))
        if not numbers:
            return self._insert_bytes(data)
        match = self._rng.choice(numbers)
        return data[: match.start()] + self._rng.choice(_NUMBERS) + data[match.end() :]

    def _swap(self, data: bytearray) -> bytearray:
        (begin, end), to = self._span(data), self._at(data)
        moved, rest = data[begin:end], data[:begin] + data[end:]
        return rest[:to] + moved + rest[to:]

    def _insert_bytes(self, data: bytearray) -> bytearray:
        at = self._at(data)
        return data[:at] + self._rng.randbytes(self._rng.randint(1, 4)) + data[at:]
