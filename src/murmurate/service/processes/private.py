"""The private process: readings in, and the operator's page. It reads the state and the landing."""

from __future__ import annotations

import os
import signal
from threading import Event

from murmurate.service.auth import AuthStore
from murmurate.service.ingest.http_api import IngestApi, private_app
from murmurate.service.ingest.ingest_status import IngestReadiness, IngestStatus
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReloadingIngestor
from murmurate.service.ingest.kafka_consumer import KafkaConsumer
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.landing.layout import Landing
from murmurate.service.logging_setup import configure_logging
from murmurate.service.operator_api.public_inputs import PublicInputsApi
from murmurate.service.operator_api.routes import OperatorApi
from murmurate.service.processes.start import MAX_START_S, mqtt_client_id, serve_app, wait_until_reachable
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.session import SessionPool
from murmurate.service.watchdog import is_supervised, report_progress
from murmurate.service.web.metrics_port import metrics_port
from murmurate.service.web.server import ConnectionLimits


def run_process(settings: ServiceSettings, *, state: str, log: str) -> None:
    """Run until a signal comes."""
    configure_logging("private")
    databases = Databases.from_dsns(state=state, log=log)
    wait_until_reachable(databases.state)  # it takes readings without the log
    report_progress(MAX_START_S)
    migrate_database(databases.state.dsn, "state")
    landing = Landing.open(settings.landing, probe=not is_supervised())
    sessions = SessionPool(databases.state.dsn)
    ingestor = ReloadingIngestor(landing, settings.meters, settings.clock, settings.grace_s, IngestStore(sessions))
    stopped = Event()
    ingestor.state_clock.follow(sessions, stopped)
    access = AuthStore(sessions)
    routes = IngestApi(current_ingestor=ingestor, access=access).routes()
    consumer = None
    if settings.mqtt is not None and settings.mqtt.readings:
        name, now = mqtt_client_id("readings", settings), ingestor.state_clock.agreed_now
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
    kafka = None
    if settings.kafka is not None:
        kafka = KafkaConsumer(
            cluster=settings.kafka,
            client_id=mqtt_client_id("readings", settings),
            landing=landing,
            current_ingestor=ingestor,
            store=IngestStore(databases.state.dsn),
            now=ingestor.state_clock.agreed_now,
        )
        kafka.start(on_failure=lambda: os.kill(os.getpid(), signal.SIGTERM))
    readiness = IngestReadiness(sessions, landing.store)
    status = IngestStatus(ingestor=ingestor, state=sessions, readiness=readiness, consumer=consumer, kafka=kafka)
    operator = OperatorApi(
        databases=databases, settings=settings, state=sessions, counts=ingestor.counts, ingest=status
    )
    inputs = PublicInputsApi(state=sessions, access=operator.operators, interval_s=landing.interval_s)
    try:
        app = private_app([*routes, *inputs.routes(), *operator.routes()], settings.limits.trusted)
        with metrics_port("private", settings, operator.current_metrics):
            serve_app("private", app, settings.private_address, ConnectionLimits(settings.limits))
    finally:
        stopped.set()
        for each in (consumer, kafka):
            if each is not None:
                each.stop()
        sessions.close()
