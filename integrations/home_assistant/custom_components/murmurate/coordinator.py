"""Reads the prices of a zone again and again."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import aiohttp
from homeassistant.config_entries import ConfigEntry
from homeassistant.const import CONF_URL
from homeassistant.core import HomeAssistant
from homeassistant.helpers.aiohttp_client import async_get_clientsession
from homeassistant.helpers.update_coordinator import DataUpdateCoordinator, UpdateFailed
from homeassistant.util import dt as dt_util

from .const import DOMAIN
from .prices import Prices, UnknownZoneError, read_prices

type MurmurateEntry = ConfigEntry[PriceCoordinator]

SHORTEST, LONGEST = timedelta(minutes=1), timedelta(minutes=5)  # between two reads


def local_days() -> tuple[datetime, datetime, datetime]:
    """Return when today, tomorrow and the day after it begin, in UTC: a day may have 23 or 25 hours."""
    today = dt_util.start_of_local_day()
    tomorrow = dt_util.start_of_local_day(today + timedelta(hours=36))
    after = dt_util.start_of_local_day(tomorrow + timedelta(hours=36))
    return dt_util.as_utc(today), dt_util.as_utc(tomorrow), dt_util.as_utc(after)


class PriceCoordinator(DataUpdateCoordinator[Prices]):
    """The prices of a zone, today and tomorrow. A price is final before its interval begins, so minutes do."""

    config_entry: MurmurateEntry

    def __init__(self, hass: HomeAssistant, entry: MurmurateEntry) -> None:
        super().__init__(
            hass, logging.getLogger(__package__), config_entry=entry, name=DOMAIN, update_interval=SHORTEST
        )

    async def _async_update_data(self) -> Prices:
        session, (today, _, end) = async_get_clientsession(self.hass), local_days()
        try:
            prices = await read_prices(session, self.config_entry.data[CONF_URL], today, end)
        except UnknownZoneError as error:
            raise UpdateFailed("the service has no such zone") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UpdateFailed(f"the service does not answer: {error}") from error
        self.update_interval = min(max(prices.interval / 3, SHORTEST), LONGEST)
        return prices
