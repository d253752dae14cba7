"""`murmurate status`: how a service stands, from its databases, so that it works while the service is down."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from murmurate.commands.json_output import print_json
from murmurate.commands.status_report import print_status, status_document
from murmurate.errors import MurmurateError
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.landing.layout import Landing
from murmurate.service.log_reader.follower import Follower
from murmurate.service.log_reader.zone_view import ShardView
from murmurate.service.operator_api.attention import AttentionItem, find_attention
from murmurate.service.operator_api.status import MAX_BACKFILL_S, Heartbeat, ServiceStatus, service_status
from murmurate.service.settings import ServiceSettings, load_settings
from murmurate.service.storage.databases import Database, Databases, mask_database_errors
from murmurate.service.storage.heartbeats import WORKER_BEAT, WORKER_HEARTBEAT, read_heartbeat_ages
from murmurate.service.storage.session import open_source
from murmurate.units import SECONDS_PER_DAY

PORT_TIMEOUT_S = 5.0


@dataclass(slots=True)
class StatusSources:
    """What could be read of a service, and what could not."""

    shards: list[ShardView] = field(default_factory=list)
    broken_shards: dict[str, str] = field(default_factory=dict)
    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    clients: list[ApiClient] = field(default_factory=list)
    ports: dict[str, str] = field(default_factory=dict)  # of each process with a port: ready, or what is wrong
    landing: tuple[int, float | None] | None = None  # intervals with readings, and the age of the oldest [s]
    missing: list[AttentionItem] = field(default_factory=list)  # what could not be read


def show_status(settings_file: Path | None, databases: Databases, zone: str | None, *, as_json: bool) -> int:
    """Print how a service stands. Returns the exit status: 1 if anything needs a person."""
    settings = ServiceSettings() if settings_file is None else load_settings(settings_file)
    sources = _read_sources(settings_file, settings, databases)
    now_s = settings.clock.now()
    status = service_status(
        sources.shards,
        sources.broken_shards,
        display_of=settings.display_of,
        now_s=now_s,
        grace_s=settings.grace_s,
        reading_counts={},
        heartbeat=sources.heartbeats.get(WORKER_HEARTBEAT),
        worker_beat=sources.heartbeats.get(WORKER_BEAT),
        clients=sources.clients,
        only_zone=zone,
    )
    if zone is not None and not status.zones and not sources.missing:
        raise MurmurateError("--zone", zone, "is not open; murmurate status lists the zones, murmurate open opens one")
    attention = [*sources.missing, *_find_attention(status, settings, sources, has_settings=settings_file is not None)]
    document = status_document(status, settings, sources.ports, sources.landing, attention)
    if as_json:
        print_json(document)
    else:
        print_status(document, settings)
    return 1 if attention else 0


def _find_attention(
    status: ServiceStatus, settings: ServiceSettings, sources: StatusSources, *, has_settings: bool
) -> list[AttentionItem]:
    unread = {item.about for item in sources.missing}
    found = find_attention(status, settings, needs_worker=has_settings)
    if "log" in unread:
        found = [item for item in found if item.about not in {"zones", "last price"}]
    if "state" in unread:
        found = [item for item in found if item.about not in {"worker", "feed"}]
    remedy = "start it with murmurate serve, or read its last messages"
    return found + [AttentionItem(name, words, remedy) for name, words in sources.ports.items() if words != "ready"]


def _read_sources(settings_file: Path | None, settings: ServiceSettings, databases: Databases) -> StatusSources:
    sources = StatusSources()
    with mask_database_errors():
        if _is_reachable(databases.log, sources):
            with closing(Follower(databases.log.dsn, recent_s=SECONDS_PER_DAY)) as follower:
                for _ in (*follower.refresh(), *follower.backfill(MAX_BACKFILL_S)):
                    pass
                sources.shards, sources.broken_shards = follower.views(), dict(follower.broken)
        if _is_reachable(databases.state, sources):
            with closing(open_source(databases.state.dsn)) as state:
                sources.heartbeats = dict(read_heartbeat_ages(state))
                sources.clients = AuthStore(state).list_clients()
    if settings_file is not None:
        addresses = {"private": settings.private_address, "public": settings.public_address}
        sources.ports = {name: _ask_readiness(*address) for name, address in addresses.items()}
        _read_landing(settings, sources)
    return sources


def _is_reachable(database: Database, sources: StatusSources) -> bool:
    try:
        database.check_reachable()
    except MurmurateError as error:
        sources.missing.append(AttentionItem(database.store, f"{error.field} is {error.value}", error.allowed))
        return False
    return True


def _ask_readiness(host: str, port: int) -> str:
    """What a process says of itself: `ready`, or what is wrong."""
    connection = HTTPConnection("127.0.0.1" if host in {"0.0.0.0", "::", ""} else host, port, timeout=PORT_TIMEOUT_S)  # noqa: S104
    with closing(connection):
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
        except (OSError, HTTPException):
            return f"{host}:{port} does not answer"
        return "ready" if response.status == 200 else f"{host}:{port} is not ready (HTTP {response.status})"


def _read_landing(settings: ServiceSettings, sources: StatusSources) -> None:
    """Note how many intervals have readings: names of folders, never a reading."""
    try:
        starts_s, _ = Landing.open(settings.landing).list_intervals()
    except (MurmurateError, OSError) as error:
        words = str(error) if isinstance(error, MurmurateError) else f"{settings.landing}: {error.strerror}"
        sources.missing.append(
            AttentionItem("landing", words, "murmurate landing creates one; see landing in the file")
        )
        return
    sources.landing = len(starts_s), max(0.0, settings.clock.now() - starts_s[0]) if starts_s else None
