"""Ports for servers that a test starts."""

from __future__ import annotations

import socket
from random import SystemRandom


def free_port() -> int:
    """A free port below the range from which the system assigns ports."""
    while True:
        with socket.socket() as one:
            port = SystemRandom().randrange(20_000, 32_768)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
