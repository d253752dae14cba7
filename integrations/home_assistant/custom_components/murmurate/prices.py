"""The prices of a zone as a service has them, and how they are read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import aiohttp

TIMEOUT_S = 20


class UnknownZoneError(Exception):
    """The address is not that of a zone."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An interval and its price. A final one never changes; None: it has no price."""

    start: datetime
    end: datetime
    value: float | None
    is_final: bool


@dataclass(frozen=True, slots=True)
class Prices:
    """What is known of a zone."""

    zone: str
    currency: str
    interval: timedelta
    slots: tuple[Slot, ...]  # one after the other, without a gap

    def final_slot(self, when: datetime) -> Slot | None:
        """Return the slot of a moment if it has a final price."""
        return next((s for s in self.slots if s.start <= when < s.end and s.is_final and s.value is not None), None)

    def day(self, start: datetime, end: datetime) -> list[Slot]:
        """Return one slot for each interval that begins between two times, without a price where none is known."""
        known = {slot.start: slot for slot in self.slots}
        count = -(-(end - start) // self.interval)
        starts = (start + n * self.interval for n in range(count))
        return [known.get(begin) or Slot(begin, begin + self.interval, None, is_final=False) for begin in starts]


async def read_prices(session: aiohttp.ClientSession, url: str, start: datetime, end: datetime) -> Prices:
    """Return the prices of a zone between two times, past and expected ones. `url` is the address of its page.

    Raises UnknownZoneError, aiohttp.ClientError or TimeoutError.
    """
    params = {"from": start.isoformat(), "to": end.isoformat()}
    async with asyncio.timeout(TIMEOUT_S), session.get(f"{url}/prices", params=params) as response:
        if response.status == 404:
            raise UnknownZoneError
        response.raise_for_status()
        try:
            document = await response.json()
            slots = tuple(
                Slot(
                    datetime.fromisoformat(row["start"]),
                    datetime.fromisoformat(row["end"]),
                    row["value"],
                    row["status"] == "final",
                )
                for row in document["prices"]
            )
            interval = timedelta(seconds=document["interval_s"])
            return Prices(document["zone"], document["currency"], interval, slots)
        except (KeyError, TypeError, ValueError, aiohttp.ContentTypeError) as error:
            raise UnknownZoneError from error  # something else answers there
