"""The settings of a service: one TOML file. Nothing in it is secret, and nothing changes a promise."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from murmurate.errors import ModelError, MurmurateError, ZoneFileError
from murmurate.extras import require_extra
from murmurate.files import read_text
from murmurate.service.clock import ServiceClock
from murmurate.time_zones import load_time_zone
from murmurate.toml_reader import parse_toml
from murmurate.units import SECONDS_PER_DAY

EXAMPLE_SETTINGS = """\
# A murmurate service. Connection strings come from the environment: MURMURATE_STATE and MURMURATE_LOG, or files that
# MURMURATE_STATE_FILE and MURMURATE_LOG_FILE name. MURMURATE_LOG may be s3://bucket/log: docs/how-to/object-store.md.

landing = "landing"          # where readings lie: murmurate init. A folder, or s3://bucket/readings
meters = "meters.csv"        # meter, zone, bound_wh; may have id and key. "": no zone reads meters
keys = "keys"                # what releases are signed with: murmurate init

grace_s = 60                 # how long after its end an interval waits for its readings
quorum = 0.9                 # the share of a zone's meters that must report, or the fallback price is released
keep_days = 7                # readings and demand are deleted after this many days

public = "127.0.0.1:8080"    # prices for everybody
private = "127.0.0.1:8081"   # readings from head-ends, and the operator's page
url = "http://127.0.0.1:8080"  # address of the public API as clients see it

# static_files = "static"    # tiles, documents and complete days also as files, for a web server or a CDN
# backups = "backups"        # where state*.dump and log*.dump lie: an alert says when the newest is too old
# archive = "archive"        # where murmurate log archive has put old tiles: the public process answers from it

timezone = "Europe/Zurich"   # whose days devices and pages show
country = "CH"

# [aggregation]
# engine = "process"         # where readings are summed: in the worker, or a Spark master such as spark://host:7077

# [limits]                   # of each port, at once; streams: of the public one
# connections = 10000        # never more than the system's limit of open files, less 64
# connections_per_address = 100
# streams = 5000             # server-sent events
# streams_per_address = 50
# trusted = ["127.0.0.1", "::1"]  # not counted and not paced
# forwarded_by = ["127.0.0.1"]    # proxies that set X-Forwarded-For: its last address is the client

# [metrics]                  # for a Prometheus elsewhere, without a login: inside your own network
# private = "192.0.2.7:9464"
# worker = "192.0.2.7:9465"
# public = "192.0.2.7:9466"

# [mqtt]                     # readings in and notifications out, over a broker
# host = "127.0.0.1"
# port = 1883
# protocol = "5"             # or "3.1.1", for a broker that does not speak MQTT 5
# readings = true
# group = "murmurate"        # services with the same group share the readings: each message goes to one of them
# notifications = true
# openadr_events = true      # among them OpenADR's, which hold whole events: 17 kB a zone and interval
# home_assistant = false     # and what Home Assistant finds by itself: 18 kB a zone and interval, 300 bytes a minute

# [kafka]                    # readings in, as a member of a consumer group; needs the extra kafka
# servers = ["127.0.0.1:9092"]
# topics = ["readings"]      # JSON lines or Parquet in each message
# group = "murmurate"        # services with the same group share the partitions
# tls = false
# user = "murmurate"         # with SASL; its password is in MURMURATE_KAFKA_PASSWORD
# mechanism = "SCRAM-SHA-512"  # or "SCRAM-SHA-256", "PLAIN"

# [operator_login]           # operators whom a proxy has authenticated, such as oauth2-proxy
# header = "X-Forwarded-Email"  # in which it names the user
# proxies = ["127.0.0.2"]    # addresses that alone may send it
# users = ["anna@grid.example"]  # who may see the operator's page

