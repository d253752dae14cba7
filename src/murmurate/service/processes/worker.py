"""The worker: aggregate, release, purge. It reads everything, and holds the keys."""

from __future__ import annotations

import logging
import signal
import time
from threading import Event

from murmurate.service.aggregation.spark_driver import SparkEngine
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.landing.layout import Landing
from murmurate.service.logging_setup import configure_logging
from murmurate.service.processes.start import MAX_START_S, wait_until_reachable
from murmurate.service.settings import PROCESS, ServiceSettings
from murmurate.service.storage.databases import Databases, ObjectLog
from murmurate.service.storage.migrate import migrate_database, pending_migrations
from murmurate.service.watchdog import is_supervised, report_progress
from murmurate.service.web.metrics_port import metrics_port
from murmurate.service.worker.figures import error_reason
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext

logger = logging.getLogger(__name__)

_REPEAT_FAILURE_S = 60.0  # between two log lines about a failure that lasts [s]


def run_process(settings: ServiceSettings, *, state: str, log: str) -> None:
    """Run until a signal comes."""
    configure_logging("worker")
    databases = Databases.from_dsns(state=state, log=log)
    stopped = Event()
    landing = Landing.open(settings.landing, probe=not is_supervised())
    settings.check_keep_days(landing.interval_s)
    settings.aggregation.check_installed()
    engine = settings.aggregation.engine
    wait_until_reachable(databases)
    report_progress(MAX_START_S)
    migrate_database(databases.state.dsn, "state")
    if isinstance(databases.log, ObjectLog):
        if not is_supervised():  # the supervisor has tried it
            databases.log.prepare()
    elif missing := pending_migrations(databases.log.dsn, "log"):
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
        engine=None if engine == PROCESS else SparkEngine(engine),
        is_stopped=stopped.is_set,
    )
    logger.info("working")
    with metrics_port("worker", settings):
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
    if worker.engine is not None:
        worker.engine.close()
    logger.info("stopped")
