"""Write the same readings as files of many dialects, and read back what an import wrote."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.commands.import_readings import import_readings
from murmurate.readings.file_import import ImportOptions
from murmurate.time_zones import load_time_zone
from tests.support.green_button_feeds import DELTA, Meter, entries, feed

ZURICH = "Europe/Zurich"
HALF_HOUR_S = 1800
Readings = dict[tuple[str, int], int]  # by meter and begin [s of UTC]: energy [Wh]


def local(start_s: int, zone: str = ZURICH) -> datetime:
    return datetime.fromtimestamp(start_s, load_time_zone(zone))


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def number(wh: int, unit: str, mark: str) -> str:
    """A reading as text. Zeros at the end are left as files have them."""
    text = f"{wh / 1000:.3f}" if unit == "kWh" else f"{wh}.0"
    return text.replace(".", mark)


def to_text(rows: Iterable[Sequence[object]], delimiter: str = ",", encoding: str = "utf-8") -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\r\n").writerows(rows)
    return out.getvalue().encode(encoding)


def time_rows(readings: Readings, *, unit: str = "kWh", mark: str = ".", time: str = "local") -> Iterator[list[str]]:
    """A row a reading, in the order of meter and time."""
    forms: dict[str, Callable[[int], str]] = {
        "local": lambda s: f"{local(s):%d.%m.%Y %H:%M}",
        "iso": lambda s: f"{local(s):%Y-%m-%d %H:%M:%S}",
        "offset": lambda s: local(s).isoformat(),
        "zulu": lambda s: f"{datetime.fromtimestamp(s, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "unix": str,
    }
    yield ["meter_id", "timestamp", f"energy_{unit}"]
    for (meter, start_s), wh in sorted(readings.items()):
        yield [meter, forms[time](start_s), number(wh, unit, mark)]


def day_rows(
    readings: Readings, *, by_clock: bool, unit: str = "kWh", mark: str = ".", length_s: int = HALF_HOUR_S
) -> Iterator[list[str]]:
    """A row a day: 50 numbered columns, or columns by the clock and two for the hour that occurs twice."""
    slots = 86_400 // length_s
    hour = 3600 // length_s
    clock = [f"{n * length_s // 3600:02}:{n * length_s % 3600 // 60:02}" for n in range(slots)]
    again = [f"{name} (2)" for name in clock[2 * hour : 3 * hour]]
    names = clock + again if by_clock else [f"HH{n + 1}" for n in range(slots + hour)]
    yield ["meter", "date", *(f"{name} {unit}" for name in names)]
    days: dict[tuple[str, date], dict[str, str]] = defaultdict(dict)
    for (meter, start_s), wh in sorted(readings.items()):
        at = local(start_s)
        midnight = at.replace(hour=0, minute=0, fold=0)
        since = (start_s - int(midnight.timestamp())) // length_s
        name = f"{at:%H:%M}" + (" (2)" if at.fold else "") if by_clock else f"HH{since + 1}"
        days[meter, at.date()][name] = number(wh, unit, mark)
    for (meter, day), cells in days.items():
        yield [meter, f"{day:%d/%m/%Y}", *(cells.get(name, "") for name in names)]


def write_parquet(path: Path, readings: Readings) -> None:
    keys = sorted(readings)
    columns = {
        "household": pa.array([meter for meter, _ in keys]),
        "timestamp": pa.array([1000 * start for _, start in keys], pa.timestamp("ms", "America/New_York")),
        "kwh": pa.array([readings[key] / 1000 for key in keys]),
    }
    pq.write_table(pa.table(columns), path)


def green_button(readings: Readings, length_s: int = HALF_HOUR_S) -> bytes:
    meters = defaultdict(list)
    for (meter, start_s), wh in sorted(readings.items()):
        meters[meter].append((start_s, length_s, wh))
    return feed(entries([Meter(name, rows) for name, rows in meters.items()], {"07": DELTA}))


def run_import(
    folder: Path, *contents: bytes, time_zone: str = ZURICH, minutes: int = 30, **options: Any
) -> tuple[Readings, Any]:
    """Import files with these contents; return the readings and the summary."""
    paths = [folder / f"file-{n}.csv" for n in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return import_paths(paths, folder, time_zone=time_zone, minutes=minutes, **options)


def import_paths(
    paths: list[Path], folder: Path, *, time_zone: str = ZURICH, minutes: int = 30, **options: Any
) -> tuple[Readings, Any]:
    chosen = ImportOptions(folder / "out", "town", 1000, 60 * minutes, time_zone, **options)
    summary = import_readings(paths, chosen)
    return read_back(folder / "out" / "readings.parquet"), summary


def read_back(path: Path) -> Readings:
    table = pq.read_table(path)
    starts = [int(at.timestamp()) for at in table["interval_start"].to_pylist()]
    return dict(
        zip(zip(table["meter_id"].to_pylist(), starts, strict=True), table["energy_wh"].to_pylist(), strict=True)
    )


def half_hours(first: str, last: str, meters: Sequence[str] = ("A", "B"), step_s: int = HALF_HOUR_S) -> Readings:
    """Different readings of each half hour between two times of UTC."""
    starts = range(utc(first), utc(last), step_s)
    return {(meter, at): 100 * n + (at // step_s) % 97 for n, meter in enumerate(meters, 1) for at in starts}


def is_without_gaps(readings: Readings, step_s: int) -> bool:
    starts = sorted({start for _, start in readings})
    return all(later - start == step_s for start, later in pairwise(starts))


def write_imported(
    path: Path,
    energy_wh: np.ndarray,
    *,
    start_s: int,
    interval_s: int,
    time_zone: str = "UTC",
    occupied: np.ndarray | None = None,
    **texts: Any,
) -> Path:
    """Write readings [interval, meter] as an import does; NaN: none. `texts` are columns of each meter."""
    intervals, meters = energy_wh.shape
    keep = ~np.isnan(energy_wh.ravel())
    start_ms = np.repeat(1000 * (start_s + interval_s * np.arange(intervals)), meters)[keep]
    texts = {"meter_id": [f"m{n}" for n in range(meters)], "zone": ["town"] * meters, "kind": ["home"] * meters} | texts
    columns = {
        "timestamp": pa.array(start_ms, pa.timestamp("ms", time_zone)),
        "interval_start": pa.array(start_ms, pa.timestamp("ms", "UTC")),
        "energy_wh": pa.array(energy_wh.ravel()[keep].astype(np.int64)),
    }
    for name, values in texts.items():
        kind = pa.int64() if isinstance(values[0], int) else pa.string()
        columns[name] = pa.array(values, kind).take(pa.array(np.tile(np.arange(meters), intervals)[keep]))
    if occupied is not None:
        columns["occupied"] = pa.array(occupied.ravel().astype(bool)[keep])
    pq.write_table(pa.table(columns), path)
    return path
