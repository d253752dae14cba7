"""What the processes share: they wait for their databases, and two of them serve an app."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time

from starlette.types import ASGIApp

from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Database, Databases, DatabaseUnreachableError, ObjectLog
from murmurate.service.watchdog import report_progress
from murmurate.service.web.server import ConnectionLimits, check_can_listen, make_server, raise_descriptor_limit

logger = logging.getLogger(__name__)

MAX_START_S = 3600.0  # what a process may take before its first round: a migration, a table of millions of meters
_THREAD_SWITCH_S = 0.001  # the event loop waits no longer for each thread that makes an answer; Python's own is 0.005
_FIRST_WAIT_S = 0.5  # for a database that is out of reach; twice as long each time
_MAX_WAIT_S = 10.0


def wait_until_reachable(databases: Database | ObjectLog | Databases) -> None:
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


def serve_app(name: str, app: ASGIApp, address: tuple[str, int], limits: ConnectionLimits) -> None:
    """Serve an app until a signal comes."""
    sys.setswitchinterval(_THREAD_SWITCH_S)
    check_can_listen(name, *address)
    raise_descriptor_limit()
    web = make_server(app, *address, limits)
    logger.info("listening", extra={"host": address[0], "port": address[1]})
    asyncio.run(web.serve())
    logger.info("stopped")


def mqtt_client_id(purpose: str, settings: ServiceSettings) -> str:
    """Return the identifier under which the broker recognises this instance after a restart."""
    return f"murmurate-{purpose}-{socket.gethostname()}-{settings.private_address[1]}"
