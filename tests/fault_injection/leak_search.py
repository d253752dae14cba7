"""Search for demand in all files that are not confidential. Each demand is a number that occurs nowhere else."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path

# Hashes, keys and signatures are 64 or 128 random digits each: among a million of them some contain any number.
_HASH = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{128}|[0-9a-f]{64})(?![0-9a-f])")
_SHAPES = tuple(  # all written forms of a number of nine digits, at any offset
    map(
        re.compile,
        (
            rb"(?=([0-9]{9}))",
            rb"(?=([0-9]{3}[,_'][0-9]{3}[,_'][0-9]{3}))",
            rb"(?=([0-9]{6}\.[0-9]{3}))",
            rb"(?=([0-9]\.[0-9]{6}[eE]\+0?[58]))",
            rb"(?=([0-9]\.[0-9]{8}[eE]\+0?[58]))",
            rb"(?=([0-9a-fA-F]{16}))",
            rb"(?<![0-9a-fA-F])(?:0[xX])?([0-9a-fA-F]{7,8})(?![0-9a-fA-F])",
        ),
    )
)


def without_hashes(text: str) -> str:
    """Return a text without its hashes, keys and signatures: their random digits may contain any small number.

    >>> without_hashes(f"seq 4, prev {'5e' * 32}")
    'seq 4, prev #'
    """
    return _HASH.sub(b"#", text.encode()).decode()


def number_forms(number: int) -> set[bytes]:
    """Return the written forms of a demand: decimal [Wh, kWh], hexadecimal in either byte order, as a float.

    >>> all(form in number_forms(123456789) for form in (b"123456789", b"75bcd15", b"123456.789", b"1.234568e+08"))
    True
    """
    raw = [struct.pack(order + kind, value) for order in "<>" for kind, value in (("q", number), ("d", float(number)))]
    texts = [str(number), f"{number:,}", f"{number:_}", f"{number / 1000:.3f}", f"{number:x}", f"{number:08x}"]
    texts += [f"{value:.{digits}e}" for value in (number, number / 1000) for digits in (6, 8)]
    texts += [part.hex() for part in raw]
    return {form.encode() for text in texts for form in (text, text.upper())}


def search_files(paths: Iterable[Path], canaries: Iterable[int]) -> list[tuple[str, str]]:
    """Search every file for every form of every canary. Return file and text of each hit."""
    wanted = set().union(*map(number_forms, canaries))
    hits = []
    for path in paths:
        masked = _HASH.sub(b"#", path.read_bytes())
        found = {match[1] for shape in _SHAPES for match in shape.finditer(masked)} & wanted
        hits += [(path.name, form.decode()) for form in sorted(found)]
    return hits
