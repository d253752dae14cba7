"""Parsers of readings: JSON lines, CSV, Parquet, Green Button, registers, and messages by MQTT."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pyarrow as pa

from murmurate.errors import ReadingError
from murmurate.readings.green_button import parse_green_button
from murmurate.readings.parquet import parse_parquet
from murmurate.readings.text_lines import (
    parse_csv,
    parse_csv_strictly,
    parse_json_lines,
    parse_json_lines_strictly,
)
from murmurate.service.ingest.cumulative_register import parse_register_reading
from murmurate.service.ingest.message_ingest import (
    BATCH_TOPIC,
    EXPORT_REGISTER,
    MessageAttempts,
    MessageIngest,
    ReceivedMessage,
)
from tests.fuzzing.fuzz_target import FuzzTarget
from tests.fuzzing.ingest_parts import INTERVAL_S, FuzzFolder, InProcessDecoders, MemoryRegisters, new_ingestor
from tests.support import green_button_feeds as feeds
from tests.support.request_bodies import START_S, columns, line, parquet, table

_JSON_WORDS = (
    *b'"meter" "interval_start" "interval_end" "energy_wh" "signature" null true {} [] NaN -Infinity'.split(),
    *b'"2026-01-01T00:00:00Z" "2026-01-01T01:00:00.000000001+01:00" \\ud800 \\u0000'.split(),
    *(b"[" * 500, b"\n", b"\r\n", b"\xef\xbb\xbf"),
)
_CSV_WORDS = (
    *b'meter_id meter interval_start interval_end energy_wh signature ; , " 2026-01-01T00:00:00Z 12,5 +1e3'.split(),
    *(b"\n", b"\r", b"\r\n", b" ", b"\xef\xbb\xbf", b"\0"),
)
_XML_WORDS = (
    *b"<a:entry> </a:entry> <IntervalReading> <timePeriod> <value> <start> <duration> <uom> <a:content>".split(),
    *b'<powerOfTenMultiplier> <flowDirection> &#x0; &amp; <![CDATA[ ]]> &y; <!-- encoding="UTF-16"'.split(),
    *(b"<a:link rel=", b"<!DOCTYPE x [<!ENTITY y 'z'>]>"),
)


def _outcome(parse, body: bytes) -> object:
    """The rows and refusals of a body, or the error: what two readers of one format must agree on."""
    try:
        batch, refused = parse(body, interval_s=INTERVAL_S)
    except ReadingError as error:
        return str(error)
    return columns(batch), refused


def _parse_both_ways(fast, strict):
    """Parse by columns and line by line. Both must say the same."""

    def parse(body: bytes) -> None:
        by_columns, by_lines = _outcome(fast, body), _outcome(strict, body)
        if by_columns != by_lines:
            raise AssertionError("read by columns and line by line: not the same")

    return parse


def _mqtt_parser():
    """Messages as the consumer takes them: a topic in the first line, a payload in the others. Each comes twice."""
    folder = FuzzFolder()
    ingestor, store = new_ingestor(folder), MemoryRegisters()
    attempts = MessageAttempts(ingestor.landing, "fuzzing")

    def parse(data: bytes, _: FuzzFolder = folder) -> None:
        topic, _, payload = data.partition(b"\n")
        name = topic.decode(errors="replace").replace("/", "").replace("+", "").replace("#", "").replace("\0", "")
        register = EXPORT_REGISTER if len(payload) % 3 == 0 else "ACTIVE_ENERGY_P"
        topic = f"smartmeter/{name}/{register}" if name else BATCH_TOPIC
        message = ReceivedMessage(topic, payload, START_S + INTERVAL_S)
        again = replace(message, is_duplicate=True, is_retained=len(payload) % 2 == 0)
        parts = {"ingestor": ingestor, "store": store, "decoders": InProcessDecoders(), "attempts": attempts}
        MessageIngest(**parts).ingest([message, again])

    return parse


def _parquet_seeds() -> list[bytes]:
    start = [START_S, START_S + INTERVAL_S]
    named = table(["m0", "ü"], start, [5, -7])
    numbers = table([0, 2**40], start, [5, 2**53])
    kinds = (pa.float64(), pa.decimal128(30, 2), pa.uint64(), pa.int8())
    others = [table([0, 1], start, [5, 7]).set_column(2, "energy_wh", pa.array([5, 7]).cast(kind)) for kind in kinds]
    below = [kind for kind in kinds if kind != pa.uint64()]
    others += [table([0, 1], start, [-5, 7]).set_column(2, "energy_wh", pa.array([-5, 7]).cast(kind)) for kind in below]
    with_end = numbers.append_column(
        "interval_end", pa.array([s + INTERVAL_S for s in start], pa.timestamp("s", "UTC"))
    )
    seeds = [parquet(one) for one in (named, numbers, with_end, numbers.slice(0, 0), *others)]
    seeds += [parquet(numbers, compression=name) for name in ("none", "gzip", "zstd", "lz4", "brotli")]
    seeds += [parquet(numbers, version="1.0", use_dictionary=False, data_page_version="2.0")]
    seeds += [parquet(named, use_deprecated_int96_timestamps=True), parquet(numbers, row_group_size=1)]
    return seeds


def reading_targets() -> list[FuzzTarget]:
    lines = [line(), line(interval_end=START_S + INTERVAL_S, signature="ab" * 64), line(energy_wh=-1.5), b'{"meter":7}']
    lines += [
        b"\n".join(line(meter=f"m{n}", energy_wh=n) for n in range(4)),
        line(interval_start="2026-01-01T00:00:00Z"),
    ]
    header = b"meter_id,interval_start,energy_wh\n"
    tables = [header + b"m0,1767225600,5\nm1,1767225600,7\n", header.replace(b",", b";") + b"m0;1767225600;5,5\n"]
    tables += [header + b"m0,1767225600,-250\nm0,1767225600,-2.5e2\nm1,1767225600,-0.5\n"]
    tables += [b'meter,interval_start,interval_end,energy_wh,signature\n"m,0",2026-01-01T00:00:00Z,1767226500,5,ab\n']
    green = [feeds.one((START_S, 900, 250)), feeds.one((START_S, 900, -250)), feeds.feed([])]
    green += [feeds.one((START_S, 300, 1), uom=71)]
    points = [b"12", b'{"value": 12.5, "unit": "kWh"}', json.dumps({"timestamp": START_S, "value": -1}).encode()]
    messages = [b"m0\n" + point for point in points] + [b"\n" + body for body in (*lines, _parquet_seeds()[1])]
    error = (ReadingError,)
    json_ways, csv_ways = (parse_json_lines, parse_json_lines_strictly), (parse_csv, parse_csv_strictly)
    register_words = (*_JSON_WORDS, *b'"timestamp" "value" "unit" "MWh"'.split())
    return [
        FuzzTarget("json lines", _parse_both_ways(*json_ways), lines, error, _JSON_WORDS),
        FuzzTarget("csv", _parse_both_ways(*csv_ways), tables, error, _CSV_WORDS),
        FuzzTarget("parquet", partial(parse_parquet, interval_s=INTERVAL_S), _parquet_seeds(), error, max_mb=1024),
        FuzzTarget("green button", partial(parse_green_button, interval_s=INTERVAL_S), green, error, _XML_WORDS),
        FuzzTarget("register", partial(parse_register_reading, received_s=START_S), points, error, register_words),
        FuzzTarget("mqtt message", _mqtt_parser(), messages, (), _JSON_WORDS, max_mb=1024),
    ]