# [zones.harbour]            # where a zone is shown otherwise
# title = "The old harbour"
# timezone = "Europe/Lisbon"
"""


PROCESSES = ("private", "worker", "public")
MQTT_5, MQTT_3 = "5", "3.1.1"
PROCESS = "process"
_SPARK_MASTER = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|spark://[^/\s]+:\d+|k8s://\S+|yarn")
SASL_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
LOCAL_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneDisplay:
    """What an operator says about a zone beyond its plan: how it is shown, never what it costs."""

    timezone: ZoneInfo
    country: str | None = None  # ISO 3166-1, such as CH
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttBroker:
    """An MQTT broker, and what it is for. Its password is in the environment: MURMURATE_MQTT_PASSWORD, or .._FILE."""

    host: str = "127.0.0.1"
    port: int = 1883
    user: str = ""
    tls: bool = False
    protocol: str = MQTT_5
    readings: bool = True
    group: str | None = None  # of a shared subscription to readings; None: this service takes all of them
    notifications: bool = True
    openadr_events: bool = True  # among the notifications
    home_assistant: bool = False  # also among them
    url: str = ""  # where everybody reaches it; otherwise from host and port

    def __post_init__(self) -> None:
        if self.protocol not in {MQTT_5, MQTT_3}:
            raise MurmurateError("protocol in [mqtt]", self.protocol, f"must be {MQTT_5} or {MQTT_3}")
        if self.group is not None and not re.fullmatch(r"[A-Za-z0-9._-]+", self.group):
            allowed = "must be letters, digits, '.', '_' and '-', such as murmurate; leave it out to share nothing"
            raise MurmurateError("group in [mqtt]", self.group, allowed)
        if self.group is not None and self.protocol != MQTT_5:
            allowed = f"must be left out, or protocol must be {MQTT_5}: sessions of {self.protocol} do not expire"
            raise MurmurateError("group in [mqtt]", self.group, allowed)
        if self.home_assistant and not self.notifications:
            raise MurmurateError("home_assistant in [mqtt]", "true", "must be false where notifications are false")

    @property
    def tells_openadr_events(self) -> bool:
        return self.notifications and self.openadr_events

    @property
    def uri(self) -> str:
        return self.url or f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCluster:
    """Topics of readings. The password of `user` is in the environment: MURMURATE_KAFKA_PASSWORD, or .._FILE."""

    servers: Sequence[str] = ()
    topics: Sequence[str] = ()
    group: str = "murmurate"
    tls: bool = False
    user: str = ""
    mechanism: str = "SCRAM-SHA-512"

    def __post_init__(self) -> None:
        for name, example in (("servers", "127.0.0.1:9092"), ("topics", "readings")):
            texts = getattr(self, name)
            if not texts or not all(isinstance(text, str) and text.strip() and "," not in text for text in texts):
                raise MurmurateError(f"{name} in [kafka]", list(texts), f'must be a list such as ["{example}"]')
        for server in self.servers:
            _parse_address("servers in [kafka]", server)
        if not self.group.strip():
            raise MurmurateError("group in [kafka]", "empty", "must be a name, such as murmurate")
        if self.mechanism not in SASL_MECHANISMS:
            raise MurmurateError("mechanism in [kafka]", self.mechanism, f"must be one of {', '.join(SASL_MECHANISMS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """How much clients of a port may hold at once. An address may be one home, a company or a proxy."""

    connections: int = 10_000
    connections_per_address: int = 100
    streams: int = 5_000
    streams_per_address: int = 50
    trusted: Sequence[str] = LOCAL_ADDRESSES  # addresses or networks that are not counted
    forwarded_by: Sequence[str] = ()  # proxies whose X-Forwarded-For is believed

    def __post_init__(self) -> None:
        for name in ("connections", "connections_per_address", "streams", "streams_per_address"):
            if getattr(self, name) < 1:
                raise MurmurateError(name, getattr(self, name), "must be at least 1")
        for name in ("trusted", "forwarded_by"):
            _check_networks(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLogin:
    """A proxy that authenticates operators and names each in a header, and the users who are operators."""

    header: str = "X-Forwarded-Email"
    proxies: Sequence[str] = ()
    users: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", self.header):
            raise MurmurateError("header in [operator_login]", self.header, "must be a name such as X-Forwarded-Email")
        if not self.proxies:
            raise MurmurateError("proxies in [operator_login]", "missing", "must name the address of the proxy")
        _check_networks("proxies", self.proxies)
        for user in self.users or ("",):
            if not isinstance(user, str) or not user.strip() or user != user.strip() or "," in user:
                raise MurmurateError("users in [operator_login]", user, "must be names such as anna@grid.example")


def _check_networks(name: str, networks: Sequence[str]) -> None:
    for network in networks:
        try:
            ip_network(network)
        except (ValueError, TypeError):
            raise MurmurateError(name, network, "must be addresses or networks such as 192.0.2.0/24") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationSettings:
    """Where readings are summed: in the worker's process, or on a Spark cluster, for which it needs an extra."""

    engine: str = PROCESS  # or a Spark master

    def __post_init__(self) -> None:
        if self.engine != PROCESS and not _SPARK_MASTER.fullmatch(self.engine):
            allowed = f"must be {PROCESS}, or a Spark master such as spark://host:7077 or local[2]"
            raise MurmurateError("engine in [aggregation]", self.engine, allowed)

    def check_installed(self) -> None:
        """Raise MissingExtraError where the engine is not installed."""
        if self.engine != PROCESS:
            require_extra("service,spark", "pyspark", "pandas")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """See EXAMPLE_SETTINGS."""

    landing: Path | str = Path("landing")  # a folder, or the address of a bucket
    meters: Path | None = Path("meters.csv")  # None: no zone of this service reads meters
    keys: Path = Path("keys")
    grace_s: int = 60
    quorum: float = 0.9
    keep_days: float = 7
    release_slot_s: float = 1.0
    watchdog_s: float = 60.0  # a process without progress for this long is killed and restarted [s]
    public: str = "127.0.0.1:8080"
    private: str = "127.0.0.1:8081"
    url: str = ""
    timezone: str = "UTC"
    country: str = ""
    aggregation: AggregationSettings = AggregationSettings()
    limits: ClientLimits = ClientLimits()
    mqtt: MqttBroker | None = None
    kafka: KafkaCluster | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)  # by process: where it serves metrics, and nothing else
    operator_login: OperatorLogin | None = None
    zones: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    clock: ServiceClock = field(default_factory=ServiceClock)
    static_files: Path | None = None
    backups: Path | None = None  # where dumps of the databases lie; their age is a metric
    archive: Path | None = None  # written by `murmurate log archive`; the public process reads old tiles from it

    def __post_init__(self) -> None:
        if not 0 <= self.quorum <= 1:
            raise MurmurateError("quorum", self.quorum, "must be a share between 0 and 1")
        if self.grace_s < 0 or self.release_slot_s <= 0 or self.watchdog_s <= 0:
            raise MurmurateError("grace_s, release_slot_s, watchdog_s", "negative", "must be at least 0")
        if self.keep_days <= 0:
            raise MurmurateError("keep_days", self.keep_days, "must be at least two intervals and grace_s, such as 7")
        if self.public_address == self.private_address:
            raise MurmurateError("private", self.private, "must be another address than public, such as 127.0.0.1:8081")
        taken = {self.public_address, self.private_address}
        for process, address in self.metrics_addresses.items():
            if address in taken:
                allowed = "must be an address that nothing else has, such as 127.0.0.1:9464"
                raise MurmurateError(f"{process} in [metrics]", self.metrics[process], allowed)
            taken.add(address)
        if self.url and not self.url.startswith(("http://", "https://")):
            raise MurmurateError("url", self.url, "must begin with http:// or https://, such as https://prices.example")
        self.display_of("")
        for zone in self.zones:
            self.display_of(zone)

    def check_keep_days(self, interval_s: int) -> None:
        """Raise MurmurateError where readings could be deleted before their interval is closed and released."""
        least = (2 * interval_s + self.grace_s) / SECONDS_PER_DAY
        if self.keep_days < least:
            allowed = (
                f"must be at least {least:.4f}, two intervals of {interval_s} s and grace_s: raise it, such as to 7"
            )
            raise MurmurateError("keep_days", self.keep_days, allowed)

    @property
    def public_address(self) -> tuple[str, int]:
        return _parse_address("public", self.public)

    @property
    def private_address(self) -> tuple[str, int]:
        return _parse_address("private", self.private)

    @property
    def metrics_addresses(self) -> Mapping[str, tuple[str, int]]:
        return {process: _parse_address(f"{process} in [metrics]", text) for process, text in self.metrics.items()}

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
    **dict.fromkeys(("landing", "meters", "keys", "static_files", "backups", "archive"), (str,)),
    **dict.fromkeys(("public", "private", "worker", "url", "timezone", "country"), (str,)),
    **dict.fromkeys(("host", "user", "protocol", "group", "mechanism", "title", "header", "engine"), (str,)),
    **dict.fromkeys(("grace_s", "port"), (int,)),
    **dict.fromkeys(
        ("quorum", "keep_days", "release_slot_s", "watchdog_s", "simulated_s", "wall_s", "speed"), (int, float)
    ),
    **dict.fromkeys(("tls", "readings", "notifications", "openadr_events", "home_assistant"), (bool,)),
    **dict.fromkeys(("connections", "connections_per_address", "streams", "streams_per_address"), (int,)),
    **dict.fromkeys(("trusted", "forwarded_by", "proxies", "users", "servers", "topics"), (list,)),
    **dict.fromkeys(("mqtt", "kafka", "zones", "clock", "limits", "metrics", "operator_login", "aggregation"), (dict,)),
}
_TYPE_LABELS: dict[type, str] = {str: "a text in quotes", dict: "a table", bool: "true or false", list: "a list"}
_DEFAULT_PATHS = {"landing": "landing", "meters": "meters.csv", "keys": "keys"}
_ZONE_SETTINGS = {"title", "timezone", "country"}


