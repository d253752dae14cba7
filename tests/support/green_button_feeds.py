"""Green Button feeds, written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

ROOT = "https://data.example/espi/1_1/resource/RetailCustomer/9"
DELTA = {"accumulationBehaviour": 4, "flowDirection": 1, "powerOfTenMultiplier": 0, "uom": 72}


@dataclass
class Meter:
    """A usage point with one meter reading; its readings are (start, duration, value)."""

    name: str
    readings: Sequence[tuple[int, int, object]] = ()
    kind: str = "07"


def entry(content: str, link: str, *related: str) -> str:
    links = f'<a:link rel="self" href="{link}"/>' + "".join(f'<a:link rel="related" href="{r}"/>' for r in related)
    return f"<a:entry>{links}<a:content>{content}</a:content></a:entry>"


def reading(start: int, duration: int, value: object) -> str:
    period = f"<timePeriod><duration>{duration}</duration><start>{start}</start></timePeriod>"
    return f"<IntervalReading><cost>974</cost>{period}<value>{value}</value></IntervalReading>"


def kind_entry(name: str, fields: Mapping[str, object]) -> str:
    inner = "".join(f"<{key}>{value}</{key}>" for key, value in fields.items())
    return entry(f"<ReadingType>{inner}</ReadingType>", f"{ROOT}/ReadingType/{name}")


def entries(meters: Iterable[Meter], kinds: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    for meter in meters:
        point = f"{ROOT}/UsagePoint/{meter.name}"
        types = [f"{ROOT}/ReadingType/{meter.kind}"] if meter.kind else []
        yield entry("<UsagePoint><ServiceCategory><kind>0</kind></ServiceCategory></UsagePoint>", point)
        yield entry("<MeterReading/>", f"{point}/MeterReading/01", *types)
        block = "".join(reading(*one) for one in meter.readings)
        whole = f"<interval><duration>86400</duration><start>0</start></interval>{block}"
        yield entry(f"<IntervalBlock>{whole}</IntervalBlock>", f"{point}/MeterReading/01/IntervalBlock/173")
    yield from (kind_entry(name, fields) for name, fields in kinds.items())


def feed(parts: Iterable[str]) -> bytes:
    spaces = 'xmlns:a="http://www.w3.org/2005/Atom" xmlns="http://naesb.org/espi"'
    return f'<?xml version="1.0" encoding="UTF-8"?><a:feed {spaces}>{"".join(parts)}</a:feed>'.encode()


def one(*readings: tuple[int, int, object], meter: str = "5446AF3F", **changes: object) -> bytes:
    """A feed of one meter, with these changes to its reading type."""
    return feed(entries([Meter(meter, list(readings))], {"07": DELTA | changes}))
