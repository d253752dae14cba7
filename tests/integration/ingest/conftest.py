"""Ten meters on a real broker."""

from tests.support.mqtt_zone import start_consumer, zone  # noqa: F401
