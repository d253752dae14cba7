"""`bound_wh = "choose"` in a zone file: the bound with the least predicted error, from public numbers.

The forecast file of the zone knows, for some bounds, what is cut off of readings there. What it took from a sample has
noise (`prediction/private_sample.md`), so choosing by it costs no household anything. For each bound the least noise
is found and the error of the prices predicted. The number is then written into the text of the zone file. All that
follows, a plan and its proof, is as if the operator had stated it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from murmurate.errors import ZoneFileError
from murmurate.planning.noise_search import PlanProgress, noise_candidates
from murmurate.planning.plan_prediction import find_sensed_kind, make_zone_prediction
from murmurate.planning.privacy_cost import NoiseSchedule, mean_variance
from murmurate.planning.zone import Zone
from murmurate.planning.zone_file import CHOOSE
from murmurate.toml_reader import TomlReader

ReadZone = Callable[[str], Zone]
_KEY = "bound_wh"
_ANY_BOUND_WH = 1  # to read what the rest of the file says
_LINE = re.compile(r"""^(\s*bound_wh\s*=\s*)(["'])choose\2""")
_MAKE_FORECAST = "murmurate forecast --sample readings.csv --epsilon 1 makes one from households that agreed"


class TriedBound(NamedTuple):
    """A bound, the noise that it needs, and the error that is predicted with it."""

    bound_wh: int
    noise_sd_wh: float
    predicted_error: float  # rms of the demand that is priced, relative to the mean use


def try_bounds(
    bounds_wh: Iterable[int], try_bound: Callable[[int], TriedBound], *, stop_at: float = float("inf")
) -> tuple[TriedBound, ...]:
    """Try rising bounds. Stop after one whose error is more than `stop_at` times the least so far."""
    tried: list[TriedBound] = []
    for bound_wh in bounds_wh:
        tried.append(try_bound(bound_wh))
        if tried[-1].predicted_error > stop_at * find_least_error(tried).predicted_error:
            break
    return tuple(tried)


def find_least_error(tried: Sequence[TriedBound]) -> TriedBound:
    """Return the bound with the least error; of equals the highest, which cuts off least.

    >>> find_least_error([TriedBound(300, 9e3, 0.05), TriedBound(500, 15e3, 0.04), TriedBound(700, 21e3, 0.06)])
    TriedBound(bound_wh=500, noise_sd_wh=15000.0, predicted_error=0.04)
    """
    return min(tried, key=lambda each: (each.predicted_error, -each.bound_wh))


class BoundChoice(NamedTuple):
    """The bounds that were tried for a kind of household, and the zone file with the one that was chosen."""

    zone_text: str
    kind: str
    tried: tuple[TriedBound, ...]  # rising bounds
    chosen: TriedBound


def choose_bound(text: str, read_zone: ReadZone, progress: PlanProgress = lambda _: None) -> BoundChoice | None:
    """Return the zone file with a number in place of `bound_wh = "choose"`; None if it has no such place.

    `read_zone` reads the text of a zone file. Raises ZoneFileError, with a remedy, if there is nothing to choose by.
    """
    reader = TomlReader(text)
    number = _find_place(reader)
    if number is None:
        return None
    line, lines = reader.line_number(("households", number), _KEY), text.splitlines(keepends=True)

    def with_bound(bound_wh: int) -> str:
        written, count = _LINE.subn(rf"\g<1>{bound_wh}", lines[line - 1])
        if count != 1:
            raise ZoneFileError(line, _KEY, repr(CHOOSE), 'must stand alone on its line: bound_wh = "choose"')
        return "".join([*lines[: line - 1], written, *lines[line:]])

    zone = read_zone(with_bound(_ANY_BOUND_WH))
    sensed, predicted = find_sensed_kind(zone), zone.predicted
    if sensed is not zone.kinds[number]:
        allowed = f"can be chosen for {sensed.name!r} alone, the kind of most households: state a number"
        raise ZoneFileError(line, _KEY, repr(CHOOSE), allowed)
    if predicted is None or len(predicted.forecast.above) < 2:
        allowed = f"needs a forecast that knows single readings ({_MAKE_FORECAST}); or state a number"
        raise ZoneFileError(line, _KEY, repr(CHOOSE), allowed)
    # All promises depend on the noise as a multiple of the range. So where one kind has secrets, one search serves all
    # bounds. Nothing rests on that: the plan searches and proves the noise of the chosen bound itself.
    one_search = zone.private_kinds == (sensed,)
    searched: dict[int, NoiseSchedule] = {}  # by bound

    def try_bound(bound_wh: int) -> TriedBound:
        progress(f"a bound of {bound_wh:,} Wh")
        tried_zone = read_zone(with_bound(bound_wh))
        if not searched or not one_search:
            searched[bound_wh] = min(noise_candidates(tried_zone, progress), key=mean_variance)
        reference_wh, noise = next(reversed(searched.items()))
        if reference_wh != bound_wh:
            noise = noise.scaled_by((bound_wh + sensed.export_bound_wh) / (reference_wh + sensed.export_bound_wh))
        error = make_zone_prediction(tried_zone, predicted, noise).predicted_error
        return TriedBound(bound_wh, float(np.sqrt(mean_variance(noise))), error)

    tried = try_bounds((each.bound_wh for each in predicted.forecast.above), try_bound)
    chosen = find_least_error(tried)
    return BoundChoice(with_bound(chosen.bound_wh), zone.kinds[number].name, tried, chosen)


def _find_place(reader: TomlReader) -> int | None:
    """Return the number of the kind of household whose bound is to be chosen, if the file asks for it and allows it."""
    tables = reader.document.get("households", [])
    wanted = [n for n, table in enumerate(tables) if isinstance(table, dict) and table.get(_KEY) == CHOOSE]
    if not wanted:
        return None
    line, forecast = reader.line_number(("households", wanted[-1]), _KEY), reader.document.get("forecast", {})
    if len(wanted) > 1:
        allowed = "can be chosen for the kind of most households alone"
        raise ZoneFileError(line, _KEY, f"{CHOOSE!r} twice", allowed)
    if "meters" in tables[wanted[0]]:
        allowed = "cannot be chosen with meters, whose table has bounds: give count, and put the chosen bound there"
        raise ZoneFileError(line, _KEY, repr(CHOOSE), allowed)
    if not isinstance(forecast, dict) or "file" not in forecast:
        allowed = f"needs a forecast file of a sample in [forecast] ({_MAKE_FORECAST}); or state a number"
        raise ZoneFileError(line, _KEY, repr(CHOOSE), allowed)
    return wanted[0]
