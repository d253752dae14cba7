"""The price of a zone now, with all that is known of today and tomorrow as attributes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from homeassistant.components.sensor import SensorEntity, SensorStateClass
from homeassistant.const import CONF_URL, UnitOfEnergy
from homeassistant.core import HomeAssistant, callback
from homeassistant.helpers.device_registry import DeviceEntryType, DeviceInfo
from homeassistant.helpers.entity_platform import AddConfigEntryEntitiesCallback
from homeassistant.helpers.event import async_track_utc_time_change
from homeassistant.helpers.update_coordinator import CoordinatorEntity
from homeassistant.util import dt as dt_util

from .const import DOMAIN
from .coordinator import MurmurateEntry, PriceCoordinator, local_days
from .prices import Slot


async def async_setup_entry(
    _hass: HomeAssistant, entry: MurmurateEntry, async_add_entities: AddConfigEntryEntitiesCallback
) -> None:
    """Add the sensor of a zone."""
    async_add_entities([PriceSensor(entry.runtime_data)])


class PriceSensor(CoordinatorEntity[PriceCoordinator], SensorEntity):
    """The final price of the current interval.

    A final price never changes: the sensor shows those that it has read also while the service is away, and is
    unavailable after the last one of them. It never shows an old price, nor one that is only expected.
    """

    _attr_has_entity_name = True
    _attr_translation_key = "price"
    _attr_state_class = SensorStateClass.MEASUREMENT
    _attr_suggested_display_precision = 4
    _unrecorded_attributes = frozenset({"raw_today", "raw_tomorrow", "today", "tomorrow"})

    def __init__(self, coordinator: PriceCoordinator) -> None:
        super().__init__(coordinator)
        entry = coordinator.config_entry
        self._attr_unique_id = entry.entry_id
        self._attr_native_unit_of_measurement = f"{coordinator.data.currency}/{UnitOfEnergy.KILO_WATT_HOUR}"
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, entry.entry_id)},
            name=entry.title,
            entry_type=DeviceEntryType.SERVICE,
            configuration_url=entry.data[CONF_URL],
        )

    async def async_added_to_hass(self) -> None:
        """Show the next price when its interval begins, not when prices are read again."""
        await super().async_added_to_hass()
        self.async_on_remove(async_track_utc_time_change(self.hass, self._show_now, second=0))

    @callback
    def _show_now(self, _: datetime) -> None:
        self.async_write_ha_state()

    @property
    def _slot(self) -> Slot | None:
        return self.coordinator.data.final_slot(dt_util.utcnow())

    @property
    def available(self) -> bool:
        """Whether the current interval has a final price."""
        return self._slot is not None

    @property
    def native_value(self) -> float | None:
        """The price now."""
        return None if self._slot is None else self._slot.value

    @property
    def extra_state_attributes(self) -> dict[str, Any]:
        """Today and tomorrow as integrations read them that plan by the prices of Nord Pool.

        The lists `raw_...` leave out an interval without a price. In `today` and `tomorrow` it is None: places count.
        """
        prices, (first, second, end) = self.coordinator.data, local_days()
        today, tomorrow = prices.day(first, second), prices.day(second, end)
        return {
            "raw_today": _raw(today),
            "raw_tomorrow": _raw(tomorrow),
            "today": [slot.value for slot in today],
            "tomorrow": [slot.value for slot in tomorrow],
            "tomorrow_valid": all(slot.value is not None for slot in tomorrow),
            "currency": prices.currency,
            "unit": "kWh",
            "final_until": max((slot.end for slot in prices.slots if slot.is_final), default=None),
        }


def _raw(slots: list[Slot]) -> list[dict[str, Any]]:
    return [
        {
            "start": dt_util.as_local(slot.start),
            "end": dt_util.as_local(slot.end),
            "value": slot.value,
            "is_final": slot.is_final,
        }
        for slot in slots
        if slot.value is not None
    ]
