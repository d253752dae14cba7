"""The public process as Prometheus metrics: how busy it is, and how old what it shows. Nothing about a client."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.clock_comparison import clock_difference_metric
from murmurate.service.public_api import query_params
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.storage.durable import free_disk_share
from murmurate.service.web.address_counts import is_loopback
from murmurate.service.web.text import METRICS_MEDIA_TYPE, format_metrics


def public_metrics(live_state: LiveState) -> Iterator[Metric]:
    """Yield the metrics of a live state at the time of a request."""
    yield GaugeMetricFamily("murmurate_public_connections", "Clients connected.", live_state.connections.connections)
    yield GaugeMetricFamily("murmurate_public_streams", "Streams of prices open.", len(live_state.price_stream))
    age_s = round(live_state.log_age_s, 1) if isfinite(live_state.log_age_s) else -1.0
    yield GaugeMetricFamily("murmurate_log_reader_age_seconds", "Seconds since the log was read; -1: never.", age_s)
    dropped = 0 if live_state.notifier is None else live_state.notifier.dropped_count
    yield CounterMetricFamily("murmurate_notices_dropped", "MQTT notices that were never published.", dropped)
    yield GaugeMetricFamily(
        "murmurate_public_shards_broken", "Shards whose log is not valid.", live_state.broken_shards
    )
    yield GaugeMetricFamily(
        "murmurate_public_shards_stale", "Shards without a price now.", live_state.count_stale_shards()
    )
    yield clock_difference_metric({("public", "log"): live_state.log_clock.difference_s})
    if (static := live_state.settings.static_files) is not None:
        free = GaugeMetricFamily("murmurate_disk_free_ratio", "Free share of a folder's disk.", labels=("folder",))
        if (share := free_disk_share(static)) is not None:
            free.add_metric(("static",), share)
        yield free


def metrics_routes(live_state: LiveState) -> list[Route]:
    """`/metrics`, for a client on the same machine."""

    async def get_metrics(request: Request) -> Response:
        query_params.check_query_params(request, ())
        is_forwarded = "x-forwarded-for" in request.headers  # by a proxy on this machine that the settings do not list
        if is_forwarded or not is_loopback(query_params.client_address(request)):
            raise HTTPException(404)
        text = format_metrics(public_metrics(live_state))
        return Response(text, 200, {"cache-control": "no-store"}, METRICS_MEDIA_TYPE)

    return [Route("/metrics", get_metrics, methods=["GET"])]
