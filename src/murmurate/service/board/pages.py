"""Pages for people at the public door. They come from the same views as every other format."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.service.board import queries
from murmurate.service.board.board import MOVING, Board, Ready
from murmurate.service.board.page import zone_page, zones_page
from murmurate.service.board.shell import HEADERS, HTML
from murmurate.service.board.view import ZoneView

_AFTER_S = 2.0  # the board has seen the next interval by then

_MOST_MADE = 2000


class Pages:
    """A page is made once for each interval and state of the log, and sent to everybody."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._made: dict[str, tuple[ZoneView, int, Ready]] = {}

    async def zones(self, request: Request) -> Response:
        queries.refuse_unknown(request, ())
        board = self._board
        ready = _ready(zones_page(list(board.views.values()), board.clock.now(), board.settings.base_url))
        board.ready.put((request.scope["raw_path"], request.scope["query_string"]), ready)
        return _answer(request, ready)

    async def zone(self, request: Request) -> Response:
        """Its `Refresh` depends on when it is asked for, so that it lies on a shelf of its own."""
        queries.refuse_unknown(request, ())
        view = self._board.views.get(request.path_params["zone"])
        if view is None:
            raise HTTPException(404, "there is no such zone here; /zones lists them")
        now_s = self._board.clock.now()
        response = _answer(request, self._page(view, now_s))
        left_s = (view.begin_s(view.at(now_s) + 1) - now_s) / self._board.clock.speed
        response.headers["refresh"] = str(ceil(left_s + _AFTER_S))
        return response

    def _page(self, view: ZoneView, now_s: float) -> Ready:
        of, at, ready = self._made.get(view.zone, (None, 0, None))
        if ready is None or of is not view or at != view.at(now_s):
            ready = _ready(zone_page(view, now_s, self._board.settings.base_url))
            if len(self._made) >= _MOST_MADE:
                self._made.clear()
            self._made[view.zone] = (view, view.at(now_s), ready)
        return ready


def pages_routes(board: Board) -> list[Route]:
    pages = Pages(board)
    paths = {"/": pages.zones, "/zones/{zone}": pages.zone}
    return [Route(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()]


def _ready(html: str) -> Ready:
    ready = Ready.of(html.encode(), HTML, MOVING)
    more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    return replace(ready, headers=[*ready.headers, *more])


def _answer(request: Request, ready: Ready) -> Response:
    known = request.headers.get("if-none-match", "").encode()
    same = ready.unchanged if known and (ready.etag in known or known == b"*") else ready
    return replace(same, headers=list(same.headers)).response()
