"""`murmurate serve`: the three processes of a service.

    private   readings in, the operator's page       reads the state and the landing
    worker    aggregate, release, purge              reads everything, and holds the keys
    public    prices out                             reads the public log, and nothing else

To run each process under a user of its own, start three services with --only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from threading import Event

import psycopg

from murmurate.errors import MurmurateError
from murmurate.service.auth import AuthStore
from murmurate.service.ingest.http_api import IngestApi, private_app
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.ingest.reloading_ingestor import ReloadingIngestor
from murmurate.service.landing.layout import Landing
from murmurate.service.logging_setup import configure_logging
from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.operator_api.routes import OperatorApi
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.mqtt_notifier import MqttNotifier
from murmurate.service.public_api.pages.routes import page_routes
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Database, Databases
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.session_pool import SessionPool
from murmurate.service.web.server import make_server
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext

logger = logging.getLogger(__name__)


def run_public(settings: ServiceSettings, log: Database) -> None:
    configure_logging("public")
    log.check_reachable()
    broker, notifier = settings.mqtt, None
    if broker is not None and broker.notifications:
        notifier = MqttNotifier(connect_mqtt(broker, _mqtt_client_id("notifications", settings)))
    live_state = LiveState(log.dsn, settings, notifier)
    try:
        _serve_app(public_app(live_state, page_routes(live_state)), settings.public_address)
    finally:
        live_state.archive.close()


def run_private(settings: ServiceSettings, databases: Databases) -> None:
    configure_logging("private")
    databases.check_reachable()
    migrate_database(databases.state.dsn, "state")
    landing = Landing.open(settings.landing)
    state = SessionPool(databases.state.dsn)
    ingestor = ReloadingIngestor(landing, settings.meters, settings.clock, settings.grace_s, IngestStore(state))
    routes = IngestApi(current_ingestor=ingestor, access=AuthStore(state)).routes()
    routes += OperatorApi(databases=databases, settings=settings, state=state, counts=ingestor.counts).routes()
    consumer = None
    if settings.mqtt is not None and settings.mqtt.readings:
        name, now = _mqtt_client_id("readings", settings), settings.clock.now
        store = IngestStore(databases.state.dsn)
        consumer = MqttConsumer(broker=settings.mqtt, client_id=name, current_ingestor=ingestor, store=store, now=now)
        consumer.start(on_failure=lambda: os.kill(os.getpid(), signal.SIGTERM))  # the supervisor restarts this process
    try:
        _serve_app(private_app(routes), settings.private_address)
    finally:
        if consumer is not None:
            consumer.stop()
        state.close()


def _serve_app(app: object, address: tuple[str, int]) -> None:
    web = make_server(app, *address)  # type: ignore[arg-type]
    logger.info("listening", extra={"host": address[0], "port": address[1]})
    asyncio.run(web.serve())
    logger.info("stopped")


def run_worker(settings: ServiceSettings, databases: Databases) -> None:
    configure_logging("worker")
    stopped = Event()
    databases.check_reachable()
    migrate_database(databases.state.dsn, "state")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    worker = IntervalWorker(
        landing=Landing.open(settings.landing),
        meters=settings.meters,
        context=PublisherContext.from_databases(databases, settings.keys, settings.release_slot_s),
        ingest_store=IngestStore(databases.state.dsn),
        clock=settings.clock,
        grace_s=settings.grace_s,
        quorum=settings.quorum,
        keep_days=settings.keep_days,
    )
    logger.info("working")
    while not stopped.is_set():
        try:
            worker.run_once()
        except MurmurateError as error:
            logger.warning("failing", extra={"reason": str(error)})
        except (psycopg.Error, OSError) as error:
            logger.warning("failing", extra={"reason": type(error).__name__})
        stopped.wait(min(1.0, settings.release_slot_s))
    logger.info("stopped")


def _mqtt_client_id(purpose: str, settings: ServiceSettings) -> str:
    """The identifier under which the broker recognises this instance after a restart."""
    return f"murmurate-{purpose}-{socket.gethostname()}-{settings.private_address[1]}"
