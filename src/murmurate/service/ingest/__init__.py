"""Accept readings over HTTP, MQTT and from files, check them, and append them to the landing area."""
