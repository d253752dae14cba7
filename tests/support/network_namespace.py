"""A network namespace at the other end of a cable of its own. Needs root and iproute2."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom
from secrets import token_hex

_CLONE_NEWNET = 0x40000000
_NAMESPACES = Path("/run/netns")  # where ip keeps them


class NetworkNamespace:
    """This machine listens at `host`; what runs in the namespace has the address `far`."""

    def __init__(self) -> None:
        self.name, self._cable = f"murmurate-{token_hex(4)}", f"mm{token_hex(4)}"
        net = SystemRandom().randrange(4, 2**16, 4)
        self.host, self.far = (f"198.18.{net // 256}.{net % 256 + end}" for end in (1, 2))  # of RFC 2544

    def make(self) -> None:
        _ip("netns", "add", self.name)
        _ip(*f"link add {self._cable} type veth peer name eth0 netns {self.name}".split())
        _ip(*f"address add {self.host}/30 dev {self._cable}".split())
        self.connect()
        for command in (f"address add {self.far}/30 dev eth0", "link set eth0 up", "link set lo up"):
            _ip("-n", self.name, *command.split())

    def delete(self) -> None:
        """End it, and the cable with it."""
        _ip("netns", "delete", self.name)

    def cut(self) -> None:
        """Nothing comes through in either direction, and nobody is told."""
        _ip("link", "set", self._cable, "down")

    def connect(self) -> None:
        _ip("link", "set", self._cable, "up")

    def command(self, *command: str) -> list[str]:
        """The command that runs a command in it."""
        return ["ip", "netns", "exec", self.name, *command]


@contextmanager
def network_namespace() -> Iterator[NetworkNamespace]:
    """Have a network namespace during the block."""
    namespace = NetworkNamespace()
    namespace.make()
    try:
        yield namespace
    finally:
        namespace.delete()


def enter_namespace(name: str) -> None:
    """Move this thread, and all that it starts from now on, into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (_NAMESPACES / name).open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
