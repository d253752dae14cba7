"""The metrics of a process at a separate address, for a Prometheus on another machine. They need no login."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Thread

import psycopg
from prometheus_client import ProcessCollector
from prometheus_client.core import InfoMetricFamily, Metric
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate import __version__
from murmurate.service.settings import ClientLimits, ServiceSettings
from murmurate.service.web.responses import problem_response
from murmurate.service.web.server import ConnectionLimits, check_can_listen, make_server
from murmurate.service.web.text import METRICS_MEDIA_TYPE, format_metrics

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 16  # of monitors; the descriptors are among those that every process reserves
_STOP_TIMEOUT_S = 5.0


def process_metrics(process: str) -> Iterator[Metric]:
    """Yield the version of a process, its memory and its descriptors.

    Not its processor time: how long the worker draws noise depends on the noise.
    """
    facts = {"process": process, "version": __version__}
    yield InfoMetricFamily("murmurate_build", "The version that this process runs.", facts)
    yield from (each for each in ProcessCollector(registry=None).collect() if each.name != "process_cpu_seconds")


@contextmanager
def metrics_port(
    process: str, settings: ServiceSettings, own_metrics: Callable[[], Iterable[Metric]] = tuple
) -> Iterator[None]:
    """Serve the metrics of a process while the block runs, if the settings name an address for them.

    A thread serves them, one request after the other: a monitor does not keep other clients waiting.
    """
    address = settings.metrics_addresses.get(process)
    if address is None:
        yield
        return
    one_at_a_time = asyncio.Lock()

    async def get_metrics(_: Request) -> Response:
        async with one_at_a_time:
            try:
                text = await run_in_threadpool(lambda: format_metrics(own_metrics(), process_metrics(process)))
            except (psycopg.Error, OSError) as error:
                logger.warning("failing", extra={"route": "/metrics", "reason": type(error).__name__})
                return problem_response(503, "a database does not answer")
        return Response(text, 200, {"cache-control": "no-store"}, METRICS_MEDIA_TYPE)

    check_can_listen(f"{process} metrics", *address)
    limits = ClientLimits(connections=MAX_CONNECTIONS, connections_per_address=MAX_CONNECTIONS)
    app = Starlette(routes=[Route("/metrics", get_metrics, methods=["GET"])])
    app.router.redirect_slashes = False
    web = make_server(app, *address, ConnectionLimits(limits), feeds_watchdog=False)
    thread = Thread(target=lambda: asyncio.run(web.serve()), name="metrics", daemon=True)
    thread.start()
    logger.info("metrics", extra={"host": address[0], "port": address[1]})
    try:
        yield
    finally:
        web.should_exit = True
        thread.join(_STOP_TIMEOUT_S)
