"""Prices of zones for Home Assistant, at an MQTT broker: the price now, today and tomorrow, and how it finds them.

All of it is retained: Home Assistant has it as soon as it listens. What it shows must never be an old price. So the
price now is sent again each minute, and counts as unknown where that fails.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

from paho.mqtt.client import Client

from murmurate import __version__
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.log_reader.zone_view import MakeView, PlanTerms, ShardView, ZoneView
from murmurate.service.public_api.local_days import interval_start_end, today_and_tomorrow
from murmurate.service.public_api.notifications import publish_message, zone_topic
from murmurate.service.public_api.openadr import zone_slug
from murmurate.service.public_api.price_formats import current_price_document, prices_document

logger = logging.getLogger(__name__)

REPEAT_S = 60.0  # after which the price now is sent again
EXPIRE_S = 90  # after which Home Assistant takes it as unknown
_PERIOD_S = 0.2  # in which a new interval is noticed
_STOP_TIMEOUT_S = 5.0
_IS_CURRENT = "value_json.price is not none and as_datetime(value_json.end) > now()"


class HomeAssistantTopics:
    """Publishes in its own thread what Home Assistant reads."""

    def __init__(self, client: Client, base_url: str) -> None:
        self._client, self._base_url = client, base_url
        self._shards: dict[str, ShardView] = {}
        self._announced: dict[str, str] = {}  # by shard: the zone table whose zones were announced
        self._listed: dict[str, ShardView] = {}  # by shard: as its prices were listed
        self._told: dict[str, tuple[int, float]] = {}  # by shard: the interval whose price is now, and when it was sent
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, make_view: MakeView, plan_terms: PlanTerms, current_time: Callable[[], float]) -> None:
        """Begin to publish what `show` hands in."""
        target = (make_view, plan_terms, current_time)
        self._thread = threading.Thread(target=self._run, args=target, name="home assistant", daemon=True)
        self._thread.start()

    def show(self, shard: ShardView) -> None:
        """Have a shard published as it is now. It never waits."""
        self._shards[shard.name] = shard

    def _run(self, make_view: MakeView, plan_terms: PlanTerms, current_time: Callable[[], float]) -> None:
        while not self._stopped.wait(_PERIOD_S):
            if not self._client.is_connected():  # the broker may lose what it retains
                for done in (self._announced, self._listed, self._told):
                    done.clear()
                continue
            for shard in list(self._shards.values()):
                try:
                    self._publish_shard(shard, make_view, plan_terms, current_time())
                except ClockDifferenceError:
                    break  # it is not known which price is current
                except Exception as error:  # noqa: BLE001  a shard that fails must not end the others
                    logger.warning("notices dropped", extra={"shard": shard.name, "reason": type(error).__name__})

    def _publish_shard(self, shard: ShardView, make_view: MakeView, plan_terms: PlanTerms, now_s: float) -> None:
        interval, sent_s = self._told.get(shard.name, (-1, 0.0))
        is_new = self._announced.get(shard.name) != shard.table.digest
        has_changed = self._listed.get(shard.name) is not shard
        is_due = int(now_s // shard.interval_s) != interval or time.monotonic() - sent_s >= REPEAT_S
        if not (is_new or has_changed or is_due):
            return
        views = [make_view(shard, zone) for zone in shard.table.zones_ever]
        self._announced[shard.name], self._listed[shard.name] = shard.table.digest, shard
        self._told[shard.name] = int(now_s // shard.interval_s), time.monotonic()
        if has_changed:
            plan_terms.load(view.plan_digest for view in views)
        for view in views:
            for topic, message in self._messages(view, now_s, is_new=is_new, has_changed=has_changed):
                if not publish_message(self._client, topic, message, self._stopped, retain=True):
                    return

    def _messages(self, view: ZoneView, now_s: float, *, is_new: bool, has_changed: bool) -> Iterator[tuple[str, str]]:
        yield zone_topic(view.zone, "now"), _compact(now_document(view, now_s))
        if has_changed:
            yield zone_topic(view.zone, "prices"), _compact(known_prices(view, now_s))
        if is_new:
            message = "" if view.closed else _compact(discovery_document(view, self._base_url))
            yield discovery_topic(view.zone), message  # an empty one ends it

    def close(self) -> None:
        """Stop publishing."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)


def now_document(view: ZoneView, now_s: float) -> dict[str, object]:
    """Return the price now as `/now` has it, or with a price of null where there is none."""
    document = current_price_document(view, now_s)
    return document or {"zone": view.zone, "price": None, **interval_start_end(view, view.interval_at(now_s))}


def known_prices(view: ZoneView, now_s: float) -> dict[str, object]:
    """Return the document of `/prices`, of today and tomorrow, as far as its past is in memory."""
    shown, known = today_and_tomorrow(view, now_s), view.known_intervals
    first = max(shown.start, view.first_priced, known.start if known else view.last_decided + 1)
    stop = shown.stop if view.closed is None else min(shown.stop, view.last_decided + 1)
    return prices_document(view, range(first, max(first, stop)), now_s)


def discovery_document(view: ZoneView, base_url: str) -> dict[str, object]:
    """Return what tells Home Assistant of a sensor with the price of a zone."""
    slug, topic = zone_slug(view.zone), zone_topic(view.zone, "now")
    return {
        "name": "Electricity price",
        "unique_id": f"murmurate_{slug}",
        "state_topic": topic,
        "value_template": "{{ value_json.price }}",
        "availability_topic": topic,
        "availability_template": f"{{{{ 'online' if {_IS_CURRENT} else 'offline' }}}}",
        "expire_after": EXPIRE_S,
        "json_attributes_topic": topic,
        "unit_of_measurement": f"{view.currency}/kWh",
        "state_class": "measurement",
        "icon": "mdi:cash-clock",
        "device": {
            "identifiers": [f"murmurate_{slug}"],
            "name": view.display.title or view.zone,
            "configuration_url": f"{base_url}/zones/{quote(view.zone, safe='')}",
        },
        "origin": {"name": "murmurate", "sw_version": __version__, "support_url": base_url},
    }


def discovery_topic(zone: str) -> str:
    """Where Home Assistant looks for the sensor of a zone.

    >>> discovery_topic("fish market")
    'homeassistant/sensor/murmurate_fish_20market/config'
    """
    return f"homeassistant/sensor/murmurate_{zone_slug(zone)}/config"


def _compact(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
