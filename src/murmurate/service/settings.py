"""The settings of a service: one TOML file. Nothing in it is secret, and nothing changes a promise."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from murmurate.errors import ModelError, MurmurateError
from murmurate.service.clock import ServiceClock
from murmurate.time_zones import load_time_zone

EXAMPLE_SETTINGS = """\
# A murmurate service. Connection strings come from the environment: MURMURATE_STATE and MURMURATE_LOG.

landing = "landing"          # where readings lie: murmurate landing landing/
meters = "meters.csv"        # meter, zone, bound_wh, imputed_wh; may have id and key
keys = "keys"                # what releases are signed with: murmurate keys keys/

grace_s = 60                 # how long after its end an interval waits for its readings
quorum = 0.9                 # the share of a zone's meters that must report, or the forecast is released
keep_days = 7                # readings and demand are deleted after so many days

public = "127.0.0.1:8080"    # prices for everybody
private = "127.0.0.1:8081"   # readings from head-ends, and the operator's page
url = "http://127.0.0.1:8080"  # address of the public API as clients see it

timezone = "Europe/Zurich"   # whose days devices and pages show
country = "CH"

# [mqtt]                     # readings in and notifications out, over a broker
# host = "127.0.0.1"
# port = 1883
# readings = true
# notifications = true

# [zones.harbour]            # where a zone is shown otherwise
# title = "The old harbour"
# timezone = "Europe/Lisbon"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneDisplay:
    """What an operator says about a zone beyond its plan: how it is shown, never what it costs."""

    timezone: ZoneInfo
    country: str | None = None  # ISO 3166-1, such as CH
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttBroker:
    """An MQTT broker, and what it is for. A password comes from the environment: MURMURATE_MQTT_PASSWORD."""

    host: str = "127.0.0.1"
    port: int = 1883
    user: str = ""
    tls: bool = False
    readings: bool = True
    notifications: bool = True
    url: str = ""  # where everybody reaches it; otherwise from host and port

    @property
    def uri(self) -> str:
        return self.url or f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """See EXAMPLE_SETTINGS."""

    landing: Path = Path("landing")
    meters: Path = Path("meters.csv")
    keys: Path = Path("keys")
    grace_s: int = 60
    quorum: float = 0.9
    keep_days: float = 7
    release_slot_s: float = 1.0
    public: str = "127.0.0.1:8080"
    private: str = "127.0.0.1:8081"
    url: str = ""
    timezone: str = "UTC"
    country: str = ""
    mqtt: MqttBroker | None = None
    zones: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    clock: ServiceClock = field(default_factory=ServiceClock)

    def __post_init__(self) -> None:
        if not 0 <= self.quorum <= 1:
            raise MurmurateError("quorum", self.quorum, "must be a share between 0 and 1")
        if self.grace_s < 0 or self.keep_days < 0 or self.release_slot_s <= 0:
            raise MurmurateError("grace_s, keep_days, release_slot_s", "negative", "must be at least 0")
        for name in ("public", "private"):
            _parse_address(name, getattr(self, name))
        self.display_of("")
        for zone in self.zones:
            self.display_of(zone)

    @property
    def public_address(self) -> tuple[str, int]:
        return _parse_address("public", self.public)

    @property
    def private_address(self) -> tuple[str, int]:
        return _parse_address("private", self.private)

    @property
    def base_url(self) -> str:
        return (self.url or f"http://{self.public}").rstrip("/")

    def display_of(self, zone: str) -> ZoneDisplay:
        """How a zone is shown."""
        own = self.zones.get(zone, {})
        name = own.get("timezone", self.timezone)
        try:
            timezone = load_time_zone(name)
        except ModelError:
            raise MurmurateError("timezone", name, "must be a name such as Europe/Zurich") from None
        country = own.get("country", self.country)
        return ZoneDisplay(timezone=timezone, country=country or None, title=own.get("title", ""))


_SETTING_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("landing", "meters", "keys", "public", "private", "url", "timezone", "country"), (str,)),
    **dict.fromkeys(("host", "user", "title"), (str,)),
    **dict.fromkeys(("grace_s", "port"), (int,)),
    **dict.fromkeys(("quorum", "keep_days", "release_slot_s", "simulated_s", "wall_s", "speed"), (int, float)),
    **dict.fromkeys(("tls", "readings", "notifications"), (bool,)),
    **dict.fromkeys(("mqtt", "zones", "clock"), (dict,)),
}
_TYPE_LABELS: dict[type, str] = {str: "text", dict: "a table", bool: "true or false"}
_DEFAULT_PATHS = {"landing": "landing", "meters": "meters.csv", "keys": "keys"}
_ZONE_SETTINGS = {"title", "timezone", "country"}


def load_settings(path: Path) -> ServiceSettings:
    """Settings from a TOML file. Paths in it are from its folder."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MurmurateError(str(path), "unreadable", str(error)) from None
    _check_table(document, set(ServiceSettings.__dataclass_fields__), str(path))
    for name, usual in _DEFAULT_PATHS.items():
        document[name] = path.parent / document.get(name, usual)
    for name, kind in (("mqtt", MqttBroker), ("clock", ServiceClock)):
        if name in document:
            _check_table(document[name], set(kind.__dataclass_fields__), f"[{name}] in {path}")
            document[name] = kind(**document[name])
    for zone, own in document.get("zones", {}).items():
        _check_table(own, _ZONE_SETTINGS, f"[zones.{zone}] in {path}")
    return ServiceSettings(**document)


def _check_table(table: dict[str, Any], known: set[str], where: str) -> None:
    if not isinstance(table, dict):
        raise MurmurateError(where, "no table", "must be a table")
    for name, value in table.items():
        if name not in known:
            raise MurmurateError(f"{name} in {where}", "unknown", f"must be one of {', '.join(sorted(known))}")
        if not isinstance(value, _SETTING_TYPES[name]) or (
            isinstance(value, bool) and bool not in _SETTING_TYPES[name]
        ):
            what = _TYPE_LABELS.get(_SETTING_TYPES[name][0], "a number")
            raise MurmurateError(f"{name} in {where}", repr(value), f"must be {what}")


def _parse_address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise MurmurateError(name, text, "must be an address such as 127.0.0.1:8080")
    return host.strip("[]"), int(port)