def load_settings(path: Path) -> ServiceSettings:
    """Settings from a TOML file. Paths in it are from its folder."""
    try:
        document = parse_toml(read_text(path))
    except ZoneFileError as error:
        raise MurmurateError(f"{path}:{error.line}: {error.field}", error.value, error.allowed) from None
    _check_table(document, set(ServiceSettings.__dataclass_fields__), str(path))
    reads_meters = document.get("meters") != ""
    for name, usual in _DEFAULT_PATHS.items():
        value = document.get(name, usual)
        document[name] = value if name == "landing" and "://" in value else path.parent / value
    if not reads_meters:
        document["meters"] = None
    for name in ("static_files", "backups", "archive"):
        if name in document:
            document[name] = path.parent / document[name]
    for name, kind in (
        ("mqtt", MqttBroker),
        ("kafka", KafkaCluster),
        ("clock", ServiceClock),
        ("aggregation", AggregationSettings),
        ("limits", ClientLimits),
        ("operator_login", OperatorLogin),
    ):
        if name in document:
            _check_table(document[name], set(kind.__dataclass_fields__), f"[{name}] in {path}")
            document[name] = kind(**document[name])
    _check_table(document.get("metrics", {}), set(PROCESSES), f"[metrics] in {path}")
    for zone, own in document.get("zones", {}).items():
        _check_table(own, _ZONE_SETTINGS, f"[zones.{zone}] in {path}")
    return ServiceSettings(**document)


def _check_table(table: dict[str, Any], known: set[str], where: str) -> None:
    if not isinstance(table, dict):
        raise MurmurateError(where, "no table", "must be a table")
    for name, value in table.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"must be one of {', '.join(sorted(known))}"
            raise MurmurateError(f"{name} in {where}", "unknown", remedy)
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
