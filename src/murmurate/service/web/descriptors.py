"""How many files and connections this process may have open."""

from __future__ import annotations

import resource

RESERVED_DESCRIPTORS = 64  # for databases, brokers, files and modules, whatever clients do
_MAX_DESCRIPTORS = 1_048_576  # where the system names no limit


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one: systemd starts a service with 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def find_connection_limit(wanted: int) -> int:
    """How many clients may be connected: no more than leave `RESERVED_DESCRIPTORS` for the rest of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - RESERVED_DESCRIPTORS))
