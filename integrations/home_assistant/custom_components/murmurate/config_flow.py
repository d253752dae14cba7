"""Asks for the address of a zone."""

from __future__ import annotations

from typing import Any

import aiohttp
import voluptuous as vol
from homeassistant.config_entries import ConfigFlow, ConfigFlowResult
from homeassistant.const import CONF_URL
from homeassistant.helpers.aiohttp_client import async_get_clientsession
from yarl import URL

from .const import DOMAIN
from .coordinator import local_days
from .prices import UnknownZoneError, read_prices

_FORM = vol.Schema({vol.Required(CONF_URL): str})


class MurmurateConfigFlow(ConfigFlow, domain=DOMAIN):
    """One form with one field."""

    VERSION = 1

    async def async_step_user(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Show the form, or read the prices of the zone that was named in it."""
        errors = {}
        if user_input is not None:
            url = _page_url(user_input[CONF_URL])
            today, _, end = local_days()
            try:
                prices = await read_prices(async_get_clientsession(self.hass), url, today, end)
            except (UnknownZoneError, ValueError):  # aiohttp: an address that is none
                errors["base"] = "unknown_zone"
            except (aiohttp.ClientError, TimeoutError):
                errors["base"] = "cannot_connect"
            else:
                await self.async_set_unique_id(url)
                self._abort_if_unique_id_configured()
                return self.async_create_entry(title=prices.zone, data={CONF_URL: url})
        form = self.add_suggested_values_to_schema(_FORM, user_input)
        return self.async_show_form(step_id="user", data_schema=form, errors=errors)


def _page_url(text: str) -> str:
    """Return an address without what a browser may have put behind it, such as `?lang=de`."""
    return str(URL(text.strip()).with_query(None).with_fragment(None)).rstrip("/")
