"""The fast reader is the strict reader: the same readings, the same refusals, in the same words, on every body."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.request_bodies import INTERVAL_S, START_S

from murmurate.errors import ReadingError
from murmurate.readings import text_lines
from murmurate.readings.text_lines import (
    parse_csv,
    parse_csv_strictly,
    parse_json_lines,
    parse_json_lines_strictly,
)

NAMES = ("meter", "interval_start", "energy_wh", "interval_end", "signature")
good_names = st.sampled_from(["home-17", "a", "x y", "[a]", "{", "m" * 128, "17", "a;b", "a,b", "'", "NaN", "null"])
odd_names = st.sampled_from(
    ["", " a", "a ", "m" * 129, "é", "٧", "\u2028", 'a"b', "a\\b", "a\tb", "a\x7fb", "a\x00b", "\ufeff"]
)
good_times = st.sampled_from([START_S, START_S + 900, "2026-01-01T00:00:00Z", "2026-01-01 01:00:00+01:00"])
odd_times = st.sampled_from(
    [
        START_S + 1,
        -900,
        2**70,
        str(START_S),
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00.5Z",
        "9999-12-31T23:45:00Z",
        "2026-13-01T00:00:00Z",
        "",
        None,
        True,
        0.0,
    ]
)
good_energies = st.integers(-(2**63), 2**63 - 1)
odd_energies = st.sampled_from([2**63, -(2**63) - 1, 10**30, 1.5, -0.0, 1e3, "5", None, True, [5], {"a": 5}])
good_signatures = st.binary(min_size=1, max_size=64).map(bytes.hex)
odd_signatures = st.sampled_from(["", "abc", "zz", "A" * 512, "a" * 514, "a" * 600, None, 5, "AbCd"])
values = {
    "meter": (good_names | st.integers(-5, 10**20), odd_names | st.none() | st.booleans()),
    "interval_start": (good_times, odd_times),
    "interval_end": (st.sampled_from([START_S + 900, "2026-01-01T00:15:00Z"]), odd_times | good_times),
    "energy_wh": (good_energies, odd_energies),
    "signature": (good_signatures, odd_signatures),
}
json_edits = st.sampled_from(
    [
        lambda line: line.replace(":", ": ", 1),
        lambda line: line.replace("}", " }"),
        lambda line: " " + line,
        lambda line: line + "\r",
        lambda line: line + line,
        lambda line: line + ",",
        lambda line: line.replace("}", ',"energy_wh":7}'),
        lambda line: line.replace("}", ',"other":7}'),
        lambda line: line.replace('"energy_wh":', '"energy_wh":0'),
        lambda line: line.replace('"energy_wh":', '"energy_wh":-'),
        lambda line: line.replace('"energy_wh":', '"energy_wh":+'),
        lambda line: line.replace("}", "e2}"),
        lambda line: line.replace("}", ".0}"),
        lambda line: line.replace("meter", "m\\u0065ter"),
        lambda line: line.replace('"', "'"),
        lambda line: line[:-1],
        lambda line: f"[{line}]",
        lambda _: "// comment",
        lambda _: "",
        lambda _: "  ",
        lambda line: line.replace("}", " " * 4096 + "}"),
        lambda line: line.replace("}", "/**/}"),
        lambda _: "[" * 2000,
        lambda line: line.replace("}", ',"energy_wh":NaN}'),
        lambda line: "\ufeff" + line,
        lambda line: line + "\x00",
        lambda line: line.replace(",", "\t,", 1),
        lambda line: line.replace(",", "\n,", 1),
        *(
            lambda line, old=old, new=new: line.replace(f'"{old}"', f'"{new}"')
            for old in NAMES
            for new in NAMES
            if old != new
        ),
    ]
)
csv_edits = st.sampled_from(
    [
        lambda line: line + ",",
        lambda line: line + ";",
        lambda line: f'"{line}',
        lambda line: '"' + line.replace(",", '","') + '"',
        lambda line: " " + line,
        lambda line: line + " ",
        lambda line: line + "\r",
        lambda line: line.replace("1", "\r", 1),
        lambda _: "",
        lambda _: "   ",
        lambda line: line.rpartition(",")[0],
        lambda line: line + "e3",
        lambda line: line + ".0",
        lambda line: line.replace(",", ", ", 1),
        lambda line: line.replace(",", ",+", 1),
        lambda line: line.replace(",", ",0", 1),
        lambda line: line + "\x00",
        lambda line: line + " " * 5000,
        lambda line: "\ufeff" + line,
        lambda line: line.replace(",", ";"),
    ]
)


@st.composite
def lines_of_values(draw, write, edits):
    """Lines of one form, of which a few may have odd values or be edited; the names of their columns too."""
    required, optional = NAMES[:3], draw(st.lists(st.sampled_from(NAMES[3:]), unique=True))
    names = draw(st.permutations([*required, *optional]))
    kinds = {name: values[name][0] for name in names}
    if "interval_end" in names:
        kinds["interval_start"] = st.sampled_from([START_S, "2026-01-01T00:00:00Z"])
    if draw(st.booleans()):  # one type in each column, as a program writes
        kinds["meter"] = good_names
        kinds |= {
            name: kinds[name].filter(lambda value: isinstance(value, str)) for name in names if "interval" in name
        }
    odd = draw(st.sampled_from([0, 0, 0, 1, 2]))
    rows = [{name: draw(kinds[name]) for name in names} for _ in range(draw(st.integers(1, 6)))]
    for _ in range(odd):
        row, name = draw(st.sampled_from(rows)), draw(st.sampled_from(names))
        row[name] = draw(values[name][1])
    texts = [write(row) for row in rows]
    if draw(st.sampled_from([False, False, True])):
        at = draw(st.integers(0, len(texts) - 1))
        texts[at] = draw(edits)(texts[at])
    return names, texts


def outcome(parse, body):
    try:
        batch, refused = parse(body, interval_s=INTERVAL_S)
    except ReadingError as error:
        return str(error)
    assert all(column.dtype == "int64" for column in (batch.start_s, batch.energy_wh, batch.line))
    meters, signatures = list(batch.meter), None if batch.signature is None else list(batch.signature)
    assert {type(name) for name in meters} <= {str}
    return (
        meters,
        batch.start_s.tolist(),
        batch.energy_wh.tolist(),
        batch.line.tolist(),
        signatures,
        list(refused.items()),
    )


compact = {"separators": (",", ":"), "ensure_ascii": False}
endings = st.sampled_from(["\n", "\n", "\r\n"])


@pytest.mark.slow
@settings(max_examples=5 * settings.default.max_examples)
@given(
    lines_of_values(lambda row: json.dumps(row, **compact), json_edits),
    endings,
    st.booleans(),
    st.booleans(),
    st.sampled_from([False, False, True]),
)
def test_json_lines_are_what_the_strict_reader_makes_of_them(lines, end, ended, mark, joined):
    text = end.join(lines[1]) + (end if ended else "")
    if joined:  # two objects on a line and an empty line: as many lines and objects as before
        text = "}{".join(text.rsplit("}" + end + "{", 1)) + end
    body = text.encode("utf-8-sig" if mark else "utf-8", "surrogatepass")
    assert outcome(parse_json_lines, body) == outcome(parse_json_lines_strictly, body)


def csv_text(delimiter):
    return lambda row: delimiter.join("" if value is None else str(value) for value in row.values())


@pytest.mark.slow
@settings(max_examples=5 * settings.default.max_examples)
@given(st.data(), st.sampled_from(",;"), endings, st.booleans(), st.booleans())
def test_csv_is_what_the_strict_reader_makes_of_it(data, delimiter, end, ended, mark):
    names, texts = data.draw(lines_of_values(csv_text(delimiter), csv_edits))
    text = end.join([delimiter.join(names), *texts]) + (end if ended else "")
    body = text.encode("utf-8-sig" if mark else "utf-8", "surrogatepass")
    assert outcome(parse_csv, body) == outcome(parse_csv_strictly, body)


@pytest.mark.slow
@settings(max_examples=5 * settings.default.max_examples)
@given(
    st.sampled_from(
        [
            b'{"meter":"a","interval_start":0,"energy_wh":5}\n' * 3,
            b'{"energy_wh": -5, "meter": 17, "interval_start": "2026-01-01T00:00:00Z", "signature": "ab"}\r\n' * 2,
            b"meter_id;interval_start;interval_end;energy_wh\na;0;900;5\nb;0;900;6\n",
            b"meter,interval_start,energy_wh\r\na,0,5\r\nb,900,6\r\n",
        ]
    ),
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 255), st.sampled_from(["set", "insert", "delete"])), max_size=3
    ),
)
def test_a_body_with_a_few_wrong_bytes_is_what_the_strict_reader_makes_of_it(body, wrong):
    damaged = bytearray(body)
    for place, byte, how in wrong:
        at = place % (len(damaged) + 1)
        damaged[at : at + (how != "insert")] = b"" if how == "delete" else bytes([byte])
    for parse, strict in ((parse_json_lines, parse_json_lines_strictly), (parse_csv, parse_csv_strictly)):
        assert outcome(parse, bytes(damaged)) == outcome(strict, bytes(damaged))


numerals = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,25})?", fullmatch=True)


@given(st.lists(numerals, min_size=1, max_size=4))
def test_any_numeral_of_json_is_rounded_down_exactly_as_by_the_strict_reader(energies):
    """Exponents of 25 digits are beyond what a Decimal can hold, and must not be written out."""
    body = "\n".join(f'{{"meter":"a","interval_start":{START_S},"energy_wh":{energy}}}' for energy in energies).encode()
    assert outcome(parse_json_lines, body) == outcome(parse_json_lines_strictly, body)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("options", [{}, compact])
@pytest.mark.parametrize("more", [{}, {"signature": "ab" * 64}, {"interval_end": "2026-01-01T00:15:00Z"}])
def test_what_a_program_writes_is_read_fast(monkeypatch, end, options, more):
    """Otherwise the properties above would hold for a fast reader that reads nothing."""
    monkeypatch.setattr(text_lines, "_batch_from_lines", lambda *_: pytest.fail("the strict reader was asked"))
    rows = [
        {"meter": f"home-{n}", "interval_start": "2026-01-01T00:00:00Z", "energy_wh": n / 4 if n % 3 else n} | more
        for n in range(-20, 20)
    ]
    body = end.join(json.dumps(row, **options) for row in rows).encode()
    assert len(parse_json_lines(body, interval_s=INTERVAL_S)[0]) == 40
    for delimiter in ",;":
        table = [delimiter.join(rows[0]), *(csv_text(delimiter)(row) for row in rows)]
        assert len(parse_csv(end.join(table).encode(), interval_s=INTERVAL_S)[0]) == 40
