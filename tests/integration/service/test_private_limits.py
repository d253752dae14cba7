"""The private process limits connections as the public one does."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress

from tests.support.ports import free_port
from tests.support.waiting import wait_until

from murmurate.service.landing.layout import Landing

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
MAX_EACH = 2


def is_listening(port):
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 60):
        return True
    return False


def test_one_address_has_so_many_connections_to_the_private_port_and_others_still_connect(tmp_path, state_dsn):
    port = free_port()
    Landing.create(tmp_path / "landing")
    (tmp_path / "meters.csv").write_text("meter,zone,bound_wh,imputed_wh\n0,harbour,1000,150\n")
    limits = f"[limits]\nconnections_per_address = {MAX_EACH}\n"
    (tmp_path / "service.toml").write_text(f'private = "127.0.0.1:{port}"\n{limits}')
    command = [sys.executable, "-m", "murmurate", "serve", str(tmp_path / "service.toml"), "--only", "private"]
    process = subprocess.Popen(command, env=os.environ | {"MURMURATE_STATE": state_dsn, "MURMURATE_LOG": state_dsn})
    try:
        assert wait_until(lambda: process.poll() is not None or is_listening(port))
        with ExitStack() as stack:
            for address, status in (("127.0.0.2", 200), ("127.0.0.2", 200), ("127.0.0.2", 429), ("127.0.0.3", 200)):
                one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60, (address, 0)))
                one.sendall(GET)
                assert one.recv(12) == b"HTTP/1.1 %d" % status
    finally:
        process.terminate()
        process.wait(60)
