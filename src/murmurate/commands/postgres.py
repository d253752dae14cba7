"""`murmurate demo --databases`: two databases to try things on, from the extra `demo`. Both end with it."""

from __future__ import annotations

import shlex
import time

import typer

from murmurate.commands.console import stderr
from murmurate.service.demo.demo_host import DemoHost


def run_postgres() -> int:
    """Start a server, print where its databases are, and delete everything when a signal comes."""
    host = DemoHost("")
    try:
        with stderr.status("starting PostgreSQL"):
            answer = host.read_answer()
        for store in ("state", "log"):
            typer.echo(f"export MURMURATE_{store.upper()}={shlex.quote(answer[store])}")
        stderr.print("For another shell. Ctrl-C ends PostgreSQL and deletes the databases.")
        while True:
            host.check()
            time.sleep(0.5)
    finally:
        host.close()
