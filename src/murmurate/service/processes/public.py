"""The public process: prices out. It reads the public log and nothing else."""

from __future__ import annotations

from murmurate.service.logging_setup import configure_logging
from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.processes.start import mqtt_client_id, serve_app, wait_until_reachable
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.home_assistant import HomeAssistantTopics
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.metrics import metrics_routes, public_metrics
from murmurate.service.public_api.notifications import MAX_QUEUED_MESSAGES, MqttNotifier
from murmurate.service.public_api.pages.routes import page_routes
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import name_log
from murmurate.service.web.metrics_port import metrics_port


def run_process(settings: ServiceSettings, *, log: str, **_: str) -> None:
    """Run until a signal comes. The connection string of the state is not for it."""
    configure_logging("public")
    wait_until_reachable(name_log(log))
    broker, notifier, home_assistant = settings.mqtt, None, None
    if broker is not None and broker.notifications:
        client_id = mqtt_client_id("notifications", settings)
        client = connect_mqtt(broker, client_id, max_queued_messages=MAX_QUEUED_MESSAGES)
        notifier = MqttNotifier(client, openadr=broker.openadr_events)
        home_assistant = HomeAssistantTopics(client, settings.base_url) if broker.home_assistant else None
    live_state = LiveState(log, settings, notifier, home_assistant)
    try:
        app = public_app(live_state, [*page_routes(live_state), *metrics_routes(live_state)])
        with metrics_port("public", settings, lambda: public_metrics(live_state)):
            serve_app("public", app, settings.public_address, live_state.connections)
    finally:
        live_state.close()
