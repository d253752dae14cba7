"""A plain web server that carries a folder, and requests to an app without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx


class QuietHandler(SimpleHTTPRequestHandler):
    """A plain web server that prints nothing."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetch(
    app: Any, path: str, *, method: str = "GET", base_url: str = "http://app.example", **request: Any
) -> httpx.Response:
    """The answer of an app to a request, with `headers`, `auth` or `content`."""

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=base_url) as client:
            return await client.request(method, path, **request)

    return asyncio.run(get())
