"""Whether a server can listen at an address, and if not, why and what to do."""

from __future__ import annotations

import errno
import socket

from murmurate.errors import MurmurateError

_REASONS = {
    errno.EADDRINUSE: (
        "taken",
        "another program listens there: stop it (ss -ltnp shows it), or name another port in the settings",
    ),
    errno.EACCES: ("not allowed", "ports below 1024 need special rights: name one above 1023 in the settings"),
    errno.EADDRNOTAVAIL: (
        "not of this machine",
        "name one of its own addresses in the settings, 127.0.0.1, or 0.0.0.0 for all",
    ),
}


def check_can_listen(name: str, host: str, port: int) -> None:
    """Raise MurmurateError unless a server can listen there. `name` is the setting that names the address."""
    where = f"{name} address {host}:{port}"
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except socket.gaierror:
        raise MurmurateError(
            where, "unknown", "this machine does not know the host: correct it in the settings"
        ) from None
    except OSError as error:
        found, allowed = _REASONS.get(
            error.errno or 0, ("not usable", f"{error.strerror}: name another in the settings")
        )
        raise MurmurateError(where, found, allowed) from None
