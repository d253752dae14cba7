"""The operator's facts in the text format of Prometheus (version 0.0.4). Never a demand."""

from __future__ import annotations

from collections.abc import Iterable

from murmurate.publication.record import Kind
from murmurate.service.operator.facts import OperatorFacts, ZoneFacts

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_KINDS = (Kind.MEASURED, Kind.FORECAST, Kind.WITHHELD)
_ROAD = {"done": "up to date", "aside": "that need a person", "unfinished": "not finished in time"}

Sample = tuple[dict[str, str], float]


def metrics(facts: OperatorFacts) -> str:
    """All families, each with its help, its type and its samples."""
    said = {} if facts.beat is None else facts.beat[1]
    age = -1.0 if facts.beat is None else facts.beat[0]
    fates: list[Sample] = [({"fate": fate}, facts.counts.get(fate, 0)) for fate in ("accepted", "late", "refused")]
    lines = family("murmurate_readings_total", "counter", "Readings since this door opened.", fates)
    for key, words in _ROAD.items():
        lines += family(
            f"murmurate_zones_{key}", "gauge", f"Zones {words} at the last release.", [({}, _number(said.get(key)))]
        )
    lines += family("murmurate_release_age_seconds", "gauge", "Since the last release; -1: none.", [({}, round(age))])
    lines += family("murmurate_zones_open", "gauge", "Zones in the public log.", [({}, facts.zone_count)])
    words = "Zones whose log nobody believes any more."
    lines += family("murmurate_zones_broken", "gauge", words, [({}, len(facts.broken))])
    return "".join([*lines, *_by_zone(facts.zones)])


def family(name: str, kind: str, words: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {words}\n# TYPE {name} {kind}\n"]
    return lines + [f"{name}{_labels(labels)} {_value(value)}\n" for labels, value in samples]


def _by_zone(zones: Iterable[ZoneFacts]) -> list[str]:
    """Families with one sample for each zone; of at most so many zones as the page shows."""
    own = sorted(zones, key=lambda zone: zone.zone)
    ends: list[Sample] = [({"zone": zone.zone}, zone.decided_end_s) for zone in own]
    behind: list[Sample] = [({"zone": zone.zone}, zone.behind) for zone in own]
    kinds: list[Sample] = [({"zone": z.zone, "kind": kind.value}, z.kinds.get(kind, 0)) for z in own for kind in _KINDS]
    epsilon: list[Sample] = [({"zone": zone.zone}, zone.epsilon_micro / 1e6) for zone in own]
    rho: list[Sample] = [({"zone": zone.zone}, zone.rho_micro / 1e6) for zone in own]
    return [
        *family("murmurate_zone_decided_interval_end_seconds", "gauge", "Until when prices are decided, UTC.", ends),
        *family("murmurate_zone_intervals_behind", "gauge", "Intervals that are due and not decided.", behind),
        *family("murmurate_zone_releases_24h", "gauge", "Prices of the last 24 hours by kind.", kinds),
        *family("murmurate_zone_epsilon_total", "counter", "Cost of a zone's releases so far, epsilon.", epsilon),
        *family("murmurate_zone_rho_total", "counter", "Cost of a zone's releases so far, rho.", rho),
    ]


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}" if labels else ""


def _escaped(text: str) -> str:
    """
    >>> print(_escaped('a "b"\\n\\\\'))
    a \\"b\\"\\n\\\\
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


def _value(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
