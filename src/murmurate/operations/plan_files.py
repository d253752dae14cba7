"""Files around a plan that a person names: `plan.json`, a zone's forecast and meters, names of zones.

Errors name the file, what it is instead, and the remedy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from murmurate.errors import ModelError, PrivacyError, UnknownNameError
from murmurate.extras import require_extra
from murmurate.files import read_text
from murmurate.operations.console import stderr
from murmurate.planning.household_bounds import MeterSummary, summarize_meters
from murmurate.planning.plan import Plan, load_plan
from murmurate.prediction.public_forecast import PublicForecast

_PLAN_FORMAT = 1
_REMEDY = "must be a whole plan.json: murmurate plan zone.toml --out plan.json writes one"


def read_plan_document(path: Path) -> str:
    """Return the text of a plan. Raises PrivacyError if it is cut off, something else or of another version."""
    text = read_text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f"no JSON from line {error.lineno} on" if isinstance(error, json.JSONDecodeError) else "no JSON"
        raise PrivacyError(str(path), place if text.strip() else "empty", _REMEDY) from None
    if not isinstance(document, dict) or "murmurate_plan" not in document:
        raise PrivacyError(str(path), "no plan", _REMEDY)
    if document["murmurate_plan"] != _PLAN_FORMAT:
        allowed = (
            f"must be of format {_PLAN_FORMAT}: make it again with murmurate plan, or install the version it is from"
        )
        raise PrivacyError(str(path), f"a plan of format {document['murmurate_plan']}", allowed)
    return text


def load_plan_file(path: Path) -> Plan:
    """Return the plan of a file, proven again."""
    text = read_plan_document(path)
    with name_plan(str(path)):
        return load_plan(text)


@contextmanager
def name_plan(name: str) -> Iterator[None]:
    """Add the name of a plan to what is wrong with it. A spinner on standard error says that it is proven."""
    try:
        with stderr.status(f"proving {name}"):
            yield
    except PrivacyError as error:
        raise PrivacyError(f"{name}: {error.field}", error.value, error.allowed) from None


def read_zone_names(zones_file: Path) -> list[str]:
    """Read the names of zones, one a line. Empty lines are skipped."""
    names = [line.strip() for line in read_text(zones_file).splitlines() if line.strip()]
    if not names or len(set(names)) != len(names):
        repeated = next((name for name, count in Counter(names).items() if count > 1), None)
        raise UnknownNameError(str(zones_file), repeated or "empty", "must have the name of each zone once, one a line")
    return names


def read_forecast_file(path: Path) -> PublicForecast:
    """Return the forecast in a file that `murmurate forecast` wrote."""
    try:
        return PublicForecast.from_json(read_text(path))
    except FileNotFoundError:
        allowed = "must be in the folder of the zone file: murmurate forecast writes one"
        raise ModelError("file", path.name, allowed) from None


def read_meter_summary(path: Path, zone: str, kind: str) -> MeterSummary:
    """Return the households of a zone and kind, and their largest bounds, from a meter table.

    It has a column `bound_wh`, and may have `export_bound_wh`, which is 0 without it. Where there is a column `zone`,
    only meters of that zone count; where there is a column `kind`, only those of that kind. Meters with the same text
    in a column `household` are one household. Without that column each meter is a household. See `summarize_meters`.
    """
    require_extra("service", "pyarrow")
    from murmurate.readings.meter_file import read_table  # noqa: PLC0415 - a zone without a meter table needs no Arrow

    table = read_table(path, required=("bound_wh",), optional=("export_bound_wh", "zone", "kind", "household"))
    columns = {
        name: ["" if value is None else str(value) for value in table[name].to_pylist()]
        for name in table.column_names
        if name in {"zone", "kind", "household"}
    }
    bound_wh = table["bound_wh"].to_numpy()
    has_exports = "export_bound_wh" in table.column_names
    return summarize_meters(
        bound_wh,
        table["export_bound_wh"].to_numpy() if has_exports else np.zeros_like(bound_wh),
        zone_of=columns.get("zone", [zone] * len(table)),
        kind_of=columns.get("kind", [""] * len(table)),
        household_of=columns.get("household", [str(number) for number in range(len(table))]),
        zone=zone,
        kind=kind,
    )
