"""Electricity prices of a zone, from a murmurate service."""

from __future__ import annotations

from homeassistant.const import Platform
from homeassistant.core import HomeAssistant

from .coordinator import MurmurateEntry, PriceCoordinator

PLATFORMS = [Platform.SENSOR]


async def async_setup_entry(hass: HomeAssistant, entry: MurmurateEntry) -> bool:
    """Set up the sensor of a zone. Home Assistant tries again later where the service does not answer."""
    entry.runtime_data = PriceCoordinator(hass, entry)
    await entry.runtime_data.async_config_entry_first_refresh()
    await hass.config_entries.async_forward_entry_setups(entry, PLATFORMS)
    return True


async def async_unload_entry(hass: HomeAssistant, entry: MurmurateEntry) -> bool:
    """End the sensor of a zone."""
    return await hass.config_entries.async_unload_platforms(entry, PLATFORMS)
