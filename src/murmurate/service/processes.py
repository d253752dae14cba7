"""`murmurate serve`: the three processes of a service.

    private   readings in, the operator's page       reads the state and the landing
    worker    aggregate, release, purge              reads everything, and holds the keys
    public    prices out                             reads the public log, and nothing else

To run each process under another user, start three services with --only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from threading import Event

from starlette.types import ASGIApp

from murmurate.service.auth import AuthStore
from murmurate.service.ingest.http_api import IngestApi, private_app
from murmurate.service.ingest.ingest_status import IngestReadiness, IngestStatus
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReloadingIngestor
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.landing.layout import Landing
from murmurate.service.logging_setup import configure_logging
from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.operator_api.public_inputs import PublicInputsApi
from murmurate.service.operator_api.routes import OperatorApi
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.metrics import metrics_routes
from murmurate.service.public_api.notifications import MAX_QUEUED_MESSAGES, MqttNotifier
from murmurate.service.public_api.pages.routes import page_routes
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Database, Databases, DatabaseUnreachableError
from murmurate.service.storage.migrate import migrate_database, pending_migrations
from murmurate.service.storage.session import SessionPool
from murmurate.service.watchdog import report_progress
from murmurate.service.web.server import ConnectionLimits, check_can_listen, make_server, raise_descriptor_limit
from murmurate.service.worker.figures import error_reason
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext

logger = logging.getLogger(__name__)

THREAD_SWITCH_S = 0.001  # the event loop waits no longer for each thread that makes an answer; Python's own is 0.005
_FIRST_WAIT_S = 0.5  # for a database that is out of reach; twice as long each time
_MAX_WAIT_S = 10.0
_REPEAT_FAILURE_S = 60.0  # between two log lines about a failure that lasts [s]
_MAX_START_S = 3600.0  # what a process may take before its first round: a migration, a table of millions of meters


def run_public(settings: ServiceSettings, log: Database) -> None:
    configure_logging("public")
    sys.setswitchinterval(THREAD_SWITCH_S)
    _wait_until_reachable(log)
    broker, notifier = settings.mqtt, None
    if broker is not None and broker.notifications:
        client_id = _mqtt_client_id("notifications", settings)
        client = connect_mqtt(broker, client_id, max_queued_messages=MAX_QUEUED_MESSAGES)
        notifier = MqttNotifier(client, openadr=broker.openadr_events)
    live_state = LiveState(log.dsn, settings, notifier)
    try:
        app = public_app(live_state, [*page_routes(live_state), *metrics_routes(live_state)])
        _serve_app("public", app, settings.public_address, live_state.connections)
    finally:
        live_state.close()


def run_private(settings: ServiceSettings, databases: Databases) -> None:
    configure_logging("private")
    sys.setswitchinterval(THREAD_SWITCH_S)
    _wait_until_reachable(databases.state)  # it takes readings without the log
    report_progress(_MAX_START_S)
    migrate_database(databases.state.dsn, "state")
    landing = Landing.open(settings.landing)
    state = SessionPool(databases.state.dsn)
    ingestor = ReloadingIngestor(landing, settings.meters, settings.clock, settings.grace_s, IngestStore(state))
    stopped = Event()
    ingestor.state_clock.follow(state, stopped)
    access = AuthStore(state)
    routes = IngestApi(current_ingestor=ingestor, access=access).routes()
    routes += PublicInputsApi(state=state, access=access, interval_s=landing.interval_s).routes()
    consumer = None
    if settings.mqtt is not None and settings.mqtt.readings:
        name, now = _mqtt_client_id("readings", settings), ingestor.state_clock.agreed_now
        store = IngestStore(databases.state.dsn)
        consumer = MqttConsumer(
            broker=settings.mqtt,
            client_id=name,
            landing=landing,
            current_ingestor=ingestor,
            store=store,
            now=now,
            clock_speed=settings.clock.speed,
        )
        consumer.start(on_failure=lambda: os.kill(os.getpid(), signal.SIGTERM))  # the supervisor restarts this process
    readiness = IngestReadiness(state, settings.landing)
    status = IngestStatus(ingestor=ingestor, state=state, readiness=readiness, consumer=consumer)
    operator = OperatorApi(databases=databases, settings=settings, state=state, counts=ingestor.counts, ingest=status)
    try:
        app = private_app([*routes, *operator.routes()], settings.limits.trusted)
        _serve_app("private", app, settings.private_address, ConnectionLimits(settings.limits))
    finally:
        stopped.set()
        if consumer is not None:
            consumer.stop()
        state.close()


def _serve_app(name: str, app: ASGIApp, address: tuple[str, int], limits: ConnectionLimits) -> None:
    check_can_listen(name, *address)
    raise_descriptor_limit()
    web = make_server(app, *address, limits)
    logger.info("listening", extra={"host": address[0], "port": address[1]})
    asyncio.run(web.serve())
    logger.info("stopped")


def run_worker(settings: ServiceSettings, databases: Databases) -> None:
    configure_logging("worker")
    stopped = Event()
    landing = Landing.open(settings.landing)
    settings.check_keep_days(landing.interval_s)
    _wait_until_reachable(databases)
    report_progress(_MAX_START_S)
    migrate_database(databases.state.dsn, "state")
    if missing := pending_migrations(databases.log.dsn, "log"):
        remedy = "the service does not migrate the log: run murmurate zone open as the owner of the log"
        logger.error("log not migrated", extra={"missing": missing, "remedy": remedy})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    worker = IntervalWorker(
        landing=landing,
        meters=settings.meters,
        context=PublisherContext.from_databases(databases, settings.keys, settings.release_slot_s),
        ingest_store=IngestStore(databases.state.dsn),
        clock=settings.clock,
        grace_s=settings.grace_s,
        quorum=settings.quorum,
        keep_days=settings.keep_days,
    )
    logger.info("working")
    failure, said_s = "", 0.0
    while not stopped.is_set():
        try:
            worker.run_once()
            failure = ""
        except Exception as error:  # noqa: BLE001  the next round may succeed
            report_progress()
            if error_reason(error) != failure or time.monotonic() - said_s > _REPEAT_FAILURE_S:
                failure, said_s = error_reason(error), time.monotonic()
                logger.warning("failing", extra={"reason": failure})
        stopped.wait(min(1.0, settings.release_slot_s))
    logger.info("stopped")


def _wait_until_reachable(databases: Database | Databases) -> None:
    """Wait for a database that does not answer, and say so. Raises MurmurateError where it is not prepared."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # for the supervisor alone
    wait_s = _FIRST_WAIT_S
    while True:
        report_progress()
        try:
            databases.check_reachable()
        except DatabaseUnreachableError as error:
            logger.warning("waiting for a database", extra={"reason": str(error), "again_in_s": wait_s})
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)
        else:
            return


def _mqtt_client_id(purpose: str, settings: ServiceSettings) -> str:
    """The identifier under which the broker recognises this instance after a restart."""
    return f"murmurate-{purpose}-{socket.gethostname()}-{settings.private_address[1]}"
