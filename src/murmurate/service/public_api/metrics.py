"""The public process as Prometheus metrics: how busy it is, and how old what it shows. Nothing about a client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.clock_comparison import clock_difference_metric
from murmurate.service.public_api import query_params
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.storage.durable import free_disk_share
from murmurate.service.web.address_counts import is_loopback


@dataclass(frozen=True, slots=True, eq=False)  # a registry keeps collectors by identity
class PublicCollector(Collector):
    """The metrics of a live state at the time of a request."""

    live_state: LiveState

    def collect(self) -> Iterator[Metric]:
        state = self.live_state
        yield GaugeMetricFamily("murmurate_public_connections", "Clients connected.", state.connections.connections)
        yield GaugeMetricFamily("murmurate_public_streams", "Streams of prices open.", len(state.price_stream))
        age_s = round(state.log_age_s, 1) if isfinite(state.log_age_s) else -1.0
        yield GaugeMetricFamily("murmurate_log_reader_age_seconds", "Seconds since the log was read; -1: never.", age_s)
        dropped = 0 if state.notifier is None else state.notifier.dropped_count
        yield CounterMetricFamily("murmurate_notices_dropped", "MQTT notices that were never published.", dropped)
        yield GaugeMetricFamily("murmurate_public_shards_broken", "Shards whose log is not valid.", state.broken_shards)
        yield GaugeMetricFamily(
            "murmurate_public_shards_stale", "Shards without a price now.", state.count_stale_shards()
        )
        yield clock_difference_metric({("public", "log"): state.log_clock.difference_s})
        if (static := state.settings.static_files) is not None:
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
        registry = CollectorRegistry()
        registry.register(PublicCollector(live_state))
        headers = {"cache-control": "no-store"}
        return Response(generate_latest(registry), headers=headers, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return [Route("/metrics", get_metrics, methods=["GET"])]
