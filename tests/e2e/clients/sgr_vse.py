"""SmartGridready's communication handler reads Swiss tariffs: `sgr_vse.py ZONE_URL START END`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from sgr_commhandler.device_builder import DeviceBuilder


async def read(zone_url: str, start: str, end: str) -> list[dict[str, object]]:
    description = Path(__file__).with_name("vse.xml")
    device = DeviceBuilder().eid_path(str(description)).properties({"zone_uri": zone_url}).build()
    await device.connect_async()
    try:
        point = device.get_data_point(("DynamicTariff", "Prices"))
        return await point.get_value_async({"start_timestamp": start, "end_timestamp": end})
    finally:
        await device.disconnect_async()


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"prices": asyncio.run(read(*sys.argv[1:4]))}))
