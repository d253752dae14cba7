"""Which meter table the next interval is closed under: the newest one that can be trusted.

A table that cannot be read, or that is still being written, must not decide an interval. So the one before stays in
force while the newest is unreadable; and a table that loses many of a zone's meters is used when it is still the same
one an interval later.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from murmurate.errors import MeterError, MurmurateError
from murmurate.service.landing.interval_manifest import CLOSED_FOLDER, IntervalManifest
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import (
    MeterTable,
    count_zone_meters,
    is_complete,
    is_version,
    load_table,
    pin_table,
)

logger = logging.getLogger(__name__)

MAX_METERS_LOST = 0.01  # share of a zone's meters; a table that loses more was perhaps not written to its end
MAX_MANIFESTS_SEARCHED = 100  # of the newest intervals, for the table that was in force before a restart

UNREADABLE = "unreadable"
LOSES_METERS = "loses meters"


class TableInForce:
    """Chooses the table of an interval, and remembers why the newest one is not in force."""

    def __init__(self, landing: Landing, source: Path) -> None:
        self._landing = landing
        self._source = source
        self._current: MeterTable | None = None
        self._first_look: tuple[str, int] | None = None  # version that loses meters, and when
        self.problem: tuple[str, str] | None = None  # cause and reason; None while the newest table is in force

    def choose(self, look: int) -> MeterTable:
        """Return the table in force. `look` is a number that grows with each interval: two looks, two intervals.

        Raises what is wrong with the newest table if there was none before.
        """
        self._current = self._current or self._find_last()
        current = (
            self._current
            if self._current is not None and is_complete(self._landing.store, self._current.version)
            else None
        )
        try:
            newest = pin_table(self._landing, self._source)
        except Exception as error:
            reason = str(error) if isinstance(error, MurmurateError) else type(error).__name__
            if isinstance(error, FileNotFoundError):
                reason = f"{self._source.name} is not there; put it back, with the columns meter, zone, bound_wh"
            if current is None:
                self.problem = UNREADABLE, reason
                raise
            return self._keep(current, UNREADABLE, reason)
        if current is not None and newest.version != current.version and (lost := self._losses(current, newest, look)):
            return self._keep(current, LOSES_METERS, lost)
        if self.problem is not None:
            logger.info("meter table in force", extra={"version": newest.version[:12], "meters": newest.meters})
        self._current, self._first_look, self.problem = newest, None, None
        return newest

    def _keep(self, current: MeterTable, cause: str, reason: str) -> MeterTable:
        if self.problem != (cause, reason):
            logger.warning("meter table not in force", extra={"cause": cause, "reason": reason})
        self._current, self.problem = current, (cause, reason)
        return current

    def _losses(self, current: MeterTable, newest: MeterTable, look: int) -> str:
        """Return which zones lose meters; empty if none does, or if the same table was seen at an earlier look."""
        if self._first_look is not None and self._first_look[0] == newest.version and look > self._first_look[1]:
            return ""
        try:
            losses = describe_losses(count_zone_meters(current), count_zone_meters(newest))
        except MeterError:
            losses = ""
        reason = losses and f"has {losses}: it is in force at the next deadline if it is still the same then"
        if reason and (self._first_look is None or self._first_look[0] != newest.version):
            self._first_look = newest.version, look
        return reason

    def _find_last(self) -> MeterTable | None:
        """The table that the newest interval was closed under, as after a restart."""
        store = self._landing.store
        names = sorted((found.name for found in store.list_objects(CLOSED_FOLDER)), reverse=True)
        manifests = [name for name in names if name.endswith((".json", ".purged"))]
        for name in manifests[:MAX_MANIFESTS_SEARCHED]:
            try:
                version = IntervalManifest.read(store, name).table_version
                if is_version(version) and is_complete(store, version):
                    return load_table(store, version)
            except (MurmurateError, OSError, TypeError):
                continue
        return None


def describe_losses(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Name the zones that lose more than `MAX_METERS_LOST` of their meters, from the number of each; empty if none.

    >>> describe_losses({"hill": 100, "quay": 50}, {"hill": 60, "quay": 50})
    '60 of 100 meters of hill'
    """
    lost = [zone for zone, count in before.items() if after.get(zone, 0) < (1 - MAX_METERS_LOST) * count]
    if not lost:
        return ""
    zone = lost[0]
    more = f", and {len(lost) - 1:,} zones more" if len(lost) > 1 else ""
    return f"{after.get(zone, 0):,} of {before[zone]:,} meters of {zone}{more}"
